"""What a figure shows, as data. A study fills these in; `radmoe_studies.report.charts` draws them and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Numbers = Sequence[float]


@dataclass(frozen=True)
class Series:
    """Points in their order, with an interval around each where it is known.

    `labels` names single points. `group` says which series belong together (one colour), `axis` on which of two axes
    they stand.
    """

    name: str
    x: Sequence[float | str]
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    labels: Sequence[str] | None = None
    group: str = ""
    axis: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Grid:
    """A heat map: `values` [rows][columns], None where there is nothing; marked cells are boxed, unfit ones hatched."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    boxed: Sequence[tuple[int, int]] = ()
    hatched: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Line:
    """A reference: chance, zero, a level that others are compared with."""

    at: float
    name: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Plot:
    """One plot of a figure."""

    form: Literal["lines", "bars", "rows", "points", "dumbbells", "heat"]
    title: str = ""
    x: str = ""
    y: str = ""
    right: str = ""  # the label of a second axis
    series: Sequence[Series] = ()
    grid: Grid | None = None
    lines: Sequence[Line] = ()
    logarithmic: bool = False  # the x axis


@dataclass(frozen=True)
class Chart:
    """A figure of one or more plots, side by side; `note` says in a sentence what to see."""

    key: str
    title: str
    plots: Sequence[Plot]
    note: str = ""
    shared_y: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
