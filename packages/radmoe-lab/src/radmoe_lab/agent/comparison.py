"""What choosing is worth, beside what it stands on: every method, and a random one of those it chose among.

Three floors, each a set to choose from: all trajectories, those with a patch, and those whose patch also passes the tests that the
repositories ship. `python -m radmoe_lab.agent.comparison` compares on the 598 x 16 shipped trajectories, with the routing of their
boundaries and the log-probabilities as they were sampled, and writes the committed result.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import bootstrap_mean
from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe.pool.files import write_atomic
from radmoe.selection.rule import Rule
from radmoe.system.printing import console
from radmoe.types import Rollout, RolloutGroup, RouterShape, Step
from radmoe.vocab import Vocab
from radmoe_agent.candidates import Candidate
from radmoe_agent.patches import decide
from radmoe_lab.agent.records import AgentTrajectory, read_trajectories
from radmoe_lab.agent.verdicts import HIDDEN_FAIL, RESOLVED
from radmoe_lab.models import model_named, shipped_trajectories, weights

METHODS = ("patch-overlap", "rad", "likelihood", "rad+patch-overlap", "rad+likelihood")
COMMITTED = Path(__file__).parent / "comparison.json"
MODEL = "lab-agent-qwen"


class JudgedIssue(NamedTuple):
    """An issue: its trajectories, their routing, and the verdict on each (a word of `verdicts.VERDICTS`) by its run."""

    candidates: Sequence[Candidate]
    group: RolloutGroup | None
    verdicts: Mapping[int, str]


def shipped(model: str = MODEL, *, limit: int | None = None) -> Iterator[JudgedIssue]:
    """The issues of the shipped trajectories, with routing and log-probabilities as they were sampled."""
    vocab, config = Vocab.from_file(weights(model) / "tokenizer.json"), model_named(model).config()
    shape = RouterShape.from_config(config.to_dict())
    _, every = read_trajectories(shipped_trajectories(model))
    issues: defaultdict[str, list[AgentTrajectory]] = defaultdict(list)
    for one in every:
        issues[one.repository_id].append(one)
    for name, members in list(issues.items())[:limit]:
        candidates = [
            Candidate(
                name, one.number, one.exit_status, one.patch, model, None if one.patch.strip() else "its patch is empty"
            )
            for one in members
        ]
        rollouts = [_rollout(one, vocab, shape) for one in members]
        numbers = tuple(one.number for one in members)
        group = RolloutGroup(name, rollouts, shape, vocab, "agent", rollout_indices=numbers)
        yield JudgedIssue(candidates, group, {one.number: one.verdict for one in members})


def _rollout(one: AgentTrajectory, vocab: Vocab, shape: RouterShape) -> Rollout:
    """A trajectory with the rows that were kept. A step's tokens share its log-probability, which leaves their mean as it was."""
    boundary = vocab.added["</think>"]
    starts = np.cumsum([0, *(len(step.tokens) for step in one.steps)])
    rows, at = [], []
    for step, start in zip(one.steps, starts[:-1], strict=True):
        if step.boundary is not None:
            rows.append(step.boundary.astype(np.int16))
            at.append(start + int(np.flatnonzero(step.tokens == boundary)[-1]))
    logprobs = [np.full(len(step.tokens), step.logprob / len(step.tokens), np.float32) for step in one.steps]
    return Rollout(
        np.concatenate([step.tokens for step in one.steps]).astype(np.int32),
        np.array(rows, np.int16).reshape(-1, shape.layers, shape.top_k),
        sampled_logprobs=np.concatenate(logprobs),
        positions=np.array(at, np.int32),
        steps=tuple(Step((0,), int(start)) for start in starts[:-1]),
    )


def compare(issues: Iterable[JudgedIssue]) -> Table:
    """Every method on the issues that some trajectories resolve and some do not: on others nothing that chooses matters."""
    setting = Rule().settle("agent")
    columns: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    total = trajectories = 0
    for one in issues:
        total, trajectories = total + 1, trajectories + len(one.candidates)
        right = {run: word == RESOLVED for run, word in one.verdicts.items()}
        if len(set(right.values())) < 2:
            continue
        columns["of all", "a random one"].append(float(np.mean(list(right.values()))))
        for section, members in (("with a patch", one.candidates), ("and passing the visible tests", _passing(one))):
            usable = [right[each.run] for each in members if each.usable]
            columns[section, "a random one"].append(float(np.mean(usable)) if usable else 0.0)
            for method in METHODS:
                made = decide(members[0].instance_id, members, one.group, setting, "", method=method)
                columns[section, method].append(float(made.run is not None and right[made.run]))
    mixed = len(columns["of all", "a random one"])
    title = f"Percent resolved on {mixed:,} mixed of {total:,} issues, {trajectories:,} trajectories"
    rows = [
        Row(_cells(name, columns[section, name], columns[section, "a random one"]), section)
        for section, name in columns
    ]
    heads = (Column("chosen by"), Column("resolved", "95% CI"), Column("minus a random one of them", "95% CI"))
    return Table("agent-choice", title, heads, tuple(rows) if mixed > 1 else (), sections="chosen from")


def _passing(one: JudgedIssue) -> list[Candidate]:
    """The candidates, with those that fail the visible tests marked as unusable. If none passes, they are unchanged."""
    passes = {run for run, word in one.verdicts.items() if word in (RESOLVED, HIDDEN_FAIL)}
    if not passes:
        return list(one.candidates)
    return [
        each if not each.usable or each.run in passes else replace(each, problem="its patch fails the visible tests")
        for each in one.candidates
    ]


def _cells(name: str, hits: Sequence[float], floor: Sequence[float]) -> tuple[Cell, ...]:
    if len(hits) < 2:
        return (Cell(name), Cell(None), Cell(None))
    own, gain = bootstrap_mean(hits), bootstrap_mean(np.subtract(hits, floor))
    itself = Cell(None, note="itself") if name == "a random one" else Cell(gain.estimate, "points", gain.low, gain.high)
    return (Cell(name), Cell(own.estimate, "percent", own.low, own.high), itself)


def read_committed() -> Table:
    """The committed comparison."""
    from radmoe_studies.report.results import table_of

    table = table_of(json.loads(COMMITTED.read_text(encoding="utf-8")))
    heads = (table.columns[0], *(replace(column, interval="95% CI") for column in table.columns[1:]))
    return replace(table, columns=heads)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the table as JSON")
    parser.add_argument("--limit", type=int, help="only the first issues")
    given = parser.parse_args(arguments)
    from radmoe.cli.common import progress
    from radmoe.evaluation.screen import show_table

    issues = list(shipped(limit=given.limit))
    table = compare(progress(issues, [1] * len(issues), "comparing", "issues"))
    show_table(table, console())
    if given.out is not None:
        write_atomic(given.out, f"{json.dumps(table.to_json(), indent=1)}\n".encode())


if __name__ == "__main__":
    main()
