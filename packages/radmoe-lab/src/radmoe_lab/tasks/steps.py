"""Written arithmetic: a chain worked out line by line, in the styles of the models.

`low` joins two additions in a line and writes only what a line gives; `medium` writes one operation per line, and its
result before it is reduced; `high` also splits each into hundreds, tens and ones, and checks the last step. `thinking`
is medium with some steps split; `instruct` is medium with few words.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from radmoe_lab.tasks.chains import Chain, Op
from radmoe_lab.tasks.draw import chance, favour

_MARKERS = ("So ", "Now ", "Then ", "Next, ", "Wait, ")
_CHECKS = ("Check: ", "Let me check: ", "Check again: ")
_PARTS = {"high": 1.0, "thinking": 0.3}  # how often a step is split
_BREAK = 0.12  # how often a paragraph ends


def reason(rng: Random, chain: Chain, style: str) -> str:
    """The chain worked out step by step. It always ends at the true result."""
    values = chain.values
    if style == "low":
        lines = list(_terse(chain))
    else:
        split = _PARTS.get(style, 0.0)
        lines = [step(a, op, parts=chance(rng, split)) for a, op in zip(values, chain.ops, strict=False)]
    if style == "instruct":
        return "\n".join(marker(rng) + line + "." if chance(rng, 0.3) else line + "." for line in lines)
    text = "".join(marker(rng) + line + ending(rng) for line in lines)
    if style == "high":
        text += favour(rng, _CHECKS) + step(values[-2], chain.ops[-1]) + "."
    return text.rstrip("\n")


def step(a: int, op: Op, *, parts: bool = False) -> str:
    """One operation: `655*7=4585, leaving 585`, or `655*7=4200+350+35=4585, leaving 585` in parts."""
    whole, value = op.whole(a), op(a)
    middle = split(a, op) if parts else ""
    return f"{a}{op}={middle}{whole}" + (f", leaving {value}" if whole != value else "")


def ending(rng: Random) -> str:
    return ".\n\n" if chance(rng, _BREAK) else ".\n"


def marker(rng: Random) -> str:
    return favour(rng, _MARKERS)


def _terse(chain: Chain) -> Iterator[str]:
    """Lines such as `655+120-33 gives 742`: additions and subtractions go in pairs, products stand alone."""
    values, ops, at = chain.values, chain.ops, 0
    while at < len(ops):
        end = at + 1 + (at + 1 < len(ops) and "*" not in (ops[at].sign, ops[at + 1].sign))
        yield f"{values[at]}{''.join(map(str, ops[at:end]))} gives {values[end]}"
        at = end


def split(a: int, op: Op) -> str:
    """The operation by hundreds, tens and ones, such as `600+40+15=`; empty where there is only one place."""
    places = len(str(a if op.sign == "*" else max(a, op.n)))
    if places == 1:
        return ""
    terms = []
    for place in range(places - 1, -1, -1):
        unit = 10**place
        digit, other = a // unit % 10, op.n // unit % 10
        terms.append(unit * (digit * op.n if op.sign == "*" else digit + other if op.sign == "+" else digit - other))
    return str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:]) + "="
