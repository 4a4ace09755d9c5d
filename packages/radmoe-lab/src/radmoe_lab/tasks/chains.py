"""Chains of arithmetic modulo 1000: what they are, and how a prompt words them."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from radmoe_lab.tasks.draw import between, chance, favour, is_test, pick

MODULUS = 1000

_START = ("Start with {}.", "Take the number {}.", "Begin with {}.", "Let the number be {}.", "You have {}.")
_PHRASES = {
    "+": ("add {}", "increase it by {}", "add {} to it", "raise it by {}", "go up by {}", "put {} on top"),
    "-": ("subtract {}", "take away {}", "decrease it by {}", "lower it by {}", "go down by {}", "remove {}"),
    "*": ("multiply by {}", "multiply it by {}", "take {} times that", "scale it by {}", "make it {} times as large"),
}
_LINKS = ("Then {}.", "Next, {}.", "Now {}.", "After that, {}.", "")
ASKS = (
    "Give the final number modulo 1000 in \\boxed{}.",
    "What is the final number modulo 1000? Answer in \\boxed{}.",
    "Work modulo 1000 and put the final number in \\boxed{}.",
    "Which number is left modulo 1000? Put it in \\boxed{}.",
    "Everything is modulo 1000. Write the final number in \\boxed{}.",
)


class Op(NamedTuple):
    """One operation: `sign` is +, - or *."""

    sign: str
    n: int

    def whole(self, a: int) -> int:
        """The result before it is reduced modulo 1000."""
        return a + self.n if self.sign == "+" else a - self.n if self.sign == "-" else a * self.n

    def __call__(self, a: int) -> int:
        return self.whole(a) % MODULUS

    def __str__(self) -> str:
        return f"{self.sign}{self.n}"


class Chain(NamedTuple):
    """A starting number and what is done to it."""

    start: int
    ops: tuple[Op, ...]

    @property
    def values(self) -> list[int]:
        """The number before each operation, and after the last."""
        out = [self.start]
        for op in self.ops:
            out.append(op(out[-1]))
        return out

    @property
    def result(self) -> int:
        return self.values[-1]

    @property
    def canonical(self) -> str:
        """A text that is equal for two chains exactly if they are the same problem, however worded."""
        return f"chain {self.start} {' '.join(map(str, self.ops))}"


def draw_chain(rng: Random, steps: tuple[int, int], hard: float, *, test: bool) -> Chain:
    """Draw a chain of `steps` (least, most) operations from the test problems, or from the training problems.

    `hard` is the share of products by a two-digit number.
    """
    while True:
        chain = Chain(between(rng, 0, 999), tuple(_draw_op(rng, hard) for _ in range(between(rng, *steps))))
        if is_test(chain.canonical) == test:
            return chain


def _draw_op(rng: Random, hard: float) -> Op:
    if chance(rng, hard):
        return Op("*", between(rng, 11, 49))
    u = rng.random()
    if u < 0.25:
        return Op("*", between(rng, 2, 9))
    return Op("+" if u < 0.65 else "-", between(rng, 10, 999))


def describe(rng: Random, chain: Chain) -> str:
    """The chain in words, without the question."""
    sentences = [pick(rng, _START).format(chain.start)]
    for op in chain.ops:
        phrase = pick(rng, _PHRASES[op.sign]).format(op.n)
        link = favour(rng, _LINKS)
        sentences.append(link.format(phrase) if link else phrase.capitalize() + ".")
    return ("\n" if chance(rng, 0.1) else " ").join(sentences)
