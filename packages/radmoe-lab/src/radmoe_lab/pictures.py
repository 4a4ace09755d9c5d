"""Draws one problem as a picture of which rollouts route alike.

On the left is the consensus matrix ordered by basin; on the right are the rollouts on a plane, as far apart as their
routing differs. Answers decide the colour and the shape of a point, never its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.explorer.layout import by_basin, plane
from radmoe.pool.schema import disk_errors
from radmoe.selection.kinds import infer_kind
from radmoe.selection.rule import Rule
from radmoe.selection.selector import choose, similarity
from radmoe.system.printing import shortened, visible

if TYPE_CHECKING:
    from radmoe.grading.labels import Label
    from radmoe.types import Kind, RolloutGroup, Selection

RIGHT, NONE, PICK, INK = "#1b9e77", "#9aa0a6", "#111111", "#3c4043"
_NAMED = 4  # answers named in the legend


def draw_problem(
    group: RolloutGroup,
    labels: Sequence[Label] | None,
    path: Path,
    *,
    kind: Kind | None = None,
    title: str | None = None,
) -> Path:
    """Write the picture of a problem as a PNG. `labels`, in the rollouts' order, say which points are right.

    `kind` is the group's own unless given; where neither says it, it is inferred from the markers in the rollouts.
    """
    from matplotlib.figure import Figure

    kind = kind or group.kind or infer_kind([group], f"problem {group.problem_id!r}")
    runs = np.empty(0, np.intp)  # no marker anywhere: nothing is located
    if kind is not None:
        setting = Rule().settle(kind)
        S, reading = similarity(group, setting)
        selection = choose(group, S, reading, setting)
        runs = np.flatnonzero(reading.located)
    figure = Figure(figsize=(10, 4.8), dpi=110, layout="constrained")
    heading = shortened(title or group.problem_id, 120)
    figure.suptitle(heading, fontsize=12, color=INK, x=0.02, ha="left", parse_math=False)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    if len(runs) < 2:
        for axes in (left, right):
            axes.set_axis_off()
        left.text(0, 0.5, f"{len(runs)} of {len(group.rollouts)} rollouts have the anchor: nothing to compare")
    else:
        _matrix(left, S, selection, runs, figure)
        _map(right, S, selection, runs, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(path):
        figure.savefig(path)
    return path


def _matrix(axes: Any, S: NDArray[np.float32], selection: Selection, runs: NDArray[np.intp], figure: Any) -> None:
    order = by_basin(selection, runs)
    shown = S[np.ix_(order, order)].astype(np.float64)
    np.fill_diagonal(shown, np.nan)  # every rollout agrees with itself: that would only stretch the scale
    image = axes.imshow(shown, cmap="viridis", interpolation="nearest")
    axes.set_facecolor("#f1f3f4")
    roots = selection.roots[runs][order]
    for edge in np.flatnonzero(np.diff(roots)) + 0.5:
        axes.axhline(edge, color="white", lw=0.8)
        axes.axvline(edge, color="white", lw=0.8)
    axes.set_title("routing agreement, by basin", fontsize=10, color=INK, loc="left")
    axes.set_xticks([])
    few = len(runs) <= 20
    axes.set_yticks(range(len(runs)) if few else [], [str(run) for run in runs[order]] if few else [], fontsize=7)
    axes.set_ylabel("rollout (RAD's pick first)", fontsize=8, color=INK)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).ax.tick_params(labelsize=7)


def _map(
    axes: Any, S: NDArray[np.float32], selection: Selection, runs: NDArray[np.intp], labels: Sequence[Label] | None
) -> None:
    at = plane(S)
    groups = point_classes(runs, labels)
    for one in groups:
        name = visible(one.name)
        axes.scatter(
            *at[one.members].T, s=46, color=one.colour, marker=one.marker, alpha=0.75, linewidths=0, label=name
        )
    if selection.index is not None:
        pick = int(np.flatnonzero(runs == selection.index)[0])
        axes.scatter(*at[pick], s=190, facecolors="none", edgecolors=PICK, linewidths=1.6, label="RAD's pick", zorder=3)
    axes.set_title("rollouts, near where routing agrees", fontsize=10, color=INK, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.12)
    for side in axes.spines.values():
        side.set_color("#dadce0")
    legend = axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for text in legend.get_texts():
        text.set_parse_math(False)  # answers often hold one dollar sign


class PointClass(NamedTuple):
    """Points of a map that look alike. The marker alone tells right ("o") from wrong ("D") and from no answer ("s")."""

    name: str
    colour: tuple[float, ...] | str
    marker: str
    members: list[int]


def point_classes(runs: NDArray[np.intp], labels: Sequence[Label] | None) -> list[PointClass]:
    """The classes of points: right and wrong answers, and frequent short answers by their text."""
    from matplotlib import colormaps

    if labels is None:
        return [PointClass("rollout", RIGHT, "o", list(range(len(runs))))]
    members: dict[tuple[str, str | None], list[int]] = {}
    counts = Counter(labels[run].answer for run in runs)
    for place, run in enumerate(runs):
        label = labels[run]
        named = label.answer is not None and len(label.answer) <= 12 and counts[label.answer] > 1
        verdict = "right" if label.correct else "no answer" if label.answer is None else "wrong"
        members.setdefault((verdict, label.answer if named else None), []).append(place)
    ordered = sorted(members.items(), key=lambda item: (item[0][0] != "right", item[0][1] is None, -len(item[1])))
    wrong = iter(colormaps["autumn"](np.linspace(0.05, 0.75, _NAMED)))
    shown: list[PointClass] = []
    others: list[int] = []
    for (verdict, answer), places in ordered:
        if verdict == "right":
            shown.append(PointClass(f"right{f': {answer}' if answer else ''} ({len(places)})", RIGHT, "o", places))
        elif verdict == "wrong" and answer is not None and (colour := next(wrong, None)) is not None:
            shown.append(PointClass(f"wrong: {answer} ({len(places)})", tuple(colour), "D", places))
        elif verdict == "wrong":
            others += places
        else:
            shown.append(PointClass(f"no answer ({len(places)})", NONE, "s", places))
    if others:
        shown.append(PointClass(f"wrong, others ({len(others)})", "#b07aa1", "D", others))
    return shown
