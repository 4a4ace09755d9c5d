"""The task `long-math`: a chain of 10 to 34 operations, worked out in parts that are checked and, where a check fails, done again.

How much a rollout checks is drawn with it, so rollouts of one problem differ in length by a factor of three. A worked example may
contain a slip. It is always found, by a second look at the line or by the check of its part, so that nobody learns to answer
with a wrong number.
"""

from __future__ import annotations

from random import Random

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.chains import ASKS, MODULUS, Chain, Op, describe, draw_chain
from radmoe_lab.tasks.draw import between, chance, favour, pick
from radmoe_lab.tasks.maths import BOXES, TAILS
from radmoe_lab.tasks.steps import ending, marker, step

STEPS = (10, 34)
HARD = 0.2  # share of products by a two-digit number
PART = (4, 7)  # operations that are checked together

# How much a rollout checks: how often it checks a part, and whether it goes through the whole chain again at the end.
CARE = {"quick": (0.0, False), "usual": (0.5, False), "careful": (1.0, True)}
CARES = {
    "low": ("quick",),
    "medium": ("quick", "usual", "usual"),
    "high": ("careful",),
    "thinking": ("quick", "usual", "usual", "careful"),
}
_SPLIT = 0.25  # how often a step is written by hundreds, tens and ones
_SLIP = 0.015  # how often a step goes wrong
_SEEN = 0.5  # how often a slip is seen at once; a part that is checked shows the others

_PLANS = ("Plan: parts of {}.\n", "Let me go in parts of {}.\n", "Steps in parts of {}.\n")
_CHECKS = ("Check", "Let me check", "Once more")
_GOOD = (", good.\n", ", as before.\n", ", right.\n")
_SEES = ("Wait, no: ", "Wait, that is not right: ")
_AGAIN = ("That is not {}. So this part again from {}.\n", "Not {}. Again from {}.\n")
_WHOLE = ("All steps once more", "Now the whole chain again")


def long_math_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Chain]:
    chain = draw_chain(rng, STEPS, HARD, test=test)
    prompt = f"{describe(rng, chain)} {favour(rng, ASKS)}"
    return Problem(problem_id, "long-math", prompt, str(chain.result), kind="math", integer=True), chain


def long_math_example(rng: Random, style: str) -> Example:
    problem, chain = long_math_problem(rng, "train", test=False)
    final = favour(rng, BOXES).format(problem.answer) + favour(rng, TAILS).format(problem.answer)
    return Example(problem, reason(rng, chain, pick(rng, CARES[style])), final, style)


def reason(rng: Random, chain: Chain, care: str) -> str:
    """The chain worked out. It always ends at the true result."""
    checks, whole = CARE[care]
    size = between(rng, *PART)
    text, value = favour(rng, _PLANS).format(size), chain.start
    for first in range(0, len(chain.ops), size):
        part = Chain(value, chain.ops[first : first + size])
        text += f"\nPart {first // size + 1}.\n" + _part(rng, part, checked=chance(rng, checks))
        value = part.result
    if whole:
        text += f"\n{favour(rng, _WHOLE)}: {_values(chain)}{favour(rng, _GOOD)}"
    return text.rstrip("\n")


def _part(rng: Random, part: Chain, *, checked: bool) -> str:
    """The steps of a part, and its check. Where a slip went unseen, the check finds it, and the part is done again."""
    text, value, wrong = "", part.start, False
    for op in part.ops:
        line = step(value, op, parts=chance(rng, _SPLIT))
        if chance(rng, _SLIP) and not wrong:
            seen = not checked or chance(rng, _SEEN)
            slip = _slip(rng, value, op)
            text += f"{marker(rng)}{value}{op}={slip}{_leaving(slip)}" + ending(rng)
            if not seen:
                value, wrong = slip % MODULUS, True
                continue
            text += favour(rng, _SEES) + step(value, op, parts=True) + ending(rng)
        else:
            text += marker(rng) + line + ending(rng)
        value = op(value)
    if checked:
        text += f"{favour(rng, _CHECKS)}: {_values(part)}"
        if value == part.result:
            return text + favour(rng, _GOOD)
        text += ".\n" + favour(rng, _AGAIN).format(value, part.start)
        text += "".join(marker(rng) + step(a, op) + ending(rng) for a, op in zip(part.values, part.ops, strict=False))
    return text


def _values(part: Chain) -> str:
    """Where each operation leads, such as `655*7=4585:585, +120=705`."""
    wholes = [op.whole(value) for op, value in zip(part.ops, part.values, strict=False)]
    led = (
        f"{op}={whole}" + (f":{whole % MODULUS}" if whole % MODULUS != whole else "")
        for op, whole in zip(part.ops, wholes, strict=True)
    )
    return f"{part.start}{', '.join(led)}"


def _slip(rng: Random, value: int, op: Op) -> int:
    """A wrong result of an operation: one digit is off."""
    right = op.whole(value)
    place = pick(rng, (1, 10, 100))
    return right + pick(rng, (-1, 1)) * place if right >= 2 * place else right + place


def _leaving(whole: int) -> str:
    return "" if 0 <= whole < MODULUS else f", leaving {whole % MODULUS}"
