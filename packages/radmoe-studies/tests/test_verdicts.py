"""Verdicts of hidden tests become labels of a pool of trajectories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planted_trajectories import write_runs
from radmoe.errors import InputError
from radmoe.grading.labels import read_labels
from radmoe_studies.verdicts import label_patches, read_reports, read_verdicts


def test_reports_of_swe_bench_are_read_in_the_order_of_the_runs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"resolved_ids": ["x"], "submitted_ids": ["x", "y"]}))
    logs = tmp_path / "logs" / "y"
    logs.mkdir(parents=True)
    (logs / "report.json").write_text(json.dumps({"y": {"resolved": True, "patch_exists": True}}))
    verdicts = read_reports([tmp_path / "a.json", tmp_path / "logs"])
    assert verdicts == {("x", 0): True, ("y", 0): False, ("y", 1): True}


def test_half_a_character_in_a_patch_costs_no_label(tmp_path: Path) -> None:
    write_runs(tmp_path, issues=1, n=2)
    label_patches(tmp_path / "pool", {("issue-000", 0): "+\ud800", ("issue-000", 1): "+1"}, {("issue-000", 0): True})
    assert read_labels(tmp_path / "pool")["issue-000"][0].answer == "+?"


def test_a_trajectory_without_a_patch_is_wrong_and_one_without_a_verdict_has_no_label(tmp_path: Path) -> None:
    write_runs(tmp_path, issues=2, n=2)
    patches = {("issue-000", 0): "+1\n", ("issue-000", 1): "", ("issue-001", 0): "+2\n", ("issue-001", 1): "+3\n"}
    done = label_patches(tmp_path / "pool", patches, {("issue-000", 0): True, ("issue-001", 1): True})
    assert (done.labelled, done.right, done.without) == (3, 2, 1)
    assert str(done).endswith("; 1 have none, and their issues are left out")
    labels = read_labels(tmp_path / "pool")
    assert labels["issue-000"][0].answer == "+1"
    assert (labels["issue-000"][1].answer, labels["issue-000"][1].correct) == (None, False)
    assert set(labels["issue-001"]) == {1}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"instance_id": "a", "run": 0}', "line 1 is no verdict"),
        ('{"instance_id": "a", "run": 0, "resolved": 1}', "line 1 is no verdict"),
        (
            '{"instance_id": "a", "run": 0, "resolved": true}\n{"instance_id": "a", "run": 0, "resolved": false}',
            "line 2 contradicts an earlier verdict on run 0 of 'a'",
        ),
    ],
)
def test_a_broken_file_of_verdicts_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "v.jsonl").write_text(text)
    with pytest.raises(InputError, match=line):
        read_verdicts(tmp_path / "v.jsonl")


def test_verdicts_on_other_issues_and_broken_reports_are_refused(tmp_path: Path) -> None:
    write_runs(tmp_path, issues=1, n=2)
    with pytest.raises(InputError, match="none of 1 verdicts is on a trajectory of"):
        label_patches(tmp_path / "pool", {("issue-000", 0): "+1", ("issue-000", 1): "+1"}, {("other", 0): True})
    (tmp_path / "r.json").write_text("{}")
    with pytest.raises(InputError, match="has no resolved_ids"):
        read_reports([tmp_path / "r.json"])
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(InputError, match="is no JSON"):
        read_reports([tmp_path / "r.json"])
    with pytest.raises(InputError, match="cannot read"):
        read_reports([tmp_path / "none.json"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no report.json of SWE-bench's"):
        read_reports([tmp_path / "empty"])
