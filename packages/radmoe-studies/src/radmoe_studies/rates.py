"""Hit rates in sub-cohorts, pooled over configurations: rows are problems of a configuration, problems are clusters.

The paper pools its thinking-class configurations (App. "Composition control"), and so do the studies that use this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from radmoe.evaluation import table
from radmoe.evaluation.families import WELL_POSED
from radmoe_studies.base import Options, study
from radmoe_studies.decision import FEWEST
from radmoe_studies.evidence import Bools, Evidence, Floats, Ints, Panel, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.needs import MANY
from radmoe_studies.pooling import THINKING
from radmoe_studies.pooling import clusters as clusters_of
from radmoe_studies.report.figures import Series
from radmoe_studies.resample import Quantity, Resampled, intervals, resample
from radmoe_studies.subcohorts import CHANCE, METHODS, SubcohortCell, hit_rates

BOUNDARY, DELIMITER = Request("boundary@16"), Request("delimiter@16")
ANCHORS = (BOUNDARY, DELIMITER)
ALL = "all"
GROUPS = (ALL, *DOMAINS, WELL_POSED)
POOLING = "Thinking-class configurations are pooled; a problem that several of them answered is one cluster."

_KEPT: WeakKeyDictionary[Panel, dict[tuple[object, ...], Floats]] = WeakKeyDictionary()


def wanted(panel: Panel) -> tuple[Request, ...]:
    """The requests of both anchors; none for text, which has no delimiter, and for agents."""
    return ANCHORS if panel.domain in DOMAINS else ()


def readable(evidence: Evidence) -> list[Panel]:
    """The panels that are pooled: those with both anchors."""
    return [panel for panel in evidence.panels if wanted(panel)]


def remarks(evidence: Evidence) -> tuple[str, ...]:
    """What is pooled, and where these pools differ from the paper's."""
    windows = ", ".join(
        str(window) for window in sorted({panel.setting.confidence_window for panel in readable(evidence)})
    )
    scale = f"A confidence window has {windows} tokens here and 2,048 in the paper, whose rollouts are far longer."
    return (POOLING, scale) if windows else (POOLING,)


subcohort_study = partial(study, requests=wanted, needs=(MANY,), population=THINKING)


class Rates(NamedTuple):
    """Hit rates [rows, cells, METHODS] with the problem, the domain and the family of each row."""

    values: Floats
    cells: tuple[SubcohortCell, ...]
    clusters: Sequence[Hashable]
    domains: Sequence[str]
    families: Sequence[str]

    @property
    def problems(self) -> int:
        return len(set(self.clusters))

    @property
    def lifts(self) -> Floats:
        """Differences to chance, in the same shape."""
        return self.values - self.values[:, :, [CHANCE]]

    def column(self, cell: SubcohortCell) -> int:
        return self.cells.index(cell)

    def of(self, name: str) -> Bools:
        """The rows of a domain or family; well-posed ones are math and science, and "all" is every row."""
        if name == WELL_POSED:
            return np.array([domain in ("math", "science") for domain in self.domains], bool)
        return np.array(
            [name in (ALL, domain, family) for domain, family in zip(self.domains, self.families, strict=True)], bool
        )


Choice = Callable[[Ints, Ints], Bools]


def pooled_rates(
    evidence: Evidence, request: Request, cells: Iterable[SubcohortCell], options: Options, choice: Choice | None = None
) -> Rates:
    """The hit rates of all pooled panels.

    `choice` says by the numbers of located right and wrong rollouts [P] which problems are rows; without it, those that
    fit any cell are.
    """
    cells = tuple(cells)
    rows, clusters, domains, families = [], [], [], []
    for panel in readable(evidence):
        right, wrong = located_counts(panel, request)
        if choice is not None:
            mask = choice(right, wrong)
        else:
            fits = [[cell.fits(r, w) for cell in cells] for r, w in zip(right.tolist(), wrong.tolist(), strict=True)]
            mask = np.array([any(own) for own in fits], bool)
        if not mask.any() or not cells:
            continue
        rows.append(_once(panel, request, cells, mask, options, evidence.jobs)[mask])
        clusters += [problem for problem, inside in zip(clusters_of(panel), mask, strict=True) if inside]
        domains += [panel.domain] * int(mask.sum())
        families += [panel.family] * int(mask.sum())
    values = np.concatenate(rows) if rows else np.zeros((0, len(cells), len(METHODS)))
    return Rates(values, cells, clusters, domains, families)


def located_counts(panel: Panel, request: Request) -> tuple[Ints, Ints]:
    """How many located rollouts of each problem are right, and how many are wrong [P]."""
    inside = panel.read(request).located & panel.here
    return (inside & panel.correct).sum(1), (inside & ~panel.correct).sum(1)


def _once(
    panel: Panel, request: Request, cells: tuple[SubcohortCell, ...], mask: Bools, options: Options, threads: int
) -> Floats:
    """Hit rates of a panel, kept as long as it is: several studies ask for the same ones."""
    kept = _KEPT.setdefault(panel, {})
    key = (request, cells, mask.tobytes(), options.samples, options.seed)
    if key not in kept:
        kept[key] = hit_rates(
            panel, request, cells, problems=mask, samples=options.samples, seed=options.seed, threads=threads
        )
    return kept[key]


def mean(values: Floats, clusters: Sequence[Hashable], options: Options) -> Quantity | None:
    """The mean of the rows that have a number; None where they come from fewer than FEWEST problems."""
    known = np.flatnonzero(np.isfinite(values))
    own = [clusters[int(i)] for i in known]
    if len(set(own)) < FEWEST:
        return None
    return resample(values[known, None], own, resamples=options.draws, seed=options.seed).mean(0)


class Curves(NamedTuple):
    """Means [cells, methods] of the rows of one group, with intervals; NaN where it has none."""

    estimate: Floats
    low: Floats
    high: Floats
    rows: int
    problems: int

    def cell(self, i: int, method: int, unit: table.Unit) -> table.Cell:
        value, low, high = (float(numbers[i, method]) for numbers in (self.estimate, self.low, self.high))
        if not np.isfinite(value):
            return table.missing("no such sub-cohorts, confidences or votes")
        known = np.isfinite([low, high]).all()
        return table.Cell(value, unit, low if known else None, high if known else None)

    def series(self, name: str, x: Sequence[float], method: int, *, band: bool = True, group: str = "") -> Series:
        """A line of percent or points through the cells that have a number."""
        known = np.flatnonzero(np.isfinite(self.estimate[:, method]))
        y, low, high = ((100 * a[known, method]).tolist() for a in (self.estimate, self.low, self.high))
        band = band and bool(np.isfinite(low + high).all())
        return Series(name, [x[int(i)] for i in known], y, low if band else None, high if band else None, group=group)


def curves(rates: Rates, options: Options, *, groups: Sequence[str] = (ALL,), lifts: bool = False) -> dict[str, Curves]:
    """Means of every cell and method for each group that has rows, from one bootstrap over problems.

    A group with the same rows as an earlier one (the only domain, or the only family, beside "all") is left out.
    A method that is not defined for all rows of a group (a vote on code, confidences that a pool lacks) has no mean
    there.
    """
    values = rates.lifts if lifts else rates.values
    comparable = np.isfinite(rates.values)
    present: dict[str, Bools] = {}
    for name in groups:
        mask = rates.of(name)
        if mask.any() and not any(np.array_equal(mask, other) for other in present.values()):
            present[name] = mask
    if not present:
        return {}
    width = values.shape[1] * values.shape[2]
    columns = []
    for mask in present.values():
        full = comparable[mask].sum(0)
        shown = full == full[:, [CHANCE]]  # for all rows, or for none: means over different rows are not compared
        columns.append(np.where(mask[:, None, None] & shown, values, np.nan).reshape(len(values), width))
    result: Resampled = resample(np.hstack(columns), rates.clusters, resamples=options.draws, seed=options.seed)
    low, high = intervals(result.draws)
    out = {}
    for i, (name, mask) in enumerate(present.items()):
        part = slice(i * width, (i + 1) * width)
        problems = len({problem for problem, inside in zip(rates.clusters, mask, strict=True) if inside})
        shape = values.shape[1:]
        numbers = (result.estimate[part].reshape(shape), low[part].reshape(shape), high[part].reshape(shape))
        out[name] = Curves(*numbers, int(mask.sum()), problems)
    return out


def by_group(
    rates: Mapping[Request, Rates], options: Options, *, lifts: bool = False
) -> dict[Request, dict[str, Curves]]:
    """The means at every anchor for all rows, for each domain, and for the well-posed ones together."""
    return {request: curves(own, options, groups=GROUPS, lifts=lifts) for request, own in rates.items()}


def paper_cell(value: float | None, unit: Literal["percent", "points"]) -> table.Cell:
    """A number as the paper prints it, in percent or points."""
    return table.missing("not in the paper") if value is None else table.Cell(value / 100, unit)
