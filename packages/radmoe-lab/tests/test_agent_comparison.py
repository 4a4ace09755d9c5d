"""What choosing is worth beside a random one of those it chose among, and the committed result."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from radmoe.evaluation.render import interval_text, value_text
from radmoe.evaluation.table import Table
from radmoe_agent.candidates import Candidate
from radmoe_lab.agent.comparison import METHODS, MODEL, JudgedIssue, compare, read_committed, shipped
from radmoe_lab.agent.records import read_trajectories
from radmoe_lab.agent.verdicts import HIDDEN_FAIL, NO_PATCH, RESOLVED, VISIBLE_FAIL
from radmoe_lab.models import shipped_trajectories


def judged(name: str, *patches: tuple[str, str]) -> JudgedIssue:
    """An issue without routing: the patch of each trajectory and the verdict on it."""
    members = [
        Candidate(name, run, "Submitted", patch, problem=None if patch else "its patch is empty")
        for run, (patch, _) in enumerate(patches)
    ]
    return JudgedIssue(members, None, {run: word for run, (_, word) in enumerate(patches)})


def values(table: Table) -> dict[tuple[str, str], object]:
    return {(row.section, str(row.cells[0].value)): row.cells[1].value for row in table.rows}


def test_every_method_stands_beside_a_random_one_of_those_it_chose_among() -> None:
    issues = [
        judged("a", ("+x = 1", RESOLVED), ("+x = 1", RESOLVED), ("+x = 2 or y", VISIBLE_FAIL), ("", NO_PATCH)),
        judged("b", ("+x = 1", HIDDEN_FAIL), ("+x = 1", HIDDEN_FAIL), ("+z(3)", RESOLVED), ("+z(4)", VISIBLE_FAIL)),
        judged("c", ("+x = 1", RESOLVED), ("+x = 2", RESOLVED)),
    ]
    table = compare(issues)
    assert table.title == "Percent resolved on 2 mixed of 3 issues, 10 trajectories"
    made = values(table)
    assert made["of all", "a random one"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert made["with a patch", "a random one"] == pytest.approx((2 / 3 + 1 / 4) / 2)
    assert made["and passing the visible tests", "a random one"] == pytest.approx((1 + 1 / 3) / 2)
    assert made["with a patch", "patch-overlap"] == 0.5
    gains = [row.cells[2].value for row in table.rows if row.cells[0].value == "patch-overlap"]
    assert gains == pytest.approx([0.5 - (2 / 3 + 1 / 4) / 2, 0.5 - (1 + 1 / 3) / 2])


def test_issues_that_all_or_none_resolve_leave_nothing_to_compare() -> None:
    assert compare([judged("a", ("+x", VISIBLE_FAIL), ("", NO_PATCH), ("+x", VISIBLE_FAIL))]).rows == ()


@pytest.mark.slow
def test_the_committed_floors_are_those_of_the_shipped_trajectories() -> None:
    _, every = read_trajectories(shipped_trajectories(MODEL))
    words: defaultdict[str, list[str]] = defaultdict(list)
    for one in every:
        words[one.repository_id].append(one.verdict)
    mixed = [own for own in words.values() if len({word == RESOLVED for word in own}) == 2]
    table = read_committed()
    assert table.title.startswith(f"Percent resolved on {len(mixed)} mixed of {len(words)} issues")
    made = values(table)
    assert [name for section, name in made if section == "with a patch"] == ["a random one", *METHODS]

    def share(own: list[str], *left: str) -> float:
        kept = [word for word in own if word not in left]
        return sum(word == RESOLVED for word in kept) / len(kept)

    assert made["of all", "a random one"] == pytest.approx(np.mean([share(own) for own in mixed]))
    assert made["with a patch", "a random one"] == pytest.approx(np.mean([share(own, NO_PATCH) for own in mixed]))


def test_the_docs_have_the_committed_figures() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_committed().rows:
        name, *cells = row.cells
        lines[f"{row.section == 'of all'} {name.value}"] += [
            f"{value_text(cell)} {interval_text(cell)}" for cell in cells
        ]
    shown = {tuple(part.strip() for part in line.split("|")[2:6]) for line in page.splitlines() if line.count("|") == 6}
    for figures in lines.values():
        known = [figure for figure in figures if not figure.startswith("--")]
        assert any(known == [part for part in row if part] for row in shown), known


@pytest.mark.slow
def test_shipped_trajectories_have_the_rows_of_their_boundaries() -> None:
    (issue,) = shipped(limit=1)
    assert issue.group is not None
    assert len(issue.group) == len(issue.candidates) == 16
    boundary = issue.group.vocab.added["</think>"]
    for rollout in issue.group.rollouts:
        assert rollout.positions is not None
        assert (np.asarray(rollout.token_ids)[rollout.positions] == boundary).all()
    table = compare([issue, issue])
    assert {row.cells[0].value for row in table.rows} == {"a random one", *METHODS}
