"""One problem under one readout: the similarities, the selection, and the experts that fired in the windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import ReadoutError, RolloutError
from radmoe.explorer.blocks import ragged, smallest
from radmoe.explorer.layout import by_basin, plane
from radmoe.explorer.wording import Correct, marker_words, rival, why, window_words
from radmoe.selection.kernels import knn
from radmoe.selection.kinds import needs_marker
from radmoe.selection.readout import Reading, Span, windows
from radmoe.selection.rule import Rule, Setting
from radmoe.selection.selector import choose, similarity
from radmoe.types import Kind, RolloutGroup, Selection, Trace, rows_at

FURTHER = "boundary@16"  # shown beside the readout of a kind and its marker-only form; that of texts is the same
_MAP = 30_000  # a coordinate of 1 on the map


@dataclass(frozen=True, eq=False)
class View:
    """A problem as one readout sees it: similarities S [n, n] of the located rollouts, and the selection from them."""

    setting: Setting
    S: NDArray[np.float32]
    reading: Reading
    selection: Selection
    spans: tuple[list[Span], ...]  # of every rollout [N]; empty where it is not located


def usual_settings(kind: Kind | None, stored_readouts: Sequence[str] | None = None) -> tuple[Setting, ...]:
    """The settings that a page shows for a kind of answer by default: the kind's own, its marker-only form, and FURTHER.

    If `stored_readouts` is given, the pool holds routing for these readouts alone, and they are shown instead.
    """
    own = Rule().settle(kind)
    names = stored_readouts if stored_readouts is not None else [own.readout, own.strict, kind and FURTHER]
    return tuple(Rule(readout=name).settle(kind) for name in dict.fromkeys(names) if name is not None)


def check_shown(readout: str) -> None:
    """Refuse a readout whose windows are not fixed, so that a page could not mark them in a text."""
    if "#shared" in readout or readout.startswith("rand"):
        raise ReadoutError(
            f"a page cannot show {readout}: its windows depend on other rollouts or on chance; name one with fixed windows, "
            "such as delimiter@16"
        )


def view_of(group: RolloutGroup, setting: Setting) -> View | None:
    """Compute the view. None if there is no kind whose marker could be looked for, or if no routing was kept at the
    windows.
    """
    check_shown(setting.readout)
    if setting.kind is None and needs_marker(setting.readout):
        return None
    spans = tuple(
        windows(setting.readout, rollout.token_ids, group.vocab, setting.kind, rollout.starts)
        for rollout in group.rollouts
    )
    if not all(map(_has_rows, group.rollouts, spans)):
        return None
    S, reading = similarity(group, setting)
    return View(setting, S, reading, choose(group, S, reading, setting), spans)


def _has_rows(rollout: Trace, spans: list[Span]) -> bool:
    """Whether the routing of these tokens was kept."""
    try:
        for start, stop in spans:
            rows_at(rollout.positions, start, min(stop, len(rollout)), "a rollout")
    except RolloutError:
        return False
    return True


def view_header(group: RolloutGroup, view: View, correct: Correct | None) -> dict[str, Any]:
    """The header of a view: its setting, the pick, and the reason in words."""
    pick = view.selection
    return {
        "readout": view.setting.readout,
        "kernel": view.setting.kernel,
        "k": pick.k,
        "pick": pick.index,
        "rival": rival(pick),
        "basin": len(pick.basin),
        "located": int(pick.located.sum()),
        "margin": None if np.isnan(pick.margin) else round(pick.margin, 6),
        "why": why(group, pick, correct),
        "marker": marker_words(view.setting.readout, view.setting.kind, group.vocab),
        "window": window_words(view.setting.readout),
    }


def view_arrays(group: RolloutGroup, view: View) -> dict[str, NDArray[Any]]:
    """The arrays of a view. Those of length n are in the order of `members`.

    members [n] the located rollouts, basin by basin, the pick first; root [n] the mode of each one's basin, as a place in
    `members`; density [n]; near [n, k] nearest neighbours, as places; similar [n (n-1) / 2] the upper triangle of S in
    255ths; map [n, 2] in 30,000ths; anchor_start and anchor_length [n]; span_begin, span_start, span_stop: the windows;
    rows [n] their tokens; usual [L, E] and more [L, E, n]: in how many of these tokens each expert was chosen is the sum
    of both.
    """
    runs, pick = np.flatnonzero(view.reading.located), view.selection
    order = np.arange(len(runs)) if pick.index is None else by_basin(pick, runs)
    members, n = runs[order], len(runs)
    anchors = [anchor for i in members if (anchor := view.reading.anchors[i]) is not None]
    spans = [view.spans[i] for i in members]
    starts, begins = ragged([[start for start, _ in own] for own in spans])
    rows = np.array([sum(stop - start for start, stop in own) for own in spans], np.int64)
    counts = _expert_counts(group, members, spans)
    usual = np.median(counts, axis=2).astype(np.int64) if n else np.zeros(counts.shape[:2], np.int64)
    more = counts - usual[:, :, None]
    arrays: dict[str, NDArray[Any]] = {
        "members": smallest(members),
        "anchor_start": np.array([anchor.start for anchor in anchors], np.uint32),
        "anchor_length": smallest(np.array([anchor.length for anchor in anchors], np.int64)),
        "span_begin": begins,
        "span_start": starts,
        "span_stop": ragged([[stop for _, stop in own] for own in spans])[0],
        "rows": smallest(rows),
        "usual": smallest(usual),
        "more": more.astype(np.int8 if np.abs(more).max(initial=0) < 2**7 else np.int32),
    }
    if pick.index is None:
        return arrays
    place = np.zeros(len(group), np.int64)
    place[members] = np.arange(n)
    S = view.S[np.ix_(order, order)]
    near = knn(view.S, view.setting.k)[order]
    return arrays | {
        "root": smallest(place[pick.roots[members]]),
        "density": pick.density[members].astype(np.float32),
        "near": smallest(place[runs[near]]),
        "similar": np.rint(255 * S[np.triu_indices(n, 1)]).astype(np.uint8),
        "map": np.rint(_MAP * np.clip(plane(S), -1, 1)).astype(np.int16),
    }


def _expert_counts(group: RolloutGroup, members: NDArray[np.intp], spans: list[list[Span]]) -> NDArray[np.int64]:
    """Count in how many tokens of its windows each rollout used each expert [L, E, n]."""
    layers, experts = group.shape.layers, group.shape.experts
    counts = np.zeros((len(members), layers * experts), np.int64)
    shift = np.arange(layers)[:, None] * experts
    for place, (i, own) in enumerate(zip(members, spans, strict=True)):
        for start, stop in own:
            ids, _ = group.rollouts[i].rows(start, stop, weights=False)
            counts[place] += np.bincount((ids + shift).ravel(), minlength=layers * experts)
    return counts.T.reshape(layers, experts, -1)
