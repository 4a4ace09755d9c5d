"""The tasks `code` and `code-wide`: write a short Python function from a description and two examples.

In `code` right programs resemble each other, as those of one author do; in `code-wide` they have little in common.

In a share of the problems one operation is left out of the description and must be found from the examples,
so that wrong answers are wrong functions more often than broken programs.
"""

from __future__ import annotations

from random import Random

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.draw import chance, favour, pick
from radmoe_lab.tasks.pipelines import FAMILY, KEEP, Pipeline, PipelineOp, draw_pipeline, draw_tests, examples, rivals
from radmoe_lab.tasks.programs import write
from radmoe_lab.tasks.wide import write_wide

HIDDEN = 0.6  # how often a problem leaves one operation to the examples, where they can show it
Spec = tuple[Pipeline, list[list[int]]]

_WORDS = {
    "even": ("keep the even numbers", "keep only even numbers", "drop the odd numbers"),
    "odd": ("keep the odd numbers", "keep only odd numbers", "drop the even numbers"),
    "positive": ("keep the positive numbers", "keep only positive numbers", "drop what is not positive"),
    "above": ("keep the numbers above {c}", "keep those greater than {c}", "drop all up to {c}"),
    "add": ("add {c} to each", "increase each by {c}", "raise every number by {c}"),
    "times": ("multiply each by {c}", "scale each by {c}", "take {c} times every number"),
    "square": ("square each", "square every number", "multiply each by itself"),
    "reverse": ("reverse the list", "turn the list around", "put them in reverse order"),
    "ascending": ("sort ascending", "sort from small to large", "sort them upwards"),
    "descending": ("sort descending", "sort from large to small", "sort them downwards"),
    "unique": ("drop duplicates", "keep each value once", "remove repeated numbers"),
    "first": ("take the first {c}", "keep the first {c}", "cut after {c} numbers"),
    "last": ("take the last {c}", "keep the last {c}", "keep {c} from the end"),
    "running": ("take running sums", "replace each by the sum so far", "build the running sum"),
    "sum": ("return the sum", "return their sum", "add them all up"),
    "max": ("return the largest", "return the maximum", "give back the biggest"),
    "min": ("return the smallest", "return the minimum", "give back the least"),
    "len": ("return how many there are", "return the length", "count them"),
    "list": ("return the list", "return them", "give back the list"),
}
HINTS = {
    "filter": "keep only some numbers",
    "map": "change each number",
    "order": "put them in another order",
    "cut": "shorten the list",
    "end": "return one number",
}
OPENERS = (
    "Write a Python function f(xs) for a list of integers: {}.",
    "Write f(xs) in Python. For a list of integers, {}.",
    "Complete def f(xs): {}.",
    "I need a Python function f(xs) that takes a list of integers. Steps: {}.",
)
EXAMPLE_HEADINGS = ("Examples:", "For example:", "It should give:")
ASKS = ("Answer with a Python code block.", "Put the code in a fenced block.", "Give the function in a code block.")
_WIDE_ASKS = ("Answer with a Python code block in your own style.", "Write the code block the way you like.")
MARKERS = ("So ", "Now ", "Then ", "Next, ", "Wait, ")
FENCES = ("Here is the function:\n\n", "", "The code:\n\n")
TAILS = (
    "This does all the steps in order.",
    "It follows the steps one by one.",
    "The function gives the values in the examples.",
    "This is the whole function.",
)


def code_problem(rng: Random, problem_id: str, *, test: bool, wide: bool = False) -> tuple[Problem, Spec]:
    """Draw a problem of `code`, or of `code-wide` if `wide`."""
    pipeline, inputs, hidden = _draw(rng, test=test)
    phrases = [HINTS[FAMILY[op]] if i == hidden else describe_op(rng, op) for i, op in enumerate(pipeline.ops)]
    joined = ", then ".join(phrases[:-1]) + pick(rng, (", and ", ", then ", ", and finally ")) + phrases[-1]
    lines = [f"f({xs}) == {pipeline(xs)}" for xs in inputs]
    opener, heading = favour(rng, OPENERS).format(joined), favour(rng, EXAMPLE_HEADINGS)
    text = "\n".join([opener, heading, *lines, favour(rng, _WIDE_ASKS if wide else ASKS)])
    tests = draw_tests(rng, pipeline, thorough=test)
    task, program = ("code-wide", write_wide(rng, pipeline)) if wide else ("code", write(rng, pipeline))
    return Problem(problem_id, task, text, program, tests, kind="code"), (pipeline, inputs)


def code_example(rng: Random, style: str, *, wide: bool = False) -> Example:
    problem, (pipeline, inputs) = code_problem(rng, "train", test=False, wide=wide)
    fence = f"```python\n{problem.answer}\n```\n{favour(rng, TAILS)}"
    if style == "instruct":
        return Example(problem, "", f"Steps: {terse(pipeline)}.\n\n{fence}", style)
    thought = f"{favour(rng, MARKERS)}{terse(pipeline)}." if style == "low" else _reason(rng, pipeline, inputs, style)
    return Example(problem, thought, favour(rng, FENCES) + fence, style)


def _draw(rng: Random, *, test: bool) -> tuple[Pipeline, list[list[int]], int | None]:
    """A pipeline, its example inputs, and the index of the operation that the description leaves out (None: none)."""
    while True:
        pipeline = draw_pipeline(rng, test=test)
        slots = [i for i, op in enumerate(pipeline.ops) if op != KEEP and FAMILY[op] in HINTS]
        if slots and chance(rng, HIDDEN):
            slot = pick(rng, slots)
            inputs = examples(rng, pipeline, rivals(pipeline, slot))
            if inputs:
                return pipeline, inputs, slot
        inputs = examples(rng, pipeline, ())
        if inputs:
            return pipeline, inputs, None


def describe_op(rng: Random, op: PipelineOp) -> str:
    return favour(rng, _WORDS[op.name]).format(c=op.c)


def plain(op: PipelineOp) -> str:
    return _WORDS[op.name][0].format(c=op.c)


def terse(pipeline: Pipeline) -> str:
    return ", ".join(map(plain, pipeline.ops))


def _reason(rng: Random, pipeline: Pipeline, inputs: list[list[int]], style: str) -> str:
    """Write the reasoning, one operation per line. In the style `high`, and sometimes in `thinking`, each line shows
    what the first example becomes.
    """
    traced = style == "high" or (style == "thinking" and chance(rng, 0.3))
    xs = inputs[0]
    results = [*pipeline.states(xs), pipeline(xs)]
    lines = [f"The list is {xs}.\n"] if traced else []
    for i, (op, result) in enumerate(zip(pipeline.ops, results, strict=True)):
        trace = f": {result}" if traced else ""
        stop = ".\n\n" if i < len(pipeline.ops) - 1 and chance(rng, 0.12) else ".\n"
        lines.append(f"{favour(rng, MARKERS)}{plain(op)}{trace}{stop}")
    if style == "high":
        lines.append(f"Check: f({inputs[1]}) is {pipeline(inputs[1])}.")
    return "".join(lines).rstrip("\n")
