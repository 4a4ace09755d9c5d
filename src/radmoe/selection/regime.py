"""Which regime a pool is in, told from routing and likelihoods alone, and how to select there.

The main sign is how often two rollouts of a problem agree. Rollouts of different problems do not; their mean similarity B
is what no agreement looks like. A rollout and its nearest neighbours do; their mean similarity D is what agreement looks
like. If the share q of all pairs agrees, their mean similarity is W = q D + (1 - q) B, so q = (W - B) / (D - B). With basins
that hold the shares p_i this is the sum of p_i^2. It needs no answer and no scale, which would differ from model to model.
It says how much rollouts agree in their routing, not whether they are right: nothing without labels can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.confidence import likelihood
from radmoe.selection.kernels import binary_jaccard, knn_density, weighted_jaccard
from radmoe.selection.rule import Rule, Setting
from radmoe.selection.selector import choose, similarity
from radmoe.types import Kind, RolloutGroup

Regime = Literal["settled", "contested", "scattered"]

SETTLED = 0.5  # of all pairs agree or more: there is one large basin
SCATTERED = 0.2  # of all pairs agree or fewer: there are more than five basins of equal size, or none
FEWEST = 8  # located rollouts that a problem needs to say anything
MANY = 32  # programs; what the routing of the whole answer is worth was shown for more than so many
NEAREST = 3  # neighbours whose similarity is that of agreement
SAMPLE = (32, 4)  # problems, and rollouts of each, that are compared across problems


@dataclass(frozen=True)
class Signs:
    """What one problem shows.

    alike       the mean similarity of two rollouts
    near        the mean similarity of a rollout to its NEAREST neighbours
    basins      the effective number of basins by mode seeking, 1 / sum of squared shares
    share       the share of the rollouts in the basin of the pick
    separation  the mean similarity within basins minus that between them; None where there is one basin
    spread      the standard deviation of the rollouts' mean log-probabilities; None where they were not kept
    together    the correlation of density and log-probability over the rollouts; None where it has none
    located     how many rollouts are located
    """

    alike: float
    near: float
    basins: float
    share: float
    separation: float | None
    spread: float | None
    together: float | None
    located: int

    def agreement(self, between: float) -> float:
        """The share of the pairs that agree, by the mean similarity `between` problems."""
        if self.near <= self.alike:
            return 1.0
        return float(np.clip((self.alike - between) / max(self.near - between, 1e-12), 0.0, 1.0))


class Survey(NamedTuple):
    """What the problems of one kind show, and the mean similarity of rollouts of different problems.

    `nucleus` says that the rollouts were sampled with a top-p below 1.
    """

    problems: tuple[Signs, ...]
    between: float
    kind: Kind
    nucleus: bool = False


@dataclass(frozen=True)
class Advice:
    """The regime of a pool, the preset to use there, and two sentences that say why with the numbers (medians).

    `fusion` replaces that of the preset; None leaves it as it is.
    """

    regime: Regime
    preset: str
    fusion: Literal["none"] | None
    problems: int
    agreement: float
    basins: float
    share: float
    separation: float | None
    spread: float | None
    together: float | None
    sentences: tuple[str, str]


def survey(groups: Iterable[RolloutGroup], kind: Kind, *, nucleus: bool = False) -> Survey:
    """Look at problems of one kind. Raises InputError where fewer than two have FEWEST located rollouts."""
    setting = Rule().settle(kind)
    problems: list[Signs] = []
    samples: list[NDArray[np.float32]] = []
    for group in groups:
        shown = _signs(group, setting)
        if shown is not None:
            problems.append(shown[0])
            if len(samples) < SAMPLE[0]:
                samples.append(shown[1])
    if len(problems) < 2:
        raise InputError(
            f"a regime shows in two problems or more with {FEWEST} located rollouts each, and {len(problems)} of kind "
            f"{kind} has as many: sample more rollouts with -n, or more problems"
        )
    owner = np.repeat(np.arange(len(samples)), [len(rows) for rows in samples])
    S = (binary_jaccard if setting.kernel == "binary" else weighted_jaccard)(np.concatenate(samples))
    return Survey(tuple(problems), float(S[owner[:, None] != owner[None, :]].mean()), kind, nucleus)


def _signs(group: RolloutGroup, setting: Setting) -> tuple[Signs, NDArray[np.float32]] | None:
    """What a problem shows, and some of its route vectors; None where fewer than FEWEST rollouts are located."""
    S, reading = similarity(group, setting)
    members = np.flatnonzero(reading.located)
    n = len(members)
    if n < FEWEST:
        return None
    selection = choose(group, S, reading, setting)
    roots = selection.roots[members]
    sizes = np.unique(roots, return_counts=True)[1] / n
    pairs = np.triu_indices(n, 1)
    similar, same = S[pairs].astype(np.float64), (roots[:, None] == roots[None, :])[pairs]
    mixed = same.any() and not same.all()
    spread = together = None
    columns = [column for i in members if (column := group.rollouts[int(i)].sampled_logprobs) is not None]
    if len(columns) == n:
        values = np.array([likelihood(column) for column in columns])
        density = selection.density[members]
        spread = float(values.std())
        if values.std() > 0 and density.std() > 0:
            together = float(np.corrcoef(values, density)[0, 1])
    shown = Signs(
        float(similar.mean()),
        float(knn_density(S, NEAREST).mean() / NEAREST),
        float(1 / (sizes**2).sum()),
        len(selection.basin) / n,
        float(similar[same].mean() - similar[~same].mean()) if mixed else None,
        spread,
        together,
        n,
    )
    return shown, reading.Z[: SAMPLE[1]]


def advise(survey: Survey) -> Advice:
    """The regime by the medians of the problems, and how to select there."""
    known, between, kind, nucleus = survey
    agreement = float(np.median([one.agreement(between) for one in known]))
    basins, share = (float(np.median([getattr(one, name) for one in known])) for name in ("basins", "share"))
    separation = _median([one.separation for one in known])
    spread, together = _median([one.spread for one in known]), _median([one.together for one in known])
    regime: Regime = "settled" if agreement >= SETTLED else "contested" if agreement > SCATTERED else "scattered"
    many = np.median([one.located for one in known]) > MANY
    whole = (
        kind == "code" and nucleus and many
    )  # the registered test of docs/confirmation.md, "At the paper's sampling"
    preset = "best" if whole or (regime != "settled" and spread is not None) else "paper"
    apart = "" if separation is None else f" that are {separation:.2f} more alike inside than across"
    more = ", or more, since different problems share the letters of their answers too" if kind == "choice" else ""
    first = (
        f"Two rollouts of a problem agree in their routing in about {agreement:.0%} of all pairs{more} (median of "
        f"{len(known)} problems, {basins:.1f} basins{apart}, {share:.0%} of the rollouts in the pick's): {_MEANING[regime]}."
    )
    second = _WHOLE if whole else _reason(regime, spread, together)
    sentences = first, f"{second} {_COUNT}" if kind in ("math", "choice") else second
    medians = agreement, basins, share, separation, spread, together
    return Advice(regime, preset, "none" if whole else None, len(known), *medians, sentences)


_MEANING: dict[Regime, str] = {
    "settled": "most rollouts agree, and agreement alone finds them",
    "contested": "several basins compete, and agreement alone may take any of them",
    "scattered": "no basin stands out, and where right rollouts are rare the densest one is usually wrong",
}

_WHOLE = (
    "Use preset best with --fusion none, the routing of the whole answer alone: of 64 programs sampled with a top-p below 1 it was "
    "1.9 points above likelihood and 2.2 above preset paper in the lab (docs/choosing.md)."
)
_COUNT = "Where answers may be read, a majority of them is as good or better."


def _reason(regime: Regime, spread: float | None, together: float | None) -> str:
    """Which preset to use, and why."""
    if spread is None:
        return "Use preset paper: the pool has no log-probabilities, and no other way to read routing alone is shown to be better."
    r = "do not vary" if together is None else f"correlate with density at r = {together:.2f}"
    likelihoods = f"log-probabilities per token (standard deviation {spread:.3f} within a problem) {r}"
    if regime == "settled":
        return f"Use preset paper, and fewer rollouts would do (radmoe capture --adaptive); {likelihoods}."
    return (
        "Use preset best, which adds the ranks of density and likelihood, or likelihood alone: in the lab neither is shown to be "
        f"better than the other (docs/choosing.md); {likelihoods}."
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.median(known)) if known else None
