"""`math-1` to `math-4` and `choice`: a chain to work out, the result given as a number or as an option."""

from __future__ import annotations

from random import Random

from radmoe.lab.tasks.base import Example, Problem
from radmoe.lab.tasks.chains import ASKS, Chain, describe, draw_chain
from radmoe.lab.tasks.draw import between, favour, pick, shuffled
from radmoe.lab.tasks.steps import reason

STEPS = {"math-1": (2, 3), "math-2": (4, 5), "math-3": (6, 7), "math-4": (8, 9), "choice": (4, 6)}
HARD = {"math-1": 0.05, "math-2": 0.12, "math-3": 0.16, "math-4": 0.2, "choice": 0.22}  # share of long products
LETTERS = "ABCD"

_BOXES = (
    "The answer is $\\boxed{{{}}}$",
    "The final answer is $\\boxed{{{}}}$",
    "**Answer:** $\\boxed{{{}}}$",
    "Therefore the result is \\boxed{{{}}}",
    "So we get $$\\boxed{{{}}}$$",
    "The result:\n\\boxed{{{}}}",
)
_TAILS = (
    ". So the number that is left after the last step is {}.",
    ", since the last of the steps leaves {} modulo 1000.",
    ". This is the number that is left after all of the steps.",
    ", which is what all the steps together give modulo 1000.",
)
_OPTION_TAILS = (
    ". So option {letter} is right, as the last step leaves {value}.",
    ", since option {letter} is the hundreds digit of {value}, the last number.",
    ". This is the option that has the first digit of the last number.",
)
_OPTION_ASKS = (
    "Which is the hundreds digit of the final number modulo 1000? Give the letter in \\boxed{}.",
    "Modulo 1000, which is the hundreds digit of the final number? Put its letter in \\boxed{}.",
    "Choose the hundreds digit of the final number modulo 1000 and answer with its letter in \\boxed{}.",
)
_FOUND = (
    "The hundreds digit of {value} is {digit}({letter}).",
    "So the hundreds digit is {digit}({letter}).",
    "In {value} the hundreds digit is {digit}({letter}).",
)


def math_problem(rng: Random, task: str, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    chain = draw_chain(rng, STEPS[task], HARD[task], test=test)
    prompt = f"{describe(rng, chain)} {favour(rng, ASKS)}"
    return Problem(problem_id, task, prompt, str(chain.result)), chain


def math_example(rng: Random, task: str, style: str) -> Example:
    problem, chain = math_problem(rng, task, "train", test=False)
    said = favour(rng, _BOXES).format(problem.answer) + favour(rng, _TAILS).format(problem.answer)
    return _example(problem, reason(rng, chain, style), said, style)


def choice_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    """Four hundreds digits, one of them the result's. The digit stands before its letter: reading finds it in order."""
    chain = draw_chain(rng, STEPS["choice"], HARD["choice"], test=test)
    options = shuffled(rng, [_hundreds(chain.result), *_slips(rng, chain)])
    lines = "".join(f"\n{digit}({letter})" for letter, digit in zip(LETTERS, options, strict=True))
    prompt = f"{describe(rng, chain)}{lines}\n{favour(rng, _OPTION_ASKS)}"
    return Problem(problem_id, "choice", prompt, LETTERS[options.index(_hundreds(chain.result))]), chain


def choice_example(rng: Random, style: str) -> Example:
    problem, chain = choice_problem(rng, "train", test=False)
    value, letter = chain.result, problem.answer
    found = favour(rng, _FOUND).format(value=value, digit=_hundreds(value), letter=letter)
    tail = favour(rng, _OPTION_TAILS).format(letter=letter, value=value)
    said = favour(rng, _BOXES).format(letter) + tail
    return _example(problem, f"{reason(rng, chain, style)}\n{found}", said, style)


def _example(problem: Problem, thought: str, said: str, style: str) -> Example:
    if style == "instruct":
        return Example(problem, "", f"{thought}\n\n{said}", style)
    return Example(problem, thought, said, style)


def _slips(rng: Random, chain: Chain) -> list[int]:
    """Three wrong hundreds digits: where a slip leads to, the others at random."""
    wrong: list[int] = []
    while len(wrong) < 3:
        digit = pick(rng, (_skipped, _carried, _any))(rng, chain)
        if digit != _hundreds(chain.result) and digit not in wrong:
            wrong.append(digit)
    return wrong


def _skipped(rng: Random, chain: Chain) -> int:
    skip = pick(rng, range(len(chain.ops)))
    return _hundreds(Chain(chain.start, chain.ops[:skip] + chain.ops[skip + 1 :]).result)


def _carried(rng: Random, chain: Chain) -> int:
    """A carry too many or too few."""
    return (_hundreds(chain.result) + pick(rng, (1, -1))) % 10


def _any(rng: Random, chain: Chain) -> int:
    return between(rng, 0, 9)


def _hundreds(value: int) -> int:
    return value // 100
