"""What a pool can lack: a clear line, or a cell that says why. Never a crash, never a silent zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_pools import write_pool
from pools import graded_pool, labels
from radmoe.errors import InputError, PoolNotFound
from radmoe.evaluation import Report, build_report, evaluate_pool
from radmoe.evaluation.render import FORMATS
from radmoe.evaluation.screen import plain
from radmoe.evaluation.table import Cell
from radmoe.grading.labels import Label, write_labels
from radmoe.selection.rule import Rule
from radmoe.types import Rollout
from radmoe_lab.planted import PlantedGroup


def cell(shown: Report, table: str, row: str, column: str) -> Cell:
    found = next(t for t in shown.tables if t.key == table)
    at = [c.title for c in found.columns].index(column)
    return next(r.cells[at] for r in found.rows if r.cells[0].value == row)


def everything_renders(shown: Report) -> str:
    for render in FORMATS.values():
        assert shown.verdict.rstrip(".") in render(shown).replace("\\", "")
    return plain(shown)


def test_without_labels(shared_pool: Path) -> None:
    with pytest.raises(PoolNotFound, match=r"has no labels\.parquet: grade the pool first"):
        evaluate_pool(shared_pool)


def test_labels_of_other_problems(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "pool", made)
    write_labels(path, [label._replace(problem_id="elsewhere") for label in labels(made)])
    with pytest.raises(
        InputError, match=r"other problems \('elsewhere'\) than the pool's \('planted-0000'\).*radmoe grade"
    ):
        evaluate_pool(path)
    write_labels(path, [])
    with pytest.raises(InputError, match=r"other problems \(none\)"):
        evaluate_pool(path)


@pytest.mark.slow
def test_problems_without_all_labels_are_left_out_and_counted(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "pool", made)
    wanted = [label for label in labels(made) if label.problem_id != "planted-0001"]
    write_labels(path, [label for label in wanted if (label.problem_id, label.rollout_index) != ("planted-0002", 3)])
    (pool,) = evaluate_pool(path)
    assert pool.problem_ids == ("planted-0000", "planted-0003")
    text = everything_renders(build_report([pool]))
    assert "1 of 4 problems have no labels and are left out" in text
    assert "1 of 4 problems have labels for some rollouts only" in text
    write_labels(path, [label for label in wanted if label.rollout_index])
    with pytest.raises(InputError, match="has a label for every rollout"):
        evaluate_pool(path)


def test_no_rollout_with_an_answer(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "pool", made)
    write_labels(path, [Label(x.problem_id, x.rollout_index, None, False) for x in labels(made)])
    shown = build_report(evaluate_pool(path))
    for method in ("Cons@12", "DeepConf"):
        empty = cell(shown, "accuracy", method, "pool")
        assert empty.value is None
        assert empty.note == "no rollout has an answer that could be read"
    assert "--: no rollout has an answer that could be read." in everything_renders(shown)
    assert shown.verdict.startswith("Selection could not matter here")


def test_no_rollout_with_the_anchor(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    shown = build_report(evaluate_pool(path, rule=Rule(readout="delimiter:nowhere@16")))
    empty = cell(shown, "accuracy", "RAD", "pool")
    assert (empty.value, empty.note) == (None, "no rollout has the anchor of delimiter:nowhere@16 for kind math")
    assert (
        shown.verdict == "Nothing was selected here: no rollout has the anchor of delimiter:nowhere@16 for kind math."
    )
    everything_renders(shown)


def test_all_rollouts_identical(made: list[PlantedGroup], tmp_path: Path) -> None:
    alike = []
    for one in made:
        i = next(i for i, answer in enumerate(one.answers) if answer is not None)
        group = replace(one.group, rollouts=[one.group.rollouts[i]] * 5, rollout_indices=None)
        alike.append(replace(one, group=group, texts=[one.texts[i]] * 5, answers=[one.answers[i]] * 5))
    (pool,) = evaluate_pool(graded_pool(tmp_path / "pool", alike))
    assert pool.outcomes.picks["rad"].tolist() == [0] * 4  # ties go to the first
    shown = build_report([pool])
    text = everything_renders(shown)
    assert "in each of the 4 problems the rollouts are all right or all wrong" in text
    assert cell(shown, "coverage", "pool", "mixed").value == 0


def test_one_problem_only(made: list[PlantedGroup], tmp_path: Path) -> None:
    shown = build_report(evaluate_pool(graded_pool(tmp_path / "pool", made[:1])))
    rad = cell(shown, "accuracy", "RAD", "pool")
    assert rad.value in (0.0, 1.0)
    assert (rad.low, rad.high, rad.note) == (None, None, "one problem: no interval")
    assert cell(shown, "paired", "pool", "gap").note == "one problem: no interval"
    assert "on 1 problem " in everything_renders(shown) or "each of the 1 problem " in shown.verdict


def broken(rollout: Rollout) -> Rollout:
    """A rollout whose logprobs turn NaN behind the back of the check."""
    topk = np.array(rollout.topk_logprobs)
    made = replace(rollout, topk_logprobs=topk)
    topk[2, 0] = np.nan
    assert made.topk_logprobs is topk
    return made


def test_nan_logprobs(made: list[PlantedGroup], tmp_path: Path) -> None:
    rollouts = list(made[2].group.rollouts)
    rollouts[3] = broken(rollouts[3])
    bad = replace(made[2], group=replace(made[2].group, rollouts=rollouts))
    with pytest.MonkeyPatch.context() as patch:  # as a program that does not check what it adds writes it
        patch.setattr("radmoe.pool.writer.check_rollout", lambda *_: None)
        path = graded_pool(tmp_path / "pool", [*made[:2], bad, made[3]])
    (pool,) = evaluate_pool(path)
    shown = build_report([pool])
    reason = "rollout 3 of planted-0002: top-k logprobs contain NaN: recapture this rollout"
    for method in ("DeepConf", "RAD+DC"):
        empty = cell(shown, "accuracy", method, "pool")
        assert (empty.value, empty.note) == (None, reason)
    assert cell(shown, "accuracy", "RAD", "pool").value is not None
    assert f"--: {reason}." in everything_renders(shown)


def test_no_logprobs(made: list[PlantedGroup], tmp_path: Path) -> None:
    bare = [
        replace(one, group=replace(one.group, rollouts=[replace(r, topk_logprobs=None) for r in one.group.rollouts]))
        for one in made
    ]
    shown = build_report(evaluate_pool(graded_pool(tmp_path / "pool", bare)))
    assert cell(shown, "accuracy", "RAD+DC", "pool").note == "no top-k logprobs"
    paired = next(t for t in shown.tables if t.key == "paired")
    assert [row.section for row in paired.rows] == ["RAD - Cons@12", "RAD - likelihood", "RAD - text overlap"]
    everything_renders(shown)


def test_one_rollout_each(made: list[PlantedGroup], tmp_path: Path) -> None:
    lone = [
        replace(
            one,
            group=replace(one.group, rollouts=one.group.rollouts[:1], rollout_indices=None),
            texts=one.texts[:1],
            answers=one.answers[:1],
        )
        for one in made
    ]
    shown = build_report(evaluate_pool(graded_pool(tmp_path / "pool", lone)))
    assert cell(shown, "accuracy", "RAD", "pool").note.startswith("no two rollouts of a problem have the anchor")
    assert shown.verdict.startswith("Nothing was selected here")
    everything_renders(shown)


def test_nothing_to_report_on() -> None:
    with pytest.raises(InputError, match="no pool to report on"):
        build_report([])
