"""Claims of the paper, and verdicts on them that follow from rules written down before the numbers.

A rule compares a quantity with a threshold: a smallest effect of interest, a margin around zero, or a bound that the paper names.
The whole 95% interval on the claim's side supports the claim, and the whole interval on the other side refutes it: one-sided p
below `ALPHA`, from the same draws. Where the interval holds the threshold, the claim is at the margin of its rule if the interval
reaches no further from the threshold than the smallest effect, and undecided else. A claim that the pools cannot express gets no verdict.
Corrections for the number of claims (Holm, Benjamini-Hochberg) stand beside the verdict and say whether it still holds after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError
from radmoe.evaluation.stats import benjamini_hochberg, holm
from radmoe_studies.resample import Quantity, interval

LEVEL = 0.95  # of every interval
ALPHA = (1 - LEVEL) / 2  # of each side
FEWEST = 10  # problems: resampling fewer says little about others, so that nothing is decided
POWER = 2.0  # times the problems at which half of all samples would decide: four in five do

# Smallest effects of interest. An accuracy must differ by a point, and by two where the paper's own effect is four or more.
POINT, POINTS = 0.01, 0.02
PURITY = 0.05  # of 0 (chance) to 1: the width of the paper's own intervals is about twice as much
CORRELATION = 0.05

# Why rules are no longer those that were first written (`Claim.changed`).
EFFECT = "it named no smallest effect"
PEOPLED = "instruct configurations were pooled with the thinking-class ones, which the paper has here"


def changed(*reasons: str, on: str = "2026-11-18") -> str:
    """When and why a rule was changed, as a sentence."""
    return f"Changed on {on}, because {'; and because '.join(reasons)}."


class ClaimVerdict(StrEnum):
    SUPPORTS = "supports"
    REFUTES = "refutes"
    UNDECIDED = "undecided"
    AT_THE_MARGIN = "at the margin of its rule"
    NOT_EXPRESSIBLE = "not expressible here"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be tested.

    `paper` is the paper's own number, `where` its place (a label or section), and `rule` says in words which quantity is
    tested, over which configurations, by which test, against which threshold and in which direction. It is written before
    the numbers. `changed` says when and why a rule is no longer the one that was first written.
    """

    key: str
    sentence: str
    paper: str
    where: str
    rule: str
    changed: str = ""


@dataclass(frozen=True)
class ClaimDecision:
    """What a study found about a claim: an estimate with its interval, and the p-values of its rule.

    `edges` are the thresholds of the rule, in the unit of the estimate, and `resolution` is the smallest effect that the rule is about.
    `n` counts problems. `unit` says what the estimate is ("points", "share", "r", "ratio"). `holm` and `bh` are p-values for and
    against the claim after a correction for the number of claims, None before it. `inexpressible` says why pools cannot express it.
    """

    claim: Claim
    estimate: float
    low: float
    high: float
    unit: str
    n: int
    p_for: float
    p_against: float
    edges: tuple[float, ...]
    resolution: float
    reading: str = ""
    holm: tuple[float, float] | None = None
    bh: tuple[float, float] | None = None
    inexpressible: str = ""

    @property
    def verdict(self) -> ClaimVerdict:
        if self.inexpressible:
            return ClaimVerdict.NOT_EXPRESSIBLE
        if self.p_for < ALPHA:
            return ClaimVerdict.SUPPORTS
        if self.p_against < ALPHA:
            return ClaimVerdict.REFUTES
        return ClaimVerdict.AT_THE_MARGIN if self._close else ClaimVerdict.UNDECIDED

    @property
    def _close(self) -> bool:
        """Whether the interval holds a threshold and reaches no further from it than the smallest effect."""
        reach = self.resolution + 1e-12
        return self.n >= FEWEST and any(
            self.low <= edge <= self.high and self.high - edge <= reach and edge - self.low <= reach
            for edge in self.edges
        )

    @property
    def needed(self) -> int | None:
        """How many problems would decide the claim in four of five samples, if the estimate stays; None if no number would.

        An interval's half-width h shrinks with the root of the number of problems, so it ends at the nearest threshold, a
        distance d away, with n (h / d)^2 of them. Half of all samples of that size decide, and four in five of twice as many.
        """
        distance = min(abs(self.estimate - edge) for edge in self.edges)
        half = (self.high - self.low) / 2
        if distance <= 1e-12:
            return None
        return max(math.ceil(POWER * self.n * (half / distance) ** 2), self.n + 1, FEWEST)

    def outlasts(self, adjusted: tuple[float, float] | None) -> bool:
        """Whether the verdict still stands with p-values that were corrected for the number of claims."""
        sides = (ClaimVerdict.SUPPORTS, ClaimVerdict.REFUTES)
        return adjusted is not None and self.verdict in sides and adjusted[sides.index(self.verdict)] < ALPHA


def corrected(decisions: Sequence[ClaimDecision]) -> list[ClaimDecision]:
    """The decisions with p-values corrected for their number, separately for and against. Inexpressible claims do not count."""
    tested = [i for i, decision in enumerate(decisions) if not decision.inexpressible]
    out = list(decisions)
    if not tested:
        return out
    toward, against = [out[i].p_for for i in tested], [out[i].p_against for i in tested]
    for name, correction in (("holm", holm), ("bh", benjamini_hochberg)):
        for i, a, b in zip(tested, correction(toward), correction(against), strict=True):
            out[i] = replace(out[i], **{name: (float(a), float(b))})  # type: ignore[arg-type]
    return out


def above(
    claim: Claim, quantity: Quantity, *, unit: str, threshold: float, resolution: float | None = None
) -> ClaimDecision:
    """The claim that a quantity is above a threshold, by its bootstrap distribution.

    The threshold is a smallest effect, or a bound that is none (then `resolution` says how close to it is at the margin).
    Zero is refused: a difference that is always exactly 0 would be "above" it as soon as one draw is.
    """
    draws = _draws(quantity.draws)
    if threshold == 0:
        raise InputError(f"claim {claim.key!r}: a rule names the smallest effect that it asks for, and 0 is none")
    at_most = (np.sum(draws <= threshold) + 1) / (len(draws) + 1)
    at_least = (np.sum(draws >= threshold) + 1) / (len(draws) + 1)
    close = abs(threshold) if resolution is None else resolution
    return _decision(claim, quantity, draws, unit, float(at_most), float(at_least), (threshold,), close)


def below(
    claim: Claim, quantity: Quantity, *, unit: str, threshold: float, resolution: float | None = None
) -> ClaimDecision:
    """The claim that a quantity is below a threshold."""
    made = above(claim, quantity, unit=unit, threshold=threshold, resolution=resolution)
    return replace(made, p_for=made.p_against, p_against=made.p_for)


def within(claim: Claim, quantity: Quantity, *, unit: str, margin: float, place: float = 0.0) -> ClaimDecision:
    """The claim that a quantity is `place` up to a margin: two one-sided tests. "Not significant" would not be enough.

    An interval that lies wholly beyond the margin, on either side, is evidence against it.
    """
    draws = _draws(quantity.draws)
    size, edges = len(draws) + 1, (place - margin, place + margin)
    high, low = (np.sum(draws >= edges[1]) + 1) / size, (np.sum(draws <= edges[0]) + 1) / size
    outside = 1.0
    if quantity.estimate > edges[1]:
        outside = (np.sum(draws <= edges[1]) + 1) / size
    elif quantity.estimate < edges[0]:
        outside = (np.sum(draws >= edges[0]) + 1) / size
    return _decision(claim, quantity, draws, unit, float(max(high, low)), float(outside), edges, margin)


def all_within(claim: Claim, quantities: Sequence[Quantity], *, unit: str, margin: float) -> ClaimDecision:
    """The claim that many quantities, which share their resamples, are all zero up to a margin.

    For it, each must be: the weakest of the equivalence tests decides. Against it, the one that lies furthest beyond the
    margin, in standard errors, is compared with the largest deviation of any quantity in each resample (max-T), so that
    many quantities cost no more than their number really does. The decision shows the quantity furthest from zero.
    """
    parts = [within(claim, quantity, unit=unit, margin=margin) for quantity in quantities]
    if not parts:
        raise InputError(f"claim {claim.key!r} has no parts")
    values = np.array([quantity.estimate for quantity in quantities])
    table = np.column_stack([quantity.draws for quantity in quantities])
    errors = np.maximum(table.std(0), np.finfo(np.float64).tiny)
    beyond = float(((np.abs(values) - margin) / errors).max())
    chance = (np.sum((np.abs(table - values) / errors).max(1) >= beyond) + 1) / (len(table) + 1)
    furthest = parts[int(np.abs(values).argmax())]
    p_for = max(part.p_for for part in parts)
    enough = min(quantity.n for quantity in quantities) >= FEWEST
    return replace(furthest, p_for=p_for, p_against=float(chance) if beyond > 0 and enough else 1.0)


def all_of(claim: Claim, parts: Sequence[ClaimDecision]) -> ClaimDecision:
    """A claim that holds only if all its parts do (an order of several quantities): the weakest part decides for it,
    and any part, corrected for their number, decides against it."""
    if not parts:
        raise InputError(f"claim {claim.key!r} has no parts")
    weakest = max(parts, key=lambda part: part.p_for)
    against = min(1.0, min(part.p_against for part in parts) * len(parts))
    return replace(weakest, claim=claim, p_against=against)


Rule = Callable[[Claim, Quantity], ClaimDecision]


def is_above(threshold: float) -> Rule:
    return lambda claim, quantity: above(claim, quantity, unit="points", threshold=threshold)


def is_below(threshold: float) -> Rule:
    return lambda claim, quantity: below(claim, quantity, unit="points", threshold=threshold)


def is_near(place: float, margin: float, unit: str = "points") -> Rule:
    """The rule that a quantity equals `place` up to a margin."""
    return lambda claim, quantity: within(claim, quantity, unit=unit, margin=margin, place=place)


class Decided(NamedTuple):
    """Decisions of a study, and notes on the claims that could not be tested."""

    decisions: tuple[ClaimDecision, ...] = ()
    notes: tuple[str, ...] = ()

    def with_claim(self, claim: Claim, parts: Iterable[tuple[str, Quantity | None, Rule]]) -> Decided:
        """Adds the decision on a claim that holds only if every part does; a part has a name, a mean and a rule."""
        parts = list(parts)
        lacking = [name for name, part, _ in parts if part is None]
        if lacking:
            note = f"{claim.key} was not tested: fewer than {FEWEST} problems for {'; '.join(lacking)}."
            return self._replace(notes=(*self.notes, note))
        decisions = {name: rule(claim, part) for name, part, rule in parts if part is not None}
        made = all_of(claim, list(decisions.values()))
        if len(decisions) > 1:
            weakest = max(decisions, key=lambda name: decisions[name].p_for)
            made = replace(made, reading=f"The number is that of the weakest part, {weakest}.")
        return self._replace(decisions=(*self.decisions, made))


def _draws(draws: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(draws, np.float64)
    if values.ndim != 1 or len(values) < 100 or not np.isfinite(values).all():
        raise InputError(f"a rule needs 100 or more finite draws in a row, got shape {values.shape}")
    return values


def _decision(
    claim: Claim,
    quantity: Quantity,
    draws: NDArray[np.float64],
    unit: str,
    p_for: float,
    p_against: float,
    edges: tuple[float, ...],
    resolution: float,
) -> ClaimDecision:
    low, high = interval(draws, LEVEL)
    if quantity.n < FEWEST:
        p_for = p_against = 1.0
    return ClaimDecision(
        claim, float(quantity.estimate), low, high, unit, quantity.n, p_for, p_against, edges, resolution
    )
