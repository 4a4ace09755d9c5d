"""Claims of the paper, and verdicts on them that follow from rules written down before the numbers.

A rule gives two one-sided p-values: `p_for` is small where the data could hardly look so if the claim were false,
`p_against` where they could hardly look so if it were true. Below `ALPHA`, after Holm's correction over all claims that
are decided together, the first supports the claim and the second refutes it; else nobody can tell at this size. Fewer
than `FEWEST` problems decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError
from radmoe.stats import holm
from radmoe.studies.resample import interval

ALPHA = 0.05
LEVEL = 0.95  # of every interval
FEWEST = 10  # problems: resampling fewer says little about others, so that nothing is decided


class Verdict(StrEnum):
    SUPPORTS = "supports"
    REFUTES = "refutes"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be tested.

    `paper` is the paper's own number, `where` its place (a label or section), and `rule` says in words which quantity is
    tested, by which test, against which threshold and in which direction. It is written before the numbers.
    """

    key: str
    sentence: str
    paper: str
    where: str
    rule: str


@dataclass(frozen=True)
class Decision:
    """What a study found about a claim: an estimate with its interval, and the p-values of its rule.

    `adjusted_for` and `adjusted_against` are p-values after Holm's correction, None before it. `unit` says what the
    estimate is ("points", "share", "r", "ratio").
    """

    claim: Claim
    estimate: float
    low: float
    high: float
    unit: str
    n: int
    p_for: float
    p_against: float
    reading: str = ""
    adjusted_for: float | None = None
    adjusted_against: float | None = None

    @property
    def verdict(self) -> Verdict:
        """By the adjusted p-values where there are some."""
        p_for = self.p_for if self.adjusted_for is None else self.adjusted_for
        p_against = self.p_against if self.adjusted_against is None else self.adjusted_against
        if p_for < ALPHA:
            return Verdict.SUPPORTS
        return Verdict.REFUTES if p_against < ALPHA else Verdict.CANNOT_TELL


def corrected(decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions with p-values corrected for their number, for and against apart."""
    if not decisions:
        return []
    toward = holm([decision.p_for for decision in decisions])
    against = holm([decision.p_against for decision in decisions])
    return [
        replace(decision, adjusted_for=float(a), adjusted_against=float(b))
        for decision, a, b in zip(decisions, toward, against, strict=True)
    ]


def above(claim: Claim, estimate: float, draws: ArrayLike, *, n: int, unit: str, threshold: float = 0.0) -> Decision:
    """The claim that a quantity is above a threshold, by its bootstrap distribution."""
    draws = _draws(draws)
    at_most = (np.sum(draws <= threshold) + 1) / (len(draws) + 1)
    at_least = (np.sum(draws >= threshold) + 1) / (len(draws) + 1)
    return _decision(claim, estimate, draws, n, unit, float(at_most), float(at_least))


def below(claim: Claim, estimate: float, draws: ArrayLike, *, n: int, unit: str, threshold: float = 0.0) -> Decision:
    """The claim that a quantity is below a threshold."""
    made = above(claim, estimate, draws, n=n, unit=unit, threshold=threshold)
    return replace(made, p_for=made.p_against, p_against=made.p_for)


def within(claim: Claim, estimate: float, draws: ArrayLike, *, n: int, unit: str, margin: float) -> Decision:
    """The claim that a quantity is zero up to a margin: two one-sided tests. "Not significant" would not be enough."""
    draws = _draws(draws)
    size = len(draws) + 1
    high, low = (np.sum(draws >= margin) + 1) / size, (np.sum(draws <= -margin) + 1) / size
    outside = 1.0 if abs(estimate) <= margin else (np.sum(np.abs(draws) <= margin) + 1) / size
    return _decision(claim, estimate, draws, n, unit, float(max(high, low)), float(outside))


def all_within(claim: Claim, estimates: ArrayLike, draws: ArrayLike, *, n: int, unit: str, margin: float) -> Decision:
    """The claim that many quantities [m] are all zero up to a margin, by draws [R, m] that share their resamples.

    For it, each must be: the weakest of the equivalence tests decides. Against it, the one that lies furthest beyond the
    margin, in standard errors, is compared with the largest deviation of any quantity in each resample (max-T), so that
    many quantities cost no more than their number really does. The decision shows the quantity furthest from zero.
    """
    values, table = np.asarray(estimates, np.float64), np.asarray(draws, np.float64)
    parts = [
        within(claim, float(value), column, n=n, unit=unit, margin=margin)
        for value, column in zip(values, table.T, strict=True)
    ]
    if not parts:
        raise InputError(f"claim {claim.key!r} has no parts")
    errors = np.maximum(table.std(0), np.finfo(np.float64).tiny)
    beyond = float(((np.abs(values) - margin) / errors).max())
    chance = (np.sum((np.abs(table - values) / errors).max(1) >= beyond) + 1) / (len(table) + 1)
    furthest = parts[int(np.abs(values).argmax())]
    p_for = max(part.p_for for part in parts)
    return replace(furthest, p_for=p_for, p_against=float(chance) if beyond > 0 and n >= FEWEST else 1.0)


def all_of(claim: Claim, parts: Sequence[Decision], **shown: float) -> Decision:
    """A claim that holds only if all its parts do (an order of several quantities): the weakest part decides for it,
    and any part, corrected for their number, decides against it."""
    if not parts:
        raise InputError(f"claim {claim.key!r} has no parts")
    weakest = max(parts, key=lambda part: part.p_for)
    against = min(1.0, min(part.p_against for part in parts) * len(parts))
    return replace(weakest, claim=claim, p_against=against, **shown)  # type: ignore[arg-type]


def _draws(draws: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(draws, np.float64)
    if values.ndim != 1 or len(values) < 100 or not np.isfinite(values).all():
        raise InputError(f"a rule needs 100 or more finite draws in a row, got shape {values.shape}")
    return values


def _decision(
    claim: Claim, estimate: float, draws: NDArray[np.float64], n: int, unit: str, p_for: float, p_against: float
) -> Decision:
    low, high = interval(draws, LEVEL)
    if n < FEWEST:
        p_for = p_against = 1.0
    return Decision(claim, float(estimate), low, high, unit, n, p_for, p_against)
