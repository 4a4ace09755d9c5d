"""What a replication found: the paper's printed rows beside its own, paired tests, and verdicts by the ledger's rules.

Everything is computed from the document, so that one person's file and several people's pooled give it alike. A problem that
several runs answered is one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radmoe.evaluation.pools import Outcomes
from radmoe.evaluation.problem import Marks
from radmoe.evaluation.table import Cell, Column, Row, Table, Unit, missing
from radmoe.selection.rule import Rule
from radmoe_studies.accuracies import VOTES
from radmoe_studies.base import Options
from radmoe_studies.decision import FEWEST, POINT, POINTS, Claim, ClaimDecision, all_of, corrected, is_above, is_near
from radmoe_studies.decision import Rule as Test
from radmoe_studies.evidence import Evidence, Floats, Panel
from radmoe_studies.paper.main import FUSED, LIFT, MARGIN, ON_PAR, RULES, main
from radmoe_studies.pooling import shown
from radmoe_studies.replicate.configs import PaperConfiguration, config_named
from radmoe_studies.report.studies import decision_json
from radmoe_studies.resample import Quantity, resample

METHODS = {  # what is shown, and how; the document has every registered method
    "average": "a random rollout",
    "majority": "majority",
    "deepconf": "DeepConf vote",
    "likelihood": "likelihood",
    "text-overlap": "text overlap",
    "rad": "RAD",
    "rad+dc": "RAD+DC",
    "strict": "RAD, marker only",
    "strict+dc": "RAD+DC, marker only",
    "preset:best": "routing and likelihood (best)",
    "oracle": "oracle",
}
CHOICE = "chosen by the model"

STRICT_GAIN = Claim(
    "replicate.strict-gain",
    "Read at the marker alone, RAD gains over a random rollout what the paper prints for these cells.",
    "",
    "tab:marker-only",
    f"The mean gain of the marker-only readout over Avg@N, over all problems, lies within {100 * POINTS:g} points of the mean of the "
    "printed gains, each data set weighted by its problems here: two one-sided tests on the bootstrap over problems.",
)
GAIN = Claim(
    "replicate.rad-gain",
    "RAD gains over a random rollout what the paper prints for this configuration.",
    "",
    "tab:per-model",
    f"The mean gain of RAD over Avg@N lies within {100 * POINTS:g} points of the mean of the printed gains, each kind weighted by its "
    "problems here, on kinds of which all data sets were run and on problems with two located rollouts: two one-sided tests on "
    "the bootstrap over problems.",
)


def _above(key: str, sentence: str, what: str) -> Claim:
    """A claim that the paper does not make: a difference is above a point."""
    rule = f"{what}, all tasks pooled, is above {100 * POINT:g} point: one-sided on the bootstrap over problems."
    return Claim(f"replicate.{key}", sentence, "not compared", "not in the paper", rule)


DIFFERENCES = (  # a claim, and the two methods
    (_above("rad-above-likelihood", "RAD is right more often than the likeliest rollout.", "RAD minus likelihood"),
     "rad", "likelihood"),
    (_above("routing-adds-to-likelihood", "Routing adds to likelihood.", "The preset best minus likelihood"),
     "preset:best", "likelihood"),
    (_above("routing-adds-to-text", "Routing adds to text overlap and likelihood together.",
            "The rank sum of RAD, text overlap and likelihood minus that of the last two"),
     "rad+text-overlap+likelihood", "text-overlap+likelihood"),
)  # fmt: skip
ONLINE = _above(
    "rad-above-deepconf-online",
    "At equal tokens RAD is right more often than DeepConf's online filter.",
    "RAD among as many rollouts as cost the filter's tokens on the same problem, minus the filter, for each of its settings (it "
    "keeps 90% or 10%), in the mean over 200 orders of arrival",
)
CHOSEN = _above(
    "rad-above-choice",
    "RAD is right more often than the model's own choice among its answers.",
    "RAD minus universal self-consistency",
)
CLAIMS = (STRICT_GAIN, GAIN, *(claim for claim, _, _ in DIFFERENCES), ONLINE, CHOSEN)


class ReplicationResults(NamedTuple):
    tables: tuple[Table, ...]
    decisions: tuple[ClaimDecision, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "tables": [table.to_json() for table in self.tables],
            "decisions": [decision_json(decision) for decision in self.decisions],
            "notes": list(self.notes),
        }


class CellRows(NamedTuple):
    """Cells one below the other: numbers of each problem, and the problem."""

    cells: Sequence[dict[str, Any]]

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(cell["task"], problem) for cell in self.cells for problem in cell["problems"]]

    def column(self, values: Callable[[dict[str, Any]], Iterable[float] | None]) -> Floats:
        """What `values` gives for each cell; NaN for the problems of a cell for which it gives None."""
        parts = [(values(cell), len(cell["problems"])) for cell in self.cells]
        return np.concatenate([np.full(size, np.nan) if own is None else np.asarray(own, float) for own, size in parts])

    def hits(self, method: str) -> Floats:
        return self.column(lambda cell: cell["hits"].get(method))

    def online(self, arm: str, part: str) -> Floats:
        return self.column(lambda cell: cell["equal_tokens"].get(arm, {}).get(part))

    def choice(self, part: str) -> Floats:
        return self.column(lambda cell: (cell["choice"] or {}).get(part))

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for cell in self.cells for arm in cell["equal_tokens"]))

    def mean(self, values: Floats, options: Options, *, added: Sequence[float] = ()) -> Quantity | None:
        """The mean over problems that have a value, whole problems resampled; None where fewer than two have.

        `added` are values of further problems, which count in the draws alone.
        """
        known = np.isfinite(values)
        problems: list[Hashable] = [problem for problem, here in zip(self.problems, known, strict=True) if here]
        if len(set(problems)) < 2:
            return None
        table = np.concatenate([values[known], added])[:, None]
        drawn = resample(table, [*problems, *range(len(added))], resamples=options.draws, seed=options.seed).mean(0)
        return Quantity(float(values[known].mean()), drawn.draws, frozenset(problems))


def results(body: Mapping[str, Any], options: Options) -> ReplicationResults:
    """Tables, decisions and notes of a document."""
    config = config_named(body["config"])
    cells = [cell for run in body["runs"] for cell in run["cells"]]
    by_task = {task: CellRows([cell for cell in cells if cell["task"] == task]) for task in config.tasks}
    by_task = {task: rows for task, rows in by_task.items() if rows.cells}
    found = main(Evidence([_panel(config, run, cell) for run in body["runs"] for cell in run["cells"]]), options)
    (differences,) = (table for table in found.tables if table.key == "main-differences")
    decisions = _decide(config, by_task, options)
    n = body["sampling"]["n"]
    notes = [] if n == config.n else [f"{n} rollouts of a problem, not {config.n}."]
    for task, rows in by_task.items():
        if (here := len(set(rows.problems))) != (there := config.printed(task).problems):
            notes.append(f"{task} has {here} problems here and {there} in the paper.")
        named = rows.choice("named")
        if none := int((named == 0).sum()):
            asked = int(np.isfinite(named).sum())
            notes.append(
                f"{task}: the model named none of its answers on {none} of {asked} problems, which count as wrong."
            )
    if config.rehearses:
        notes.append(f"A rehearsal: {config.model} and its tasks stand where the paper's model and data sets stood.")
    sections = [row for task, rows in by_task.items() for row in _section(config, task, rows, options)]
    return ReplicationResults((_table(sections), differences), tuple(corrected(decisions)), tuple(notes))


def _panel(config: PaperConfiguration, run: Mapping[str, Any], cell: Mapping[str, Any]) -> Panel:
    """A cell as studies read it: outcomes alone."""
    counts = {name: np.array(own, np.int64) for name, own in cell["counts"].items()}
    hits = {name: np.array(own, np.float64) for name, own in cell["hits"].items()}
    setting = Rule(confidence_window=config.confidence_window).settle(cell["kind"], max(cell["counts"]["rollouts"]))
    marks = dict.fromkeys(cell["problems"], Marks((), ()))
    known = {"outcomes": Outcomes(counts, {}, hits, dict(cell["missing"]))}
    path = Path(f"{config.name}-{run['seed']}-{cell['task']}")
    return Panel(path, setting, marks, config.model, config.style or "", cell["task"], known=known)


def _section(config: PaperConfiguration, task: str, rows: CellRows, options: Options) -> list[Row]:
    """The rows of a task: each method here, and what the paper prints."""
    paper, average = config.printed(task), rows.hits("average")
    spent = rows.column(lambda cell: cell["tokens"])
    votes = VOTES if all(cell["kind"] == "code" for cell in rows.cells) else ()  # programs are near-unique strings
    lines = [(name, rows.hits(method), spent, method) for method, name in METHODS.items() if method not in votes]
    for arm in rows.arms:
        tokens = rows.online(arm, "tokens")
        lines.append((arm, rows.online(arm, "hits"), tokens, ""))
        lines.append(("RAD at its tokens", rows.online(arm, "rad"), tokens, ""))
    if np.isfinite(chosen := rows.choice("hits")).any():
        lines.append((CHOICE, chosen, spent + rows.choice("tokens"), ""))
    runs = "" if len(rows.cells) == 1 else f", {len(rows.cells)} runs"
    section = (
        f"{task}, {len(set(rows.problems))} problems{runs}; the paper: {config.tasks[task]}, {paper.pool_name} "
        f"n = {paper.pool_n}, {config.family}"
    )
    out = []
    for name, values, tokens, method in lines:
        known = np.isfinite(values)
        right = rows.mean(values, options)
        gain = None if method == "average" else rows.mean(values - average, options)
        cells = [Cell(name), _mean(right, "percent"), _mean(gain, "points")]
        cells.append(shown(tokens[known].sum() / spent[known].sum() if known.any() else None, "percent"))
        cells += [
            shown(own.get(method), "percent", note="not printed") for own in (paper.cell, paper.pool, paper.family)
        ]
        out.append(Row(tuple(cells), section))
    return out


def _mean(quantity: Quantity | None, unit: Unit) -> Cell:
    return missing("not measured") if quantity is None else shown(quantity.estimate, unit, quantity.interval)


def _table(rows: Sequence[Row]) -> Table:
    ours = Column("right here", "95% CI"), Column("over random", "95% CI"), Column("tokens")
    columns = (Column("method"), *ours, *(Column(f"paper: {which}") for which in ("cell", "kind", "family")))
    notes = (
        "The paper prints this very cell for the marker-only readout alone (Tab. marker-only; its random rollout is the readout "
        "less its gain); this configuration on all data sets of a kind, on problems with two located rollouts (Tab. per-model, "
        "dc); and this data set with all styles of the model pooled (Tab. main). Tokens: in percent of those of all rollouts.",
    )
    return Table("replication", "Percent right, and the paper's rows", columns, tuple(rows), notes, "comparison")


def _decide(config: PaperConfiguration, by_task: Mapping[str, CellRows], options: Options) -> list[ClaimDecision]:
    """The claims that a replication is for, and those of study 6, as far as it has what they need.

    A bootstrap of few problems knows nothing of what none of them shows: where no problem is lost, no resample loses one. So
    the draws have two problems more, one won and one lost, as in the interval of Bonett and Price (2012) for paired
    proportions. Below some hundred problems this leaves open what would else be decided.
    """
    rows = CellRows([cell for own in by_task.values() for cell in own.cells])
    made: list[ClaimDecision] = []

    def decide(claim: Claim, *parts: tuple[Floats, Test]) -> None:
        quantities = [rows.mean(values, options, added=(1.0, -1.0)) for values, _ in parts]
        enough = [quantity for quantity in quantities if quantity is not None and quantity.n >= FEWEST]
        if parts and len(enough) == len(parts):
            decided = [rule(claim, quantity) for quantity, (_, rule) in zip(enough, parts, strict=True)]
            made.append(all_of(claim, decided))

    def reproduces(claim: Claim, values: Floats, printed: Floats) -> None:
        known = np.isfinite(values) & np.isfinite(printed)
        if known.any():
            place = float(printed[known].mean())
            stated = replace(claim, paper=f"{100 * place:+.1f} points")
            decide(stated, (np.where(known, values, np.nan), is_near(place, POINTS)))

    def printed(task: str) -> tuple[float, float]:
        paper = config.printed(task)
        whole = paper.pool["rad"] - paper.pool["average"]
        known = config.pooled_tasks(paper.pool_name) <= set(by_task)
        return paper.cell["strict"] - paper.cell["average"], whole if known else np.nan

    place = np.array([printed(task) for task, _ in rows.problems])
    rad, average = rows.hits("rad"), rows.hits("average")
    located = rows.column(lambda cell: cell["counts"]["located"]) >= 2
    reproduces(STRICT_GAIN, rows.hits("strict") - average, place[:, 0])
    reproduces(GAIN, np.where(located, rad - average, np.nan), place[:, 1])
    for claim, one, other in DIFFERENCES:
        decide(claim, (rows.hits(one) - rows.hits(other), is_above(POINT)))
    decide(ONLINE, *((rows.online(arm, "rad") - rows.online(arm, "hits"), is_above(POINT)) for arm in rows.arms))
    decide(CHOSEN, (rad - rows.choice("hits"), is_above(POINT)))
    programs = rows.column(lambda cell: [cell["kind"] == "code"] * len(cell["problems"])) == 1
    for claim, one, other, pool in RULES:
        values = np.where(programs == (pool == "code"), rows.hits(one) - rows.hits(other), np.nan)
        rule = is_near(0.0, MARGIN) if claim in (ON_PAR, FUSED) else is_above(POINTS if claim is LIFT else POINT)
        decide(claim, (values, rule))
    return made
