"""Panels put together: by domain, by configuration or family, and as one table of rows with problems as clusters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import Paired, holm, paired_test
from radmoe.evaluation.table import Cell, Row, Unit, missing
from radmoe_studies.evidence import Bools, Floats, Panel
from radmoe_studies.resample import Resampled, resample

# The paper's four pools of problems, by the domains they consist of.
POOLS: dict[str, tuple[str, ...]] = {
    "math": ("math",),
    "science": ("science",),
    "well-posed": ("math", "science"),
    "code": ("code",),
}
NOTHING = "no problem to compare"
PAIRED = (
    "p is exact McNemar where each problem occurs once, else exact sign flips of whole problems, each with all its configurations "
    "and readouts."
)
STARS = (
    "Stars: RAD against a random located rollout of each problem, exact and one-sided (Poisson-binomial); p below .05, .01 and .001, by "
    "Holm over the table."
)
HOLM = "Holm's correction is over all p of the table that are ours."
INSTRUCT = "instruct"


class Population(NamedTuple):
    """The configurations that the claims of a study are about. Others are never pooled with them.

    `beside` says whether others get tables of their own: an agent's trajectories and other problems have nothing in common.
    """

    name: str  # as rules say it
    holds: Callable[[Panel], bool]
    beside: bool = False


def is_instruct(panel: Panel) -> bool:
    """Whether a configuration is an instruct one, by its style or its model's name; others count as thinking-class."""
    return INSTRUCT in (panel.style, *panel.model.lower().replace("_", "-").split("-"))


AGENTS = Population("all agents", lambda panel: panel.kind == "agent")
EVERYONE = Population("all configurations", lambda panel: not AGENTS.holds(panel))
THINKING = Population(
    "thinking-class configurations", lambda panel: EVERYONE.holds(panel) and not is_instruct(panel), beside=True
)
QWEN_THINKING = Population(
    "thinking configurations of the Qwen models",
    lambda panel: THINKING.holds(panel) and panel.style in ("thinking", "") and "oss" not in panel.model.lower(),
    beside=True,
)


def others(panels: Iterable[Panel], population: Population) -> dict[str, list[Panel]]:
    """The panels that stand beside a population, by what they are: instruct configurations, and thinking-class ones."""
    if not population.beside:
        return {}
    outside = [panel for panel in panels if EVERYONE.holds(panel) and not population.holds(panel)]
    return groups(outside, lambda panel: f"{INSTRUCT if is_instruct(panel) else 'other thinking-class'} configurations")


def of_pool(panels: Iterable[Panel], pool: str) -> list[Panel]:
    """The panels of a pool of domains."""
    return [panel for panel in panels if panel.domain in POOLS[pool]]


def no_science(panels: Iterable[Panel]) -> str:
    """The reason why claims about GPQA cannot be tested on these panels; empty where they have questions other than the lab's."""
    science = of_pool(panels, "science")
    if not all(panel.model.startswith("lab-") and panel.dataset.startswith("choice") for panel in science):
        return ""
    return "the lab's choice questions ask for arithmetic, and the claim is about GPQA's, which ask for knowledge"


def groups(panels: Iterable[Panel], name: Callable[[Panel], str]) -> dict[str, list[Panel]]:
    """Panels by a name, in the order in which the names first occur."""
    out: dict[str, list[Panel]] = {}
    for panel in panels:
        out.setdefault(name(panel), []).append(panel)
    return out


def configuration(panel: Panel) -> str:
    return panel.configuration


def clusters(panel: Panel) -> list[Hashable]:
    """What identifies each problem of a panel in every configuration."""
    return [(panel.dataset, problem) for problem in panel.problem_ids]


def problems_of(panels: Iterable[Panel]) -> list[Hashable]:
    """What identifies each problem of several panels, panel after panel."""
    return [problem for panel in panels for problem in clusters(panel)]


class Rows(NamedTuple):
    """Rows of several panels one below the other [n, C], and the problem of each."""

    table: Floats
    problems: list[Hashable]

    def resampled(self, resamples: int, seed: int) -> Resampled | None:
        """Means with problems as clusters; None where no row has a number in every column."""
        if not len(self.table) or not np.isfinite(self.table).any(0).all():
            return None
        return resample(self.table, self.problems, resamples=resamples, seed=seed)


def stack(panels: Sequence[Panel], table: Callable[[Panel], Floats]) -> Rows:
    """The tables [P, C] of panels as one. Rows that have no number at all are left out."""
    tables = [np.reshape(table(panel), (len(panel), -1)) for panel in panels]
    problems = problems_of(panels)
    if not tables:
        return Rows(np.empty((0, 1)), [])
    rows = np.concatenate(tables)
    kept: Bools = np.asarray(np.isfinite(rows).any(1))
    return Rows(rows[kept], [problem for problem, keep in zip(problems, kept, strict=True) if keep])


def shown(
    value: float | None,
    unit: Unit,
    interval: tuple[float, float] | None = None,
    *,
    stars: str = "",
    gain: float | None = None,
    note: str = NOTHING,
) -> Cell:
    """A number in a table, with its interval, unless that has no width: all problems alike tell nothing. What is no number is an empty cell that says why."""
    if value is None or not np.isfinite(value):
        return missing(note)
    low, high = interval if interval is not None and interval[0] < interval[1] else (None, None)
    return Cell(float(value), unit, low, high, gain=gain, stars=stars)


def paired(x: Floats, y: Floats, problems: Sequence[Hashable]) -> Paired:
    """The exact test of two selectors by their outcomes 0/1 in some rows, with the problem behind each row."""
    numbers = {problem: i for i, problem in enumerate(dict.fromkeys(problems))}
    return paired_test(x, y, [numbers[problem] for problem in problems])


def adjusted(p: Sequence[float | None]) -> list[float | None]:
    """The p-values of a table by Holm, corrected for all that there are."""
    corrected = iter(holm([value for value in p if value is not None]).tolist())
    return [None if value is None else next(corrected) for value in p]


def by_holm(rows: Sequence[Row], column: int) -> tuple[Row, ...]:
    """Rows whose p-values, in the cells of one column, are corrected for all that there are."""
    p = adjusted(
        [cell.value if isinstance(cell.value, float) else None for cell in (row.cells[column] for row in rows)]
    )
    made = []
    for row, value in zip(rows, p, strict=True):
        own = row.cells[column] if value is None else replace(row.cells[column], value=value)
        made.append(replace(row, cells=(*row.cells[:column], own, *row.cells[column + 1 :])))
    return tuple(made)


def stars_of(p: float | None) -> str:
    """One to three stars for p below .05, .01 and .001, as the paper sets them; none where there is no p."""
    return "" if p is None else "*" * sum(p < level for level in (0.05, 0.01, 0.001))
