"""Pools whose checksums are all right and whose content is not: `verify` says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planted_pools import faults_of
from pool_attacks import SHARD, forge_runs, relist, reseal
from radmoe.errors import PoolCorrupt
from radmoe.grading.labels import Label, read_labels, write_labels
from radmoe.pool import PoolWriter, Profile, open_pool, schema
from radmoe.pool.tables import LABEL_FIELDS, write_table
from radmoe.types import Rollout, Step
from radmoe_lab.planted import PlantedGroup
from small_pools import rollout, writer

Rows = list[dict[str, Any]]
META = f"{SHARD}/moe_meta.json"


def test_labels_of_all_rollouts_are_no_fault(pool_path: Path, made: list[PlantedGroup]) -> None:
    write_labels(pool_path, [Label(m.group.problem_id, i, a, True) for m in made for i, a in enumerate(m.answers)])
    assert faults_of(pool_path) == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([Label("nobody", 0, "1", True)], "1 labels are of rollouts that are not in the pool; rollouts nobody#0"),
        ([Label("planted-0000", 99, "1", True)], "not in the pool; rollouts planted-0000#99"),
        ([Label("planted-0000", 0, "1", True), Label("planted-0000", 0, "2", False)], "more than one label"),
    ],
)
def test_labels_that_fit_no_rollout_are_a_fault(pool_path: Path, labels: list[Label], message: str) -> None:
    write_labels(pool_path, labels)
    (fault,) = faults_of(pool_path)
    assert fault.startswith("labels.parquet: ")
    assert message in fault


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_garbage_for_labels_is_a_fault(pool_path: Path, garbage: bytes) -> None:
    (pool_path / "labels.parquet").write_bytes(garbage)
    (fault,) = faults_of(pool_path)
    assert "grade the pool again" in fault


def test_labels_with_other_columns_or_holes_are_refused(pool_path: Path) -> None:
    names = {"problem_id": ["planted-0000"], "rollout_index": [0], "answer": ["1"]}
    for correct in (["yes"], [1]):
        write_table(pa.table(names | {"correct": correct}), pool_path / "labels.parquet")
        assert "no column correct of type bool" in faults_of(pool_path)[0]
        with pytest.raises(PoolCorrupt, match="no column correct of type bool"):
            read_labels(pool_path)
    write_table(pa.table(names | {"correct": [None]}, schema=LABEL_FIELDS), pool_path / "labels.parquet")
    assert "do not say whether" in faults_of(pool_path)[0]
    with pytest.raises(PoolCorrupt, match="without a problem, a rollout or a verdict"):
        read_labels(pool_path)


def swap_rows(rows: Rows) -> None:
    rows[1]["row"], rows[1]["tokens"] = rows[0]["row"], rows[0]["tokens"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1].update(rollout_index=0), "listed more than once; rollouts planted-0000#0"),
        (swap_rows, "several runs point at one row of a shard; rollouts planted-0000#0, planted-0000#1"),
        (lambda rows: rows[1].update(rollout_index=None), "a run without problem or rollout index"),
        (lambda rows: rows[1].update(rollout_index=-4), "a run without problem or rollout index"),
        (lambda rows: rows[1].update(problem_id="new"), "says 4 problems, runs.parquet has 5"),
        (lambda rows: rows[1].update(run_id=7), "run_id does not count up"),
        (lambda rows: rows[1].update(kind="poem"), "poem"),
        (lambda rows: rows[1].update(kind="code"), "has more than one kind: ['code', 'math']"),
        (lambda rows: rows[1].update(steps=[{"given": [1], "start": 0}]), "says steps is False"),
        (lambda rows: rows[1].update(problem_id=None), "a run without problem or rollout index"),
        (lambda rows: rows[1].update(shard=7), "run 1 of shard 7, which is not there"),
        (lambda rows: rows[1].update(row=10**6), "names run 1000000 of shard 0"),
        (lambda rows: rows[1].update(tokens=10**6), "1000000 tokens, its row pointer"),
        (lambda rows: rows.pop(), "does not list 48 runs"),
    ],
)
def test_a_run_table_that_makes_no_sense_is_a_fault(
    pool_path: Path, change: Callable[[Rows], object], message: str
) -> None:
    forge_runs(pool_path, change)
    assert any(message in fault for fault in faults_of(pool_path)), faults_of(pool_path)


@pytest.mark.parametrize("name", ["run_id", "kind", "rollout_index", "steps", "text", "extra"])
def test_a_run_table_that_lacks_a_column_is_a_fault(pool_path: Path, name: str) -> None:
    table = open_pool(pool_path).runs()
    for changed in (table.drop_columns([name]), table.set_column(0, name, pa.array([1.5] * len(table)))):
        write_table(
            changed.select(list(dict.fromkeys(changed.column_names))) if name == "run_id" else changed,
            pool_path / "runs.parquet",
        )
        relist(pool_path, "runs.parquet")
        assert faults_of(pool_path)


@pytest.mark.parametrize(
    ("steps", "given"),
    [
        ([{"start": 3, "kept": None}], [[1]]),
        ([{"start": 0, "kept": None}, {"start": 10**9, "kept": None}], [[1], [1]]),
        ([{"start": 0, "kept": None}], [[10**9]]),
        ([{"start": 0, "kept": None}, {"start": 5, "kept": 7}], [[1], [1]]),  # of 1 + 5 tokens
        ([{"start": 0, "kept": None}], [[1], [2]]),
        ([{"start": 0, "kept": None}], None),
        ([{"start": 0, "kept": None}], [None]),
        ([{"start": None, "kept": None}], [[1]]),
        ([None], [[1]]),
    ],
)
def test_steps_that_no_trajectory_has_are_a_fault(
    tmp_path: Path, made: list[PlantedGroup], steps: Any, given: Any
) -> None:
    group = made[0].group
    one = group.rollouts[0]
    rollout = Rollout(one.token_ids, one.expert_ids, one.weights, steps=(Step((1, 2), 0), Step((3,), 9, 4)))
    with PoolWriter(tmp_path / "p", shape=group.shape, vocab=group.vocab, model="m") as writer:
        writer.add("a", rollout)
    assert faults_of(tmp_path / "p") == []
    assert open_pool(tmp_path / "p").group("a").rollouts[0].starts.tolist() == [0, 9]
    forge_runs(tmp_path / "p", lambda rows: rows[0].update(steps=steps, given=given))
    (fault,) = faults_of(tmp_path / "p")
    assert fault.startswith("runs.parquet: ")
    assert "a#0" in fault
    if None in [steps[0], *(steps[0] or {"start": 0}).values()][:2] or given == [None]:
        with pytest.raises(PoolCorrupt, match="a step lacks"):
            open_pool(tmp_path / "p").group("a").rollouts[0].steps  # noqa: B018
    if steps[-1] is None or steps[-1]["start"] is None or steps[-1]["start"] in (3, 10**9):
        with pytest.raises(PoolCorrupt, match=r"steps must start|a step lacks"):
            open_pool(tmp_path / "p").group("a").rollouts[0].starts  # noqa: B018


@pytest.mark.parametrize("garbage", [b"{}", b"garbage", b"[" * 10_000])
def test_a_tokenizer_that_is_not_the_compiled_one_is_a_fault(pool_path: Path, garbage: bytes) -> None:
    (pool_path / "tokenizer.json").write_bytes(garbage)
    relist(pool_path, "tokenizer.json")
    (fault,) = faults_of(pool_path)
    assert fault.startswith("tokenizer.json: ")


def test_another_vocabulary_than_was_named_is_a_fault(pool_path: Path) -> None:
    reseal(pool_path / "pool.json", vocab="0" * 64)
    assert faults_of(pool_path) == ["tokenizer.bytes: is another vocabulary than pool.json names"]
    spelling = (pool_path / "tokenizer.json").read_text().replace('"content"', '"content "')
    (pool_path / "tokenizer.json").write_text(spelling)
    relist(pool_path, "tokenizer.json")
    assert any(fault.startswith("tokenizer.json: ") for fault in faults_of(pool_path))


@pytest.mark.parametrize("name", ["moe_topk_expert_ids", "tok_token_ids", "moe_topk_expert_weights"])
def test_a_shard_that_lacks_a_column_is_refused(pool_path: Path, name: str) -> None:
    columns = schema.read_json(pool_path / META)["columns"]
    del columns[name]
    reseal(pool_path / META, pool=pool_path, columns=columns)
    with pytest.raises(PoolCorrupt, match=rf"do not have the same columns \({name}\)"):
        open_pool(pool_path)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("pool.json", {"layers": 2}, "gives moe_topk_expert_ids the shape"),
        ("pool.json", {"experts": 4096}, "is of router"),
        (META, {"layers": 1}, "is of router"),
        (META, {"provenance": None}, "gives provenance as None, it must be an object"),
        (META, {"captured_bytes": "all"}, "gives captured_bytes as 'all'"),
        ("pool.json", {"columns": {}}, "its profile needs"),
        ("pool.json", {"columns": {"../x": []}}, "no file of a pool"),
    ],
)
def test_descriptions_that_disagree_are_refused(
    pool_path: Path, file: str, change: dict[str, Any], message: str
) -> None:
    reseal(pool_path / file, pool=pool_path if file == META else None, **change)
    (fault,) = faults_of(pool_path)
    assert message in fault


@pytest.mark.parametrize(
    "change",
    [
        {"per_row": 0},
        {"per_row": 3},
        {"rows": -1},
        {"rows": "9"},
        {"bytes": None},
        {"frame_head": -1},
        {"frame_data": 10**15},
        {"chunk_bytes": 0},
        {"chunks": []},
        {"chunks": [[1]]},
        {"chunks": [["a", 1]]},
        {"crc32": 1.5},
        {"dtype": "float64"},
        {"file": "/etc/passwd"},
    ],
)
def test_a_column_whose_description_contradicts_itself_is_refused(pool_path: Path, change: dict[str, Any]) -> None:
    columns = schema.read_json(pool_path / META)["columns"]
    columns["moe_topk_expert_ids"] |= change
    reseal(pool_path / META, pool=pool_path, columns=columns)
    with pytest.raises(PoolCorrupt):
        open_pool(pool_path)


@pytest.mark.parametrize("change", [{"model": 3}, {"task": ["x"]}, {"style": {}}, {"sampling": [1]}, {"profile": None}])
def test_a_run_record_of_other_types_is_refused(pool_path: Path, change: dict[str, Any]) -> None:
    reseal(pool_path / "pool.json", run=schema.read_json(pool_path / "pool.json")["run"] | change)
    with pytest.raises(PoolCorrupt):
        open_pool(pool_path)


def test_a_missing_pointer_is_refused_even_where_it_points_at_nothing(tmp_path: Path) -> None:
    """`verify` found nothing wrong with such a pool, and `select` ended in an IndexError."""
    path = tmp_path / "pool"
    with writer(path, profile=Profile(readouts=("boundary@16",))) as pool:
        pool.add("p", rollout(9), rollout_index=0)
    pointers = schema.read_json(path / META)["pointers"]
    del pointers[schema.MOE_PTR]
    reseal(path / META, pool=path, pointers=pointers)
    with pytest.raises(PoolCorrupt, match="its pointer ends elsewhere"):
        open_pool(path)
