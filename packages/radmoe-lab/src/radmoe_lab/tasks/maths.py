"""The tasks `math-1` to `math-4` and `choice`: a chain to work out, whose result is given as a number or an option."""

from __future__ import annotations

from random import Random

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.chains import ASKS, Chain, describe, draw_chain
from radmoe_lab.tasks.draw import favour
from radmoe_lab.tasks.steps import reason

STEPS = {"math-1": (2, 3), "math-2": (4, 5), "math-3": (6, 7), "math-4": (8, 9), "choice": (4, 6)}
HARD = {"math-1": 0.05, "math-2": 0.12, "math-3": 0.16, "math-4": 0.2, "choice": 0.22}  # share of long products
LETTERS = "ABCD"

BOXES = (
    "The answer is $\\boxed{{{}}}$",
    "The final answer is $\\boxed{{{}}}$",
    "**Answer:** $\\boxed{{{}}}$",
    "Therefore the result is \\boxed{{{}}}",
    "So we get $$\\boxed{{{}}}$$",
    "The result:\n\\boxed{{{}}}",
)
TAILS = (
    ". So the number that is left after the last step is {}.",
    ", since the last of the steps leaves {} modulo 1000.",
    ". This is the number that is left after all of the steps.",
    ", which is what all the steps together give modulo 1000.",
)
_OPTION_TAILS = (
    ". So option {letter} is right, as the last step leaves {value}.",
    ", since {value}, the last number, lies in the range of option {letter}.",
    ". This is the option that has the range of the last number.",
)
_RANGES = "\n".join(f"{letter}) {low} to {low + 249}" for letter, low in zip(LETTERS, range(0, 1000, 250), strict=True))
_OPTION_ASKS = (
    "Where is the final number modulo 1000? Give the letter in \\boxed{}.",
    "Modulo 1000, which range holds the final number? Put its letter in \\boxed{}.",
    "Choose the range of the final number modulo 1000 and answer with its letter in \\boxed{}.",
)
_CONCLUSIONS = ("So {value} is in {letter}.", "That puts {value} in {letter}.", "The number {value} is in {letter}.")


def math_problem(rng: Random, task: str, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    chain = draw_chain(rng, STEPS[task], HARD[task], test=test)
    prompt = f"{describe(rng, chain)} {favour(rng, ASKS)}"
    return Problem(problem_id, task, prompt, str(chain.result), kind="math", integer=True), chain


def math_example(rng: Random, task: str, style: str) -> Example:
    problem, chain = math_problem(rng, task, "train", test=False)
    final = favour(rng, BOXES).format(problem.answer) + favour(rng, TAILS).format(problem.answer)
    return _example(problem, reason(rng, chain, style), final, style)


def choice_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    """A problem that asks in which quarter of 0 to 999 the result lies.

    The options are always the same, because models this small do not learn to look one up.
    """
    chain = draw_chain(rng, STEPS["choice"], HARD["choice"], test=test)
    prompt = f"{describe(rng, chain)}\n{_RANGES}\n{favour(rng, _OPTION_ASKS)}"
    return Problem(problem_id, "choice", prompt, LETTERS[chain.result // 250], kind="choice"), chain


def choice_example(rng: Random, style: str) -> Example:
    problem, chain = choice_problem(rng, "train", test=False)
    fields = {"letter": problem.answer, "value": chain.result}
    thought = f"{reason(rng, chain, style)}\n{favour(rng, _CONCLUSIONS).format(**fields)}"
    final = favour(rng, BOXES).format(problem.answer) + favour(rng, _OPTION_TAILS).format(**fields)
    return _example(problem, thought, final, style)


def _example(problem: Problem, thought: str, final: str, style: str) -> Example:
    if style == "instruct":
        return Example(problem, "", f"{thought}\n\n{final}", style)
    return Example(problem, thought, final, style)
