"""`math-1` to `math-4` and `choice`: a chain to work out, the result given as a number or as an option."""

from __future__ import annotations

from random import Random

from radmoe.lab.tasks.base import Example, Problem
from radmoe.lab.tasks.chains import ASKS, MODULUS, Chain, describe, draw_chain
from radmoe.lab.tasks.draw import chance, favour, pick, shuffled
from radmoe.lab.tasks.steps import reason

STEPS = {"math-1": (2, 3), "math-2": (4, 5), "math-3": (6, 7), "math-4": (8, 9), "choice": (3, 5)}
HARD = {"math-1": 0.05, "math-2": 0.12, "math-3": 0.16, "math-4": 0.2, "choice": 0.15}  # share of long products
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
    ", since option {letter} is the number {value} that all the steps give.",
    ". This is the option that has the number after the last step.",
)
_OPTION_ASKS = (
    "Which of these is the final number modulo 1000? Give the letter in \\boxed{}.",
    "Modulo 1000, which option is right? Put its letter in \\boxed{}.",
    "Choose the final number modulo 1000 and answer with its letter in \\boxed{}.",
)
_FOUND = ("That is {value} ({letter}).", "So it is {value} ({letter}).", "This matches {value} ({letter}).")


def math_problem(rng: Random, task: str, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    chain = draw_chain(rng, STEPS[task], HARD[task], test=test)
    prompt = f"{describe(rng, chain)} {favour(rng, ASKS)}"
    return Problem(problem_id, task, prompt, str(chain.result)), chain


def math_example(rng: Random, task: str, style: str) -> Example:
    problem, chain = math_problem(rng, task, "train", test=False)
    said = favour(rng, _BOXES).format(problem.answer) + favour(rng, _TAILS).format(problem.answer)
    return _example(problem, reason(rng, chain, style), said, style)


def choice_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    chain = draw_chain(rng, STEPS["choice"], HARD["choice"], test=test)
    options = shuffled(rng, [chain.result, *_slips(rng, chain)])
    lines = "".join(f"\n{value} ({letter})" for letter, value in zip(LETTERS, options, strict=True))
    prompt = f"{describe(rng, chain)}{lines}\n{favour(rng, _OPTION_ASKS)}"
    return Problem(problem_id, "choice", prompt, LETTERS[options.index(chain.result)]), chain


def choice_example(rng: Random, style: str) -> Example:
    problem, chain = choice_problem(rng, "train", test=False)
    thought = f"{reason(rng, chain, style)}\n{favour(rng, _FOUND).format(value=chain.result, letter=problem.answer)}"
    tail = favour(rng, _OPTION_TAILS).format(letter=problem.answer, value=chain.result)
    return _example(problem, thought, favour(rng, _BOXES).format(problem.answer) + tail, style)


def _example(problem: Problem, thought: str, said: str, style: str) -> Example:
    if style == "instruct":
        return Example(problem, "", f"{thought}\n\n{said}", style)
    return Example(problem, thought, said, style)


def _slips(rng: Random, chain: Chain) -> list[int]:
    """Three wrong results that a slip leads to."""
    wrong: list[int] = []
    while len(wrong) < 3:
        value = pick(rng, (_skipped, _carried, _off, _swapped))(rng, chain) % MODULUS
        if value != chain.result and value not in wrong:
            wrong.append(value)
    return wrong


def _skipped(rng: Random, chain: Chain) -> int:
    skip = pick(rng, range(len(chain.ops)))
    return Chain(chain.start, chain.ops[:skip] + chain.ops[skip + 1 :]).result


def _carried(rng: Random, chain: Chain) -> int:
    """One step a ten or a hundred off, the rest done right."""
    at = pick(rng, range(len(chain.ops)))
    value = chain.values[at + 1] + pick(rng, (10, -10, 100, -100))
    return Chain(value % MODULUS, chain.ops[at + 1 :]).result


def _off(rng: Random, chain: Chain) -> int:
    return chain.result + pick(rng, (1, 10, 100)) * (1 if chance(rng, 0.5) else -1)


def _swapped(rng: Random, chain: Chain) -> int:
    digits = f"{chain.result:03d}"
    at = pick(rng, (0, 1))
    return int(digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :])
