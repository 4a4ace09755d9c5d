"""The kind of an answer travels through a replay, and a contradiction is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny_moe
from radmoe.engines.replay import replay
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import InputError
from radmoe.pool import Profile, open_pool

FENCED = "so\n```python\nprint(1)\n```\n"
BOXED = "so it is \\boxed{1}"


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return tiny_moe.engine("qwen3-moe")


def file(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps({"prompt": "So", "text": BOXED} | record) for record in records))
    return path


def test_lines_say_the_kinds_of_their_problems(engine: TransformersEngine, tmp_path: Path) -> None:
    """One line of a problem suffices; problems keep the order of the file."""
    source = file(tmp_path / "r.jsonl", {"id": "z"}, {"id": "b", "kind": "code"}, {"id": "z", "kind": "math"})
    replay(source, engine, tmp_path / "pool", raw=True)
    pool = open_pool(tmp_path / "pool")
    assert pool.kinds == {"z": "math", "b": "code"}
    assert pool.problems == ["z", "b"]
    assert pool.group("b").kind == "code"
    replay(tmp_path / "pool", engine, tmp_path / "again")
    assert open_pool(tmp_path / "again").kinds == pool.kinds


def test_a_kind_is_given_to_what_has_none(engine: TransformersEngine, tmp_path: Path) -> None:
    source = file(tmp_path / "r.jsonl", {"id": "a"}, {"id": "b", "kind": "choice"})
    replay(source, engine, tmp_path / "silent", raw=True)
    assert open_pool(tmp_path / "silent").kinds == {"a": None, "b": "choice"}
    replay(source, engine, tmp_path / "choice", raw=True, kind="choice")
    assert open_pool(tmp_path / "choice").kinds == {"a": "choice", "b": "choice"}


def test_the_kind_decides_which_rows_are_kept(engine: TransformersEngine, tmp_path: Path) -> None:
    both = FENCED + BOXED
    source = file(
        tmp_path / "r.jsonl", {"id": "m", "kind": "math", "text": both}, {"id": "c", "kind": "code", "text": both}
    )
    replay(source, engine, tmp_path / "pool", raw=True, profile=Profile(readouts=("delimiter@2",)))
    pool = open_pool(tmp_path / "pool")
    spelled = {}
    for name in ("m", "c"):
        (rollout,) = pool.group(name).rollouts
        spelled[name] = pool.vocab.decode_bytes(rollout.token_ids[rollout.positions].tolist())
    assert b"boxed" in spelled["m"]
    assert spelled["c"].startswith(b"```")


@pytest.mark.parametrize(
    ("records", "kind", "line"),
    [
        ([{"id": "a", "kind": "sums"}], None, "line 1: unknown kind 'sums': use one of math"),
        (
            [{"id": "a", "kind": "math"}, {"id": "a", "kind": "code"}],
            None,
            "line 2 gives problem 'a' the kind code, an earlier line math: use one",
        ),
        (
            [{"id": "a", "kind": "math"}],
            "code",
            "says that problem 'a' is of kind math, --kind code contradicts it: leave --kind out",
        ),
        ([{"id": "a"}], "sums", "unknown kind 'sums'"),
    ],
)
def test_kinds_that_contradict_are_one_line(
    engine: TransformersEngine, tmp_path: Path, records: list[dict[str, Any]], kind: Any, line: str
) -> None:
    with pytest.raises(InputError, match=line):
        replay(file(tmp_path / "r.jsonl", *records), engine, tmp_path / "pool", kind=kind)
    assert not (tmp_path / "pool").exists()


def test_a_pool_is_contradicted_too(engine: TransformersEngine, tmp_path: Path) -> None:
    replay(file(tmp_path / "r.jsonl", {"id": "a", "kind": "math"}), engine, tmp_path / "pool", raw=True)
    with pytest.raises(InputError, match="problem 'a' is of kind math, --kind text contradicts it"):
        replay(tmp_path / "pool", engine, tmp_path / "again", kind="text")


def test_a_readout_that_needs_a_kind_asks_for_it_before_there_is_a_pool(
    engine: TransformersEngine, tmp_path: Path
) -> None:
    source = file(tmp_path / "r.jsonl", {"id": "a"})
    with pytest.raises(InputError, match="depends on its kind: give a kind"):
        replay(source, engine, tmp_path / "pool", profile=Profile(readouts=("delimiter@4",)))
    assert not (tmp_path / "pool").exists()
