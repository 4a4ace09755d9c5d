"""A new user's path: programs that exist as texts are replayed, graded and evaluated, and no option says what they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import error, lines, radmoe
from radmoe.pool import open_pool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of lab-qwen's programs in a JSONL file that names no kind, replayed and graded."""
    root = tmp_path_factory.mktemp("texts")
    radmoe("capture", "--model", "lab-qwen", "--task", "code", "-n", 6, "--limit", 3, "--out", root / "sampled")
    pool = open_pool(root / "sampled")
    rows = pool.runs(["problem_id", "rollout_index", "prompt", "text"]).to_pylist()
    rows.sort(key=lambda row: (row["problem_id"], row["rollout_index"]))
    texts = [{"id": row["problem_id"], "prompt": row["prompt"], "text": row["text"]} for row in rows]
    (root / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    radmoe("replay", root / "texts.jsonl", "--model", "lab-qwen", "--raw", "--out", root / "pool")
    radmoe("grade", root / "pool")
    return root / "pool"


def test_evaluate_reads_programs_at_their_fence(replayed: Path) -> None:
    assert set(open_pool(replayed).kinds.values()) == {None}
    done = radmoe("evaluate", replayed, "--json")
    assert "kind code: inferred from ```" in done.stderr
    (pool,) = json.loads(done.stdout)["pools"]
    assert pool["kind"] == "code"
    coverage = next(t for t in json.loads(done.stdout)["tables"] if t["key"] == "coverage")
    located = coverage["columns"].index("located %")
    assert coverage["rows"][0]["cells"][located]["value"] > 0.9
    assert json.loads(radmoe("evaluate", replayed, "--kind", "code", "--json").stdout)["pools"][0]["kind"] == "code"


def test_select_reads_them_there_too(replayed: Path) -> None:
    rows = lines(radmoe("select", replayed, "--json"))
    assert {row["kind"] for row in rows} == {"code"}
    assert sum(sum(row["located"]) for row in rows) >= 16


def test_texts_are_selected_from_in_one_step(replayed: Path) -> None:
    texts = replayed.parent / "texts.jsonl"
    rows = lines(radmoe("select", texts, "--model", "lab-qwen", "--json"))
    assert [len(row["located"]) for row in rows] == [6, 6, 6]
    assert {row["kind"] for row in rows} == {"code"}
    assert "give --model CHECKPOINT to replay them" in error(radmoe("select", texts, expect=2))
    assert "leave it out to select from a pool" in error(radmoe("select", replayed, "--model", "lab-qwen", expect=2))


@pytest.mark.parametrize("command", ["evaluate", "select", "bench"])
def test_asking_for_boxes_in_programs_stops_with_one_line(command: str, replayed: Path) -> None:
    line = error(radmoe(command, replayed, "--kind", "math", expect=2))
    wanted = r": \\boxed\{, the marker of kind math, is in \d% of the rollouts, and ```, that of code, in 100%: give --kind code$"
    assert re.search(wanted, line)


def test_a_kind_given_at_replay_is_recorded(replayed: Path, tmp_path: Path) -> None:
    call = ("replay", replayed, "--model", "lab-qwen", "--out", tmp_path / "said")
    radmoe(*call, "--kind", "code")
    assert set(open_pool(tmp_path / "said").kinds.values()) == {"code"}
    done = radmoe("select", tmp_path / "said", "--json")
    assert done.stderr == ""
