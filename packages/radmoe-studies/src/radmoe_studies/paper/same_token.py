"""Study 1: does the token alone fix the router's state? (Fig. "exp1".)

All rollouts are read at one token. Map A: the token that ends a completion, ten problems of a pool. Map B: the boundary
before the final response, the same problems at three efforts. Leakage is the share of a rollout's nearest neighbours that
belong to another problem, or another effort.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from radmoe.errors import RolloutError
from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.cross_problem import Crowd, compare, embed, end_token, leakage, of_like_length
from radmoe_studies.decision import EFFECT, Claim, ClaimDecision, all_of, below, changed
from radmoe_studies.evidence import Evidence, Floats, Ints, Panel
from radmoe_studies.quantities import by_configuration, mean_cell, mean_of, pooled
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Resampled

PROBLEMS = 10
ROLLOUTS, PER_EFFORT = 64, 32  # of each problem; fewer at an effort, since there are three
EFFORTS = ("low", "medium", "high")
BOUNDARY = "boundary@marker"
ALIKE = 0.10  # lengths that differ by less are alike
ACROSS_PROBLEMS, ACROSS_EFFORTS = 0.05, 0.01  # the paper's bounds
LESS = 0.05  # of leakage: by so much less than chance is the smallest effect, the paper's own bound on problems
A, B, C = "problems at the end token", "efforts at the boundary", "efforts within a problem"
COLUMNS = ("leakage, k=1", "leakage, k=10", "chance", "like length, k=1", "its chance")

_MEAN = "mean over problems, all pools pooled: one-sided on the bootstrap over problems, the weaker decides."
TELL = Claim(
    "same-token.problems",
    "At the same end token, routing tells problems apart.",
    "< 5% cross-problem leakage",
    "Sec. Exp I; Fig. exp1 A",
    f"The share of the nearest neighbour, and of the 10 nearest, that is of another of {PROBLEMS} random problems of the pool "
    f"(weighted Jaccard at the end token) is below {ACROSS_PROBLEMS}, {_MEAN}",
)
LEVELS = Claim(
    "same-token.efforts",
    "At the same boundary, routing tells reasoning efforts apart.",
    "< 1% cross-level contamination",
    "Sec. Exp I; Fig. exp1 B",
    f"The share of the nearest neighbour, and of the 10 nearest, that is of another effort ({PROBLEMS} problems at low, medium "
    f"and high, weighted Jaccard at the boundary's tokens) is below {ACROSS_EFFORTS}, {_MEAN}",
)
BEYOND = Claim(
    "same-token.beyond-length",
    "What routing tells at a fixed token is more than how long the rollout is.",
    "not tested",
    "Sec. Exp I, Insight 1",
    f"Among rollouts whose lengths differ by at most {ALIKE:.0%}, the nearest neighbour is of another problem (end token), and "
    f"within a problem of another effort (boundary), less often than a random one of them: leakage - chance is below -{LESS}, "
    f"{_MEAN} Without efforts only problems are judged.",
    changed(EFFECT),
)


class Leaks(NamedTuple):
    """The leakages of each panel's problems [P, 5], under COLUMNS, and the rollouts that were compared, for the maps."""

    tables: dict[Panel, Floats]
    crowds: list[tuple[Crowd, tuple[Panel, ...], list[str]]]


def chosen(panels: Sequence[Panel], seed: int) -> list[str]:
    """Ten random problems that all of the panels have, or all of them where they are fewer."""
    shared = [problem for problem in panels[0].problem_ids if all(problem in panel.problem_ids for panel in panels)]
    picks = np.random.default_rng(seed).permutation(len(shared))[:PROBLEMS]
    return [shared[i] for i in sorted(picks)]


def measure(crowd: Crowd, labels: Ints, within: bool = False) -> Floats:
    """The five numbers of COLUMNS for each rollout of the crowd [M, 5]."""
    own = crowd.problem[:, None] == crowd.problem[None, :] if within else np.ones_like(crowd.S, bool)
    nearest, chance = leakage(crowd, labels, 1, own)
    smallest = min(
        np.unique(labels if not within else np.stack([labels, crowd.problem]), axis=-1, return_counts=True)[1]
    )
    ten = max(min(10, int(smallest) - 1), 1)  # more would have to leak
    matched, by_chance = leakage(crowd, labels, 1, own & of_like_length(crowd, ALIKE))
    return np.column_stack([nearest, leakage(crowd, labels, ten, own)[0], chance, matched, by_chance])


def _by_problem(crowd: Crowd, values: Floats, panels: Sequence[Panel], problems: Sequence[str]) -> dict[Panel, Floats]:
    """Means over the rollouts of each problem of each panel; NaN for the problems that were not chosen."""
    tables = {}
    for p, panel in enumerate(panels):
        table = np.full((len(panel), values.shape[1]), np.nan)
        for q, problem in enumerate(problems):
            own = values[(crowd.panel == p) & (crowd.problem == q)]
            known = np.isfinite(own)
            means = np.where(known, own, 0.0).sum(0) / np.maximum(known.sum(0), 1)
            table[panel.problem_ids.index(problem)] = np.where(known.any(0), means, np.nan)
        tables[panel] = table
    return tables


def across_problems(evidence: Evidence, options: Options, notes: list[str]) -> Leaks:
    made = Leaks({}, [])
    for panel in evidence.panels:
        readout = end_token(panel)
        problems = chosen([panel], options.seed)
        if readout is None or len(problems) < 2:
            continue
        try:
            crowd = compare([panel], problems, readout, ROLLOUTS)
        except RolloutError as error:
            notes.append(f"{panel.configuration}, {panel.dataset} was not read at the end token: {error}")
            continue
        if len(np.unique(crowd.problem)) >= 2:
            made.tables.update(_by_problem(crowd, measure(crowd, crowd.problem), [panel], problems))
            made.crowds.append((crowd, (panel,), problems))
    return made


def across_efforts(evidence: Evidence, options: Options, notes: list[str]) -> tuple[Leaks, Leaks]:
    """Leakage across efforts, and the same with neighbours of the same problem alone."""
    every, within = Leaks({}, []), Leaks({}, [])
    sets: dict[tuple[str, str], dict[str, Panel]] = {}
    for panel in evidence.panels:
        if panel.pool is not None:
            sets.setdefault((panel.model, panel.dataset), {})[panel.style] = panel
    for (model, dataset), styles in sets.items():
        if not set(EFFORTS) <= styles.keys():
            continue
        panels = tuple(styles[effort] for effort in EFFORTS)
        problems = chosen(panels, options.seed)
        try:
            crowd = compare(panels, problems, BOUNDARY, PER_EFFORT) if problems else None
        except RolloutError as error:
            notes.append(f"{model}, {dataset} was not read at the boundary: {error}")
            continue
        if crowd is not None and len(np.unique(crowd.panel)) == len(EFFORTS):
            every.tables.update(_by_problem(crowd, measure(crowd, crowd.panel), panels, problems))
            within.tables.update(_by_problem(crowd, measure(crowd, crowd.panel, True), panels, problems))
            every.crowds.append((crowd, panels, problems))
    return every, within


@study(
    1,
    "Does the token alone fix the router's state?",
    where="Sec. Exp I; Fig. exp1",
    claims=(TELL, LEVELS, BEYOND),
)
def same_token(evidence: Evidence, options: Options) -> Findings:
    notes: list[str] = []
    problems = across_problems(evidence, options, notes)
    efforts, within = across_efforts(evidence, options, notes)
    parts = {A: problems, B: efforts, C: within}
    results = {
        name: {group: pooled(own, leaks.tables, options) for group, own in by_configuration(list(leaks.tables)).items()}
        for name, leaks in parts.items()
    }
    decisions = [
        *_bounded(TELL, results[A]["all"], ACROSS_PROBLEMS, notes),
        *_bounded(LEVELS, results[B]["all"], ACROSS_EFFORTS, notes),
        *judge_length([problems, within], options, notes),
    ]
    notes.append("k=10 is cut to the rollouts that the smallest problem or effort has, less one.")
    notes.append("Chance is the share of other problems, or other efforts, among all rollouts that may be neighbours.")
    charts = [_map(name, leaks, options) for name, leaks in ((A, problems), (B, efforts)) if leaks.crowds]
    return Findings((_table(results),), tuple(charts), tuple(decisions), tuple(notes))


def _bounded(claim: Claim, result: Resampled | None, bound: float, notes: list[str]) -> list[ClaimDecision]:
    parts = [q for q in (mean_of(result, 0), mean_of(result, 1)) if q is not None]
    if len(parts) < 2:
        notes.append(f"{claim.key} was not decided: too few problems, or pools lack its token or one of the efforts.")
        return []
    return [all_of(claim, [below(claim, q, unit="share", threshold=bound) for q in parts])]


def judge_length(leaks: Sequence[Leaks], options: Options, notes: list[str]) -> list[ClaimDecision]:
    parts = []
    for one in leaks:
        excess = {panel: table[:, 3:4] - table[:, 4:5] for panel, table in one.tables.items()}
        if (q := mean_of(pooled(list(excess), excess, options), 0)) is not None:
            parts.append(below(BEYOND, q, unit="share over chance", threshold=-LESS))
    if not parts:
        notes.append(f"{BEYOND.key} was not decided: too few problems have rollouts of like length.")
        return []
    return [all_of(BEYOND, parts)]


def _table(results: dict[str, dict[str, Resampled | None]]) -> Table:
    rows = []
    for section, groups in results.items():
        for name, result in groups.items():
            if result is None:
                continue
            cells = (mean_cell(result, i, "percent", "none of like length") for i in range(len(COLUMNS)))
            rows.append(Row((Cell(name), Cell(result.n, "count"), *cells), section))
        if section != C:
            bound = Cell(ACROSS_PROBLEMS if section == A else ACROSS_EFFORTS, "percent")
            rows.append(Row((Cell("paper: below"), missing(""), bound, bound, *[missing("")] * 3), section))
    columns = (Column("configuration"), Column("problems"), *(Column(title, "95% CI") for title in COLUMNS))
    return Table("same-token", "Neighbours of another problem or effort", columns, tuple(rows), sections="what leaks")


def _map(name: str, leaks: Leaks, options: Options) -> Chart:
    """The map of the first pool of math, or of any, or of its efforts; colours are problems or efforts."""
    crowd, panels, problems = min(leaks.crowds, key=lambda made: made[1][0].domain != "math")
    at = embed(crowd.S, options.seed)
    labels, names = (crowd.problem, problems) if name == A else (crowd.panel, [panel.style for panel in panels])
    series = [Series(text, at[labels == i, 0].tolist(), at[labels == i, 1].tolist()) for i, text in enumerate(names)]
    title = f"{panels[0].configuration if name == A else panels[0].model}, {panels[0].dataset}"
    key = "same-token-problems" if name == A else "same-token-efforts"
    return Chart(key, f"Same token: {name}", (Plot("points", title, "t-SNE of 1 - WJ", series=series),))
