"""Draws the charts of studies: one style, direct labels, colours that colour-blind readers tell apart, SVG and PNG.

All data come from a `Chart`; only positions in the drawing are computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from radmoe.system.printing import visible
from radmoe_studies.report.figures import Chart, Plot, Series

# Okabe and Ito's colours, in an order in which neighbours differ in lightness too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#666666", "#000000")
DASHES = ("-", "--", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#8a8a8a"
WIDTH, HEIGHT = 4.6, 3.4  # inches of one plot
TITLE, TICKS, NOTE = (
    52,
    44,
    84,
)  # characters of a figure's title, of names below bars and of the note, that fit one plot
_NAMES = 3  # names of series in a line
_COLUMN = 0.12  # of a plot's width: lines that end so near to the right are named where the last one ends
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}  # behind words that stand on a plot
_FONT: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "figure.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "radmoe",  # the same chart, the same file
    "text.parse_math": False,
}


def draw(chart: Chart, directory: Path, *, made_by: str = "") -> list[Path]:
    """Write a chart as SVG and PNG into a directory, with what made it in their metadata; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_FONT):
        count = len(chart.plots)
        figure, axes = pyplot.subplots(
            1, count, figsize=(WIDTH * count, HEIGHT), squeeze=False, sharey=chart.shared_y, layout="constrained"
        )
        for plot, ax in zip(chart.plots, axes[0], strict=True):
            _plain(ax)
            _FORMS[plot.form](ax, plot)
            _words(ax, plot)
        figure.suptitle(fill(visible(chart.title), TITLE * count), fontsize=11)
        if chart.note:
            figure.supxlabel(fill(visible(chart.note), NOTE * count), fontsize=8, color="#444444")
        directory.mkdir(parents=True, exist_ok=True)
        files = [directory / f"{chart.key}.{suffix}" for suffix in ("svg", "png")]
        for file in files:
            about = {"Title": visible(chart.title), "Description": made_by}
            figure.savefig(file, metadata=about | ({"Date": None} if file.suffix == ".svg" else {}))
        pyplot.close(figure)
    return files


def _plain(ax: Any) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)


def _words(ax: Any, plot: Plot) -> None:
    rows = -(-len(plot.series) // _NAMES) if ax.get_legend() is not None else 0
    ax.set_title(visible(plot.title), loc="left", pad=5 + 13 * rows)
    ax.set_xlabel(visible(plot.x))
    ax.set_ylabel(visible(plot.y))
    for line in plot.lines:
        (ax.axhline if line.axis == "y" else ax.axvline)(line.at, color=GREY, linewidth=0.9, linestyle="--")
        place = (1.0, line.at) if line.axis == "y" else (line.at, 1.0)
        transform = ax.get_yaxis_transform() if line.axis == "y" else ax.get_xaxis_transform()
        ax.text(
            *place,
            visible(line.name),
            transform=transform,
            fontsize=7.5,
            color=GREY,
            ha="right",
            va="bottom",
            bbox=_PAPER,
        )


def _colours(series: Sequence[Series]) -> dict[str, tuple[str, str]]:
    """A colour and a mark per group, or per series where it has none."""
    groups = dict.fromkeys(one.group or one.name for one in series)
    rounds = [(COLOURS[i % len(COLOURS)], MARKS[(i + i // len(COLOURS)) % len(MARKS)]) for i in range(len(groups))]
    return dict(zip(groups, rounds, strict=True))


def _dash(series: Sequence[Series], one: Series) -> str:
    """How a line is drawn: the first of a group is whole, later ones of its colour are broken."""
    group = [id(other) for other in series if (other.group or other.name) == (one.group or one.name)]
    return DASHES[group.index(id(one)) % len(DASHES)]


def _lines(ax: Any, plot: Plot) -> None:
    """Lines with bands; each is named at its right end, or above the plot where a second axis stands there."""
    colours = _colours(plot.series)
    right = ax.twinx() if any(one.axis == "right" for one in plot.series) else None
    if right is not None:
        right.spines["top"].set_visible(False)
        right.set_ylabel(visible(plot.right))
    if plot.logarithmic:
        ax.set_xscale("log", base=2)
        ticks = sorted({float(x) for one in plot.series for x in one.x})
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    ends: list[tuple[Any, float, float, str, str]] = []
    handles: list[Any] = []
    for one in plot.series:
        colour, mark = colours[one.group or one.name]
        own = right if one.axis == "right" and right is not None else ax
        x, y = list(one.x), np.asarray(one.y, float)
        handles += own.plot(x, y, color=colour, marker=mark, markersize=3.5, linewidth=1.6, label=visible(one.name))
        if one.low is not None and one.high is not None:
            own.fill_between(x, np.asarray(one.low, float), np.asarray(one.high, float), color=colour, alpha=0.15, lw=0)
        own.lines[-1].set_linestyle(_dash(plot.series, one))
        known = np.flatnonzero(np.isfinite(y))
        if len(known):
            ends.append((own, x[known[-1]], float(y[known[-1]]), one.name, colour))
    if right is None:
        _name_ends(ends)
    else:  # names at the ends would stand on the second axis
        _legend(ax, plot, handles)


def _name_ends(ends: Sequence[tuple[Any, float, float, str, str]]) -> None:
    """Names at the ends of lines, moved apart where they would stand on each other; those near the right, in a column."""
    if not ends:
        return
    figure = ends[0][0].figure
    figure.canvas.draw()
    placed: list[float] = []
    rightmost = max(float(ax.transData.transform((x, y))[0]) for ax, x, y, *_ in ends)
    for ax, x, y, name, colour in sorted(ends, key=lambda end: end[0].transData.transform((0, end[2]))[1]):
        at, pixel = map(float, ax.transData.transform((x, y)))
        aside = rightmost - at if rightmost - at < _COLUMN * ax.bbox.width else 0.0
        target = max(pixel, placed[-1] + 9.5 * figure.dpi / 72) if placed else pixel
        placed.append(target)
        ax.annotate(
            visible(name),
            (x, y),
            xytext=(5 + aside * 72 / figure.dpi, (target - pixel) * 72 / figure.dpi),
            textcoords="offset points",
            fontsize=7.5,
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _legend(ax: Any, plot: Plot, handles: Sequence[Any] | None = None) -> None:
    """The names of several series above the plot, where they hide nothing."""
    if len(plot.series) > 1:
        ax.legend(
            handles=handles,
            frameon=False,
            fontsize=7.5,
            ncols=_NAMES,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.2,
            columnspacing=1.0,
            handlelength=1.2,
        )


def _bars(ax: Any, plot: Plot) -> None:
    """Groups of bars with intervals; series are side by side."""
    colours = _colours(plot.series)
    names = list(dict.fromkeys(str(x) for one in plot.series for x in one.x))
    place = {name: i for i, name in enumerate(names)}
    width = 0.8 / max(len(plot.series), 1)
    for i, one in enumerate(plot.series):
        at = np.array([place[str(x)] for x in one.x]) + (i - (len(plot.series) - 1) / 2) * width
        y = np.asarray(one.y, float)
        ax.bar(at, y, width * 0.92, color=colours[one.group or one.name][0], label=visible(one.name))
        if one.low is not None and one.high is not None:
            error = np.abs(np.stack([y - np.asarray(one.low, float), np.asarray(one.high, float) - y]))
            ax.errorbar(at, y, error, fmt="none", ecolor="#222222", elinewidth=0.9, capsize=2)
    ax.axhline(0, color="#222222", linewidth=0.8)
    wide = max(map(len, names), default=0) * len(names) > TICKS
    ax.set_xticks(range(len(names)), [visible(name) for name in names], rotation=30 if wide else 0)
    if wide:
        for label in ax.get_xticklabels():
            label.set_ha("right")
    _legend(ax, plot)


def _rows(ax: Any, plot: Plot) -> None:
    """Values with intervals, one row each from top to bottom, which leaves room for long names."""
    colours = _colours(plot.series)
    names = list(dict.fromkeys(str(x) for one in plot.series for x in one.x))
    for i, one in enumerate(plot.series):
        at = np.array([names.index(str(x)) for x in one.x]) + 0.25 * (i - (len(plot.series) - 1) / 2)
        y, error = np.asarray(one.y, float), None
        if one.low is not None and one.high is not None:
            error = np.abs(np.stack([y - np.asarray(one.low, float), np.asarray(one.high, float) - y]))
        colour, mark = colours[one.group or one.name]
        ax.errorbar(y, at, xerr=error, fmt=mark, color=colour, markersize=4, elinewidth=1.2, label=visible(one.name))
    ax.set_yticks(range(len(names)), [visible(name) for name in names], fontsize=7.5)
    ax.invert_yaxis()
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    _legend(ax, plot)


def _points(ax: Any, plot: Plot) -> None:
    """A scatter of single points; those with labels are named."""
    colours = _colours(plot.series)
    for one in plot.series:
        colour, mark = colours[one.group or one.name]
        x, y = np.asarray(one.x, float), np.asarray(one.y, float)
        small = len(x) > 60
        ax.scatter(
            x, y, s=9 if small else 26, color=colour, marker=mark, alpha=0.7, linewidths=0, label=visible(one.name)
        )
        if one.low is not None and one.high is not None:
            error = np.abs(np.stack([y - np.asarray(one.low, float), np.asarray(one.high, float) - y]))
            ax.errorbar(x, y, error, fmt="none", ecolor=colour, elinewidth=0.7, alpha=0.6)
        for label, px, py in zip(one.labels or (), x, y, strict=False):
            ax.annotate(visible(label), (px, py), xytext=(4, 3), textcoords="offset points", fontsize=7, color=colour)
    _legend(ax, plot)


def _dumbbells(ax: Any, plot: Plot) -> None:
    """Two or more values per row, joined by a line: rows from top to bottom."""
    colours = _colours(plot.series)
    names = list(dict.fromkeys(str(x) for one in plot.series for x in one.x))
    values: dict[str, list[float]] = {name: [] for name in names}
    for one in plot.series:
        for x, y in zip(one.x, one.y, strict=True):
            values[str(x)].append(float(y))
    for i, name in enumerate(names):
        ax.plot([min(values[name]), max(values[name])], [i, i], color="#bbbbbb", linewidth=2, zorder=1)
    for one in plot.series:
        colour, mark = colours[one.group or one.name]
        at = [names.index(str(x)) for x in one.x]
        ax.scatter(list(one.y), at, color=colour, marker=mark, s=30, zorder=2, label=visible(one.name))
    ax.set_yticks(range(len(names)), [visible(name) for name in names])
    ax.invert_yaxis()
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    _legend(ax, plot)


def _heat(ax: Any, plot: Plot) -> None:
    """A heat map with the number in each cell; unfit cells are hatched, and marked ones boxed."""
    from matplotlib.patches import Rectangle

    grid = plot.grid
    assert grid is not None
    values = np.array([[np.nan if v is None else v for v in row] for row in grid.values], float)
    known = values[np.isfinite(values)]
    bound = float(np.abs(known).max()) if len(known) else 1.0
    image = ax.imshow(values, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto")
    ax.set_xticks(range(len(grid.columns)), [visible(name) for name in grid.columns])
    ax.set_yticks(range(len(grid.rows)), [visible(name) for name in grid.rows])
    ax.grid(False)
    for i, j in np.argwhere(np.isfinite(values)):
        dark = abs(values[i, j]) > 0.6 * bound
        ax.text(j, i, f"{values[i, j]:+.1f}", ha="center", va="center", fontsize=7, color="white" if dark else "black")
    for i, j in grid.hatched:
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="///", edgecolor="#bbbbbb", linewidth=0))
    for i, j in grid.boxed:
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.4))
    ax.figure.colorbar(image, ax=ax, shrink=0.85)


_FORMS: dict[str, Callable[[Any, Plot], None]] = {
    "lines": _lines,
    "bars": _bars,
    "rows": _rows,
    "points": _points,
    "dumbbells": _dumbbells,
    "heat": _heat,
}
