"""The checks as functions from arrays to findings. `run.py` decides which rollouts each check gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Observation
from radmoe.engines.http.answers import unrouted
from radmoe.engines.kept_rows import format_layers
from radmoe.selection.selector import select
from radmoe.types import WEIGHT_SUM_TOLERANCE, RolloutGroup, RouterShape

OK, FAILED, WARNING, SKIPPED = "ok", "failed", "warning", "skipped"
_AROUND = 4  # positions before and after the one where tokens part that the alignment check compares
_REPEATED = 0.2  # the share of neighbouring rows that may be equal in every layer: tokens differ, so hardly any are
_AGREES = 0.85  # the share of sets that must agree with a replay: 0.98 to 1 do in bfloat16, 0.3 with shuffled layers


@dataclass(frozen=True)
class Finding:
    """The outcome of one check (ok, failed, warning or skipped), what was seen, and what to do about it."""

    check: str
    status: str
    seen: str
    todo: str = ""


def rows(seen: Observation) -> Finding:
    """There must be P+T-1 rows, one per input position: the last token was never an input."""
    assert seen.ids is not None
    wanted, there = len(seen.prompt) + len(seen.tokens) - 1 - seen.first, len(seen.ids)
    counts = f"{there} rows from position {seen.first} on, prompt {len(seen.prompt)}, {len(seen.tokens)} tokens"
    if there == wanted:
        return Finding("rows", OK, counts)
    return Finding("rows", FAILED, f"{counts}: P+T-1 asks for {wanted}")


def zeros(ids: NDArray[Any]) -> Finding:
    """No row of ids [R, L, K] may be all zero in a layer: that is routing which was never written."""
    empty = (ids == 0).all(-1) if ids.shape[2] > 1 else np.zeros(ids.shape[:2], bool)
    whole = [int(layer) for layer in np.flatnonzero(empty.all(0))]
    if not empty.any():
        return Finding("zeros", OK, f"no zero row among {empty.size:,} (row, layer) pairs")
    where = f", layers {format_layers(whole)} throughout" if whole and len(whole) < ids.shape[1] else ""
    return Finding("zeros", FAILED, f"{int(empty.sum()):,} of {empty.size:,} (row, layer) pairs are all zero{where}")


def constant(ids: NDArray[Any]) -> Finding:
    """No layer may have the same row at every position."""
    same = (ids == ids[:1]).all((0, 2)) if len(ids) > 1 else np.zeros(ids.shape[1], bool)
    if not same.any():
        return Finding("constant", OK, "every layer's rows change with the tokens")
    layers = format_layers([int(layer) for layer in np.flatnonzero(same)])
    return Finding("constant", FAILED, f"layers {layers} have the same row for all {len(ids)} positions")


def experts_differ(ids: NDArray[Any]) -> Finding:
    """A token must go to K different experts. Rows of zeros are left to another check."""
    twice = unrouted(ids) & ~(ids == 0).all(-1)
    if not twice.any():
        return Finding("experts differ", OK, f"{ids.shape[2]} different experts in every row and layer")
    return Finding(
        "experts differ", FAILED, f"{int(twice.sum()):,} of {twice.size:,} (row, layer) pairs name an expert twice"
    )


def in_range(ids: NDArray[Any], shape: RouterShape) -> Finding:
    """Expert ids must lie in [0, E)."""
    low, high = int(ids.min()), int(ids.max())
    if low >= 0 and high < shape.experts:
        return Finding("range", OK, f"expert ids {low} to {high} of {shape.experts}")
    return Finding("range", FAILED, f"expert ids {low} to {high}, the model has {shape.experts} experts")


def repeated_rows(seen: Observation) -> Finding:
    """Neighbouring rows may not be equal in every layer where their tokens differ."""
    ids = seen.ids
    assert ids is not None
    sequence = np.array(seen.sequence)[seen.first : seen.first + len(ids)]
    if len(sequence) < len(ids):
        return Finding("repeated rows", SKIPPED, "there are more rows than positions")
    ordered = np.sort(ids, -1)
    routed = ~(ids == 0).all((1, 2))

    def share(apart: int) -> float:
        counted = (sequence[apart:] != sequence[:-apart]) & routed[apart:] & routed[:-apart]
        equal = (ordered[apart:] == ordered[:-apart]).all((1, 2))[counted]
        return float(equal.mean()) if equal.size else 0.0

    near, far = share(1), share(3)
    shares = f"{near:.0%} of rows repeat their neighbour's, {far:.0%} the third next"
    return Finding("repeated rows", FAILED if near > max(_REPEATED, 2 * far) else OK, shares)


def weights(seen: Observation) -> Finding:
    """Weights must sum to one per row and layer, and none may be negative or missing."""
    mass = seen.weights
    if mass is None:
        return Finding("weights", SKIPPED, "this engine returns expert ids without weights")
    sums = mass.sum(-1, dtype=np.float32)
    if not np.isfinite(sums).all():
        return Finding("weights", FAILED, f"{int((~np.isfinite(sums)).sum())} sums of weights are no numbers")
    low, high, least = float(sums.min()), float(sums.max()), float(mass.min())
    if max(abs(low - 1), abs(high - 1)) > WEIGHT_SUM_TOLERANCE or least < 0:
        return Finding("weights", FAILED, f"weights sum to {low:.3g} up to {high:.3g}, the smallest is {least:.3g}")
    if mass.shape[-1] > 1 and float(np.ptp(mass)) < 1e-3:
        return Finding("weights", WARNING, f"every weight is {least:.3g}: the experts' ids alone were kept")
    return Finding("weights", OK, f"sums {low:.3f} to {high:.3f}")


def logprobs(seen: Observation) -> Finding:
    """Logprobs must be there, and no sampled token's may be above the largest of its step."""
    if seen.sampled is None or seen.top is None:
        return Finding("logprobs", WARNING, "none came: no RAD+DC for these rollouts")
    if seen.top.shape[1] < 2 or np.isnan(seen.top).any() or seen.top.max() > 1e-3:
        return Finding("logprobs", FAILED, f"{seen.top.shape[1]} per token, the largest {float(seen.top.max()):.3g}")
    if (seen.sampled > seen.top[:, 0] + 1e-3).any():
        return Finding("logprobs", FAILED, "a sampled token's is above the largest of its step")
    return Finding("logprobs", OK, f"{seen.top.shape[1]} per token")


def agreeing(a: Observation, b: Observation, at: int) -> float | None:
    """The share of layers whose expert sets agree at input position `at`; None where either has no routing."""
    sets = []
    for seen in (a, b):
        assert seen.ids is not None
        row = at - seen.first
        if not 0 <= row < len(seen.ids):
            return None
        sets.append(np.sort(seen.ids[row], -1))
    routed = ~unrouted(sets[0][None])[0] & ~unrouted(sets[1][None])[0]
    return float((sets[0] == sets[1]).all(-1)[routed].mean()) if routed.any() else None


def alignment(runs: Sequence[Observation]) -> Finding:
    """Where two sequences part at input position j, routing must agree before j and differ at j.

    Attention is causal, so row p depends on tokens 0..p. Rows that part later or earlier than the tokens are
    rows of other positions: this finds an off-by-one without any reference. All pairs count together, since one row of
    a small router may have the same experts for two tokens.
    """
    by_shift: dict[int, list[float]] = {shift: [] for shift in range(-_AROUND, _AROUND + 1)}
    for i, a in enumerate(runs):
        for b in runs[i + 1 :]:
            pairs = enumerate(zip(a.sequence, b.sequence, strict=False))
            parted = next((at for at, (x, y) in pairs if x != y), None)
            if parted is None or agreeing(a, b, parted) is None:
                continue
            for shift, shares in by_shift.items():
                if (share := agreeing(a, b, parted + shift)) is not None:
                    shares.append(share)
    agree = {shift: float(np.mean(shares)) for shift, shares in by_shift.items() if shares}
    if not agree:
        return Finding("alignment", SKIPPED, "no two rollouts part where both have routing")
    parts = next((shift for shift, share in agree.items() if share < _AGREES), None)
    if parts is None:
        return Finding("alignment", FAILED, "routing does not change where the tokens do")
    if parts == 0:
        line = f"routing parts where the tokens do: {agree[0]:.0%} of expert sets are shared there"
        return Finding("alignment", OK, line + (f", {agree[-1]:.0%} one position before" if -1 in agree else ""))
    if parts == min(agree):
        return Finding("alignment", FAILED, f"routing differs {-parts} position(s) before the tokens do, or more")
    late = "later" if parts > 0 else "earlier"
    line = f"routing parts {abs(parts)} position(s) {late} than the tokens: row p holds position p{-parts:+d}"
    return Finding("alignment", FAILED, line)


def repeatable(a: Observation, b: Observation) -> Finding:
    """Two runs at temperature 0 must give the same tokens and routing."""
    if a.tokens != b.tokens:
        at = next((t for t, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)) if x != y), 0)
        return Finding("repeatable", FAILED, f"at temperature 0 two runs part at token {at}")
    shares = [share for at in range(len(a.sequence)) if (share := agreeing(a, b, at)) is not None]
    if not shares:
        return Finding("repeatable", SKIPPED, "the tokens repeat; there is no routing to compare")
    share = float(np.mean(shares))
    return Finding(
        "repeatable", OK if share >= _AGREES else FAILED, f"the tokens repeat, {share:.1%} of expert sets with them"
    )


def prefix_cache(a: Observation, b: Observation) -> Finding:
    """The second run of a prompt, which is in the prefix cache by then, must have the same rows."""
    assert a.ids is not None
    assert b.ids is not None
    if a.tokens == b.tokens and a.ids.shape != b.ids.shape:
        return Finding("prefix cache", FAILED, f"{len(a.ids)} rows at first, {len(b.ids)} when the prompt was cached")
    lost = int(unrouted(b.ids).sum()) - int(unrouted(a.ids).sum())
    if lost > 0:
        return Finding("prefix cache", FAILED, f"{lost:,} (row, layer) pairs are lost when the prompt is cached")
    shares = [share for at in range(len(a.prompt)) if (share := agreeing(a, b, at)) is not None]
    if shares and float(np.mean(shares)) < _AGREES:
        return Finding(
            "prefix cache", FAILED, f"only {np.mean(shares):.1%} of expert sets stay when the prompt is cached"
        )
    return Finding("prefix cache", OK, f"{len(b.ids)} rows both times")


def noise(own: RolloutGroup, again: RolloutGroup) -> Finding:
    """How far a second pass over the same tokens moves the differences of their densities, which are what picks depend on."""
    first, second = (select(group, readout="all", k=len(own), kernel="weighted").density for group in (own, again))
    moved, least = float(np.ptp(second - first)), float(np.ptp(first))
    return Finding(
        "noise",
        OK,
        f"a second pass moves differences of densities by up to {moved:.4f} (they differ by up to {least:.4f}, {len(own)} rollouts): "
        f"--noise {moved:.4f} tells select and serve",
    )


def against(seen: Sequence[Observation], replayed: Sequence[NDArray[Any]]) -> Finding:
    """Expert sets must be those [S, L, K] of a replay of the same tokens; shifts of up to two positions are tried too."""
    by_shift: dict[int, NDArray[np.float64]] = {}
    for shift in (0, 1, -1, 2, -2):
        layers = []
        for one, ids in zip(seen, replayed, strict=True):
            assert one.ids is not None
            at = np.arange(len(one.ids))
            source = at + one.first - shift
            fits = (source >= 0) & (source < len(ids)) & ~unrouted(one.ids).any(1)
            layers.append((np.sort(one.ids[at[fits]], -1) == np.sort(ids[source[fits]], -1)).all(-1))
        joined = np.concatenate(layers)
        by_shift[shift] = joined.mean(0) if len(joined) else np.zeros(joined.shape[1])
    best = max(by_shift, key=lambda shift: float(by_shift[shift].mean()))
    share, layer = float(by_shift[0].mean()), int(by_shift[0].argmin())
    if best and float(by_shift[best].mean()) > share + 0.2:
        line = f"row p holds position p{-best:+d}: {by_shift[best].mean():.1%} of sets agree there, {share:.1%} at p"
        return Finding("reference", FAILED, line)
    lowest = f"layer {layer} the least, {by_shift[0][layer]:.1%}"
    return Finding(
        "reference", OK if share >= _AGREES else FAILED, f"{share:.1%} of expert sets equal a replay's, {lowest}"
    )
