"""Why a trajectory was chosen, in a sentence that stands in the record, on the screen and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from radmoe.selection.kernels import ranks
from radmoe.selection.rule import Setting
from radmoe.types import Selection
from radmoe_agent.methods import Floats, PatchScores

if TYPE_CHECKING:
    from radmoe_agent.patches import Considered


def why(
    pick: int | None,
    candidates: Sequence[Considered],
    scores: PatchScores | None,
    selection: Selection | None,
    setting: Setting,
) -> str:
    """The reason for a pick. `scores` are of the candidates that can be submitted, where there are two or more."""
    usable = [one for one in candidates if one.problem is None]
    if pick is None:
        return "no trajectory can be submitted: the patch is empty"
    if scores is None:
        return "no other trajectory can be submitted"
    chosen = next(one for one in usable if one.run == pick)
    if not np.isfinite(scores.total).any():
        lacking = f"have {setting.readout}" if "rad" in scores.parts else "have log-probabilities"
        return f"fewer than two of {len(usable)} trajectories {lacking}: it is the first that can be submitted"
    if len(chosen.same) == len(usable):
        return f"all {len(usable)} trajectories that can be submitted left this patch"
    best = {usable[int(i)].same for i in np.flatnonzero(scores.total == np.nanmax(scores.total))}
    first = f"; it is the first of {len(best)} patches that are equally good" if len(best) > 1 else ""
    return f"{_reason(chosen, usable, scores, selection)}{first}; {_shared(chosen, len(usable))}"


def _reason(chosen: Considered, usable: Sequence[Considered], scores: PatchScores, selection: Selection | None) -> str:
    others = [one for one in usable if one.run not in chosen.same]
    names = list(scores.parts)
    if len(names) > 1:
        place = [one.run for one in usable].index(chosen.run)
        own = ", ".join(f"{name} {_place(column, place)}" for name, column in scores.parts.items())
        scored = int(np.isfinite(scores.total).sum())
        return f"its places by {' and '.join(names)} add up best among {scored} ({own})"
    if names == ["likelihood"]:
        best = max((one.likelihood for one in others if one.likelihood is not None), default=None)
        against = "" if best is None else f", against {best:.3f} for the best of another patch"
        return f"the model found its tokens most likely: log-probability {chosen.likelihood:.3f} on average{against}"
    if names == ["rad"] and selection is not None:
        compared = int(selection.located.sum())
        line = f"its routing is the densest of {compared}: {chosen.density:.3f} alike to its {selection.k} nearest, on average"
        if np.isnan(selection.margin):
            return line
        return f"{line}, against {selection.density[selection.located].max() - selection.margin:.3f} for the best of another basin"
    best = max((one.overlap for one in others if one.overlap is not None), default=None)
    against = "" if best is None else f", against {best:.2f} for the best of another patch"
    return f"its patch has most in common with the others: an overlap of {chosen.overlap:.2f} on average{against}"


def _place(column: Floats, place: int) -> str:
    """The place of one among the scored, from 1 for the highest."""
    scored = np.isfinite(column)
    down = ranks(-column[scored])
    return f"{down[int(scored[:place].sum())]:g}"


def _shared(chosen: Considered, usable: int) -> str:
    if len(chosen.same) == 1:
        return f"none of the other {usable - 1} that can be submitted left the same patch"
    return f"{len(chosen.same)} of the {usable} that can be submitted left this patch"
