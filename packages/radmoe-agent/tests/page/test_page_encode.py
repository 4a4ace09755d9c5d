"""An issue as a block: patches grouped and counted, the pick first, steps and compared boundaries where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planted_trajectories import write_runs
from radmoe.pool import open_pool
from radmoe.selection.anchors import find_all, spec_for
from radmoe.types import RolloutGroup
from radmoe_agent.candidates import Candidate, read_candidates
from radmoe_agent.page.encode import ACTION, ISSUE, PATCH, encode_issue
from radmoe_agent.patches import decide_all, record
from unpacked import unpack

NAME = "issue-000"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    write_runs(out, issues=1, n=7)
    return out


def parts(runs: Path) -> tuple[dict[str, Any], list[Candidate], RolloutGroup]:
    (decision,) = decide_all(runs)
    return record(decision), read_candidates(runs)[NAME], replace(open_pool(runs / "pool").group(NAME), kind="agent")


def test_equal_patches_are_one_and_the_picked_one_is_first(runs: Path) -> None:
    row, members, group = parts(runs)
    header, arrays = unpack(encode_issue(row, members, group).block)
    texts = [one["text"] for one in header["patches"]]
    assert len(set(texts)) == len(texts) == len({one.patch for one in members})
    assert row["run"] in header["patches"][0]["runs"]
    assert sorted(run for one in header["patches"] for run in one["runs"]) == list(range(7))
    for one in header["candidates"]:
        assert texts[one["patch"]] == members[one["run"]].patch.strip()
    assert arrays["alike"].shape == (len(texts), len(texts))
    scores = [max(row["candidates"][run]["score"] for run in one["runs"]) for one in header["patches"]]
    assert scores == sorted(scores, reverse=True)


def test_steps_and_compared_boundaries_are_where_the_pool_has_them(runs: Path) -> None:
    row, members, group = parts(runs)
    header, arrays = unpack(encode_issue(row, members, group).block)
    spec = spec_for("boundary", "agent", group.vocab)
    for i, rollout in enumerate(group.rollouts):
        begins = arrays["step_begin"]
        assert arrays["step_start"][begins[i] : begins[i + 1]].tolist() == list(rollout.starts)
        begins = arrays["compared_begin"]
        found = [anchor.start for anchor in find_all(spec, rollout.token_ids, group.vocab)]
        assert arrays["compared"][begins[i] : begins[i + 1]].tolist() == found
        assert len(header["acts"][i]) == len(rollout.steps)
        assert all(text.startswith("</think>") and len(text) <= ACTION + 1 for text in header["acts"][i])


def test_a_large_page_has_the_texts_of_the_pick_and_its_rival(runs: Path) -> None:
    row, members, group = parts(runs)
    header, _ = unpack(encode_issue(row, members, group, every_text=False).block)
    with_text = {run for run, acts in enumerate(header["acts"]) if acts is not None}
    assert with_text == {row["run"], header["patches"][1]["runs"][0]}


def test_one_that_cannot_be_submitted_stands_last_with_its_reason(runs: Path) -> None:
    row, members, group = parts(runs)
    left = row["candidates"][row["run"]] | {"problem": "its patch does not apply (x)", "score": None}
    none = {"run": None, "why": "nobody", "candidates": [left], "issue": "Mend \ud800"}
    encoded = encode_issue(row | none, members, group)
    header, _ = unpack(encoded.block)
    assert (header["pick"], header["issue"], header["written"]) == (None, "Mend \ud800", True)
    assert header["patches"][0]["problem"] == "its patch does not apply (x)"
    assert (encoded.entry["usable"], encoded.entry["patches"], encoded.entry["pick"]) == (0, 0, None)
    assert encoded.entry["left"] == ["its patch does not apply"]


def test_without_routing_there_are_no_steps_and_long_texts_are_cut(runs: Path) -> None:
    row, members, _ = parts(runs)
    long = [replace(one, patch="+" * (PATCH + 5)) for one in members]
    header, arrays = unpack(encode_issue(row | {"issue": "i" * (ISSUE + 3)}, long, None).block)
    assert (header["issue_cut"], len(header["issue"])) == (3, ISSUE)
    assert [(one["cut"], len(one["text"]), len(one["runs"])) for one in header["patches"]] == [(5, PATCH, 7)]
    assert (arrays["lengths"] == 0).all()
    assert header["acts"] == [None] * 7


def test_verdicts_are_shown_and_counted_where_there_are_any(runs: Path) -> None:
    row, members, group = parts(runs)
    known = {run: run % 2 == 0 for run in range(6)}
    encoded = encode_issue(row, members, group, verdicts=known)
    assert unpack(encoded.block)[0]["resolved"] == [True, False, True, False, True, False, None]
    assert (encoded.entry["judged"], encoded.entry["right"]) == (6, 3)
    assert encoded.entry["resolved"] == known.get(row["run"])
    plain = encode_issue(row, members, group)
    assert unpack(plain.block)[0]["resolved"] is None
    assert plain.entry["judged"] == 0
