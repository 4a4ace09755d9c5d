"""The task `explain`: say in free words what a short Python function does. Answers are texts, graded by meaning.

The function's constants are written as sums that must be worked out (`k = 231 * 17 - 3922`), so that a wrong answer
mostly names a wrong constant, as people's do, and is not just badly worded.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.chains import Op
from radmoe_lab.tasks.code import terse
from radmoe_lab.tasks.draw import between, chance, favour
from radmoe_lab.tasks.meaning import meaning
from radmoe_lab.tasks.pipelines import Pipeline, draw_pipeline
from radmoe_lab.tasks.programs import write
from radmoe_lab.tasks.sentences import say
from radmoe_lab.tasks.steps import ending, marker, split

LONG = 0.75  # how often a constant hides behind a product of a three-digit and a two-digit number
_NAMES = ("k", "m", "p")
_PARTS = {"high": 1.0, "thinking": 0.3}  # how often a product is split
_ASKS = (
    "What does this function do? Answer in plain words.",
    "Explain in words what f returns.",
    "Say what this Python function does to a list of integers.",
    "Describe the steps of this function in a sentence or two.",
)


class Constant(NamedTuple):
    """A constant as the program writes it: `name = start * factor - less`, or `name = start - less` without a factor."""

    name: str
    start: int
    factor: int | None
    less: int

    @property
    def line(self) -> str:
        return f"{self.name} = {self.start}{f' * {self.factor}' if self.factor else ''} - {self.less}"

    @property
    def value(self) -> int:
        return self.start * (self.factor or 1) - self.less

    def work(self, *, parts: bool) -> str:
        """`k: 231*17=3927, 3927-3922=5`: the constant worked out, the product in parts or at once."""
        if self.factor is None:
            return f"{self.name}: {self.start}-{self.less}={self.value}"
        times = Op("*", self.factor)
        product = f"{self.start}{times}={split(self.start, times) if parts else ''}{self.start * self.factor}"
        return f"{self.name}: {product}, {self.start * self.factor}-{self.less}={self.value}"


Spec = tuple[Pipeline, list[Constant]]


def explain_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Spec]:
    pipeline = _draw(rng, test=test)
    names = dict(zip(dict.fromkeys(op for op in pipeline.ops if op.c), _NAMES, strict=False))
    constants = [_hide(rng, name, op.c) for op, name in names.items()]
    head, _, body = write(rng, pipeline, names).partition("\n")
    program = "\n".join([head, *("    " + constant.line for constant in constants), body])
    ask = favour(rng, _ASKS)
    code = f"```python\n{program}\n```"
    prompt = f"{ask}\n{code}" if chance(rng, 0.7) else f"{code}\n{ask}"
    answer = say(rng, pipeline)
    return Problem(problem_id, "explain", prompt, answer, kind="text", meaning=meaning), (pipeline, constants)


def explain_example(rng: Random, style: str) -> Example:
    problem, (pipeline, constants) = explain_problem(rng, "train", test=False)
    if style == "instruct":
        work = "".join(constant.work(parts=False) + ".\n" for constant in constants)
        return Example(problem, "", f"{work}\n{problem.answer}", style)
    if style == "low":
        values = ", ".join(f"{constant.name} is {constant.value}" for constant in constants)
        return Example(problem, f"{marker(rng)}{values}.", problem.answer, style)
    share = _PARTS.get(style, 0.0)
    lines = [marker(rng) + constant.work(parts=chance(rng, share)) + ending(rng) for constant in constants]
    return Example(problem, f"{''.join(lines)}{marker(rng)}{terse(pipeline)}.", problem.answer, style)


def _draw(rng: Random, *, test: bool) -> Pipeline:
    while True:
        pipeline = draw_pipeline(rng, test=test)
        if any(op.c for op in pipeline.ops):
            return pipeline


def _hide(rng: Random, name: str, value: int) -> Constant:
    """Write a constant as a product less something, or as a difference."""
    start = between(rng, 100, 499)
    factor = between(rng, 11, 49) if chance(rng, LONG) else None
    return Constant(name, start, factor, start * (factor or 1) - value)
