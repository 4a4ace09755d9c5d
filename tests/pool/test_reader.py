"""What the reader refuses, and that it reads no more than it is asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from planted_pools import RECIPE
from radmoe.errors import InputError, PoolCorrupt, PoolNotFound, PoolVersion, RolloutError
from radmoe.pool import files, open_pool, schema
from radmoe.pool.columns import ColumnReader
from radmoe.selection.selector import select
from radmoe_lab.planted import PlantedGroup

SHARD = "token_data_00000"


def rewrite(path: Path, **change: object) -> None:
    """Change a sealed JSON document, with a checksum that fits."""
    body = json.loads(path.read_bytes())
    body.pop("crc32")
    path.write_bytes(schema.seal_json(body | change))


def touch_up(pool: Path) -> None:
    """Make pool.json agree with a changed shard description: the lie is consistent."""
    meta = pool / SHARD / schema.SHARD_META
    entry = {"bytes": meta.stat().st_size, "crc32": files.crc32_file(meta), "runs": len(RECIPE_RUNS)}
    rewrite(pool / schema.POOL_JSON, shards={SHARD: entry})


RECIPE_RUNS = range(RECIPE.problems * RECIPE.rollouts)


def test_windows_equal_slices_of_the_whole(made: list[PlantedGroup], shared_pool: Path) -> None:
    stored = open_pool(shared_pool).group(made[1].group.problem_id).rollouts
    for original, lazy in zip(made[1].group.rollouts, stored, strict=True):
        for start, stop in ((0, 1), (3, 19), (len(original) - 5, len(original) + 20)):
            ids, weights = lazy.rows(start, stop)
            assert np.array_equal(ids, original.expert_ids[start:stop])
            assert np.array_equal(weights, original.weights[start:stop])


def test_selecting_decompresses_only_windows(shared_pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, int] = {}
    read = ColumnReader.read_spans

    def counted(self: ColumnReader, spans: list[tuple[int, int]]) -> object:
        rows[self.column.name] = rows.get(self.column.name, 0) + sum(stop - start for start, stop in spans)
        return read(self, spans)

    monkeypatch.setattr(ColumnReader, "read_spans", counted)
    selection = select(open_pool(shared_pool).group("planted-0000"))
    located = int(selection.located.sum())
    assert 0 < rows["moe_topk_expert_ids"] <= 16 * located
    assert rows["moe_topk_expert_weights"] == rows["moe_topk_expert_ids"]
    assert set(rows) == {"moe_topk_expert_ids", "moe_topk_expert_weights", "tok_token_ids"}


def test_the_binary_kernel_leaves_the_weights_on_disk(shared_pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    read = ColumnReader.read_spans
    monkeypatch.setattr(ColumnReader, "read_spans", lambda self, spans: seen.add(self.column.name) or read(self, spans))
    select(open_pool(shared_pool).group("planted-0000"), kernel="binary")
    assert seen == {"moe_topk_expert_ids", "tok_token_ids"}


def test_an_unknown_problem_names_some_there_are(shared_pool: Path) -> None:
    with pytest.raises(InputError, match="no problem 'x'; it has 4, such as 'planted-0000'"):
        open_pool(shared_pool).group("x")


def test_no_pool_there(tmp_path: Path) -> None:
    with pytest.raises(PoolNotFound, match="there is no pool at"):
        open_pool(tmp_path / "nowhere")


def test_a_newer_schema_asks_for_an_upgrade(pool_path: Path) -> None:
    rewrite(pool_path / schema.POOL_JSON, schema_version=99)
    with pytest.raises(PoolVersion, match="schema version 99, this radmoe reads version 2: upgrade"):
        open_pool(pool_path)


@pytest.mark.parametrize("name", ["runs.parquet", "tokenizer.json", "tokenizer.bytes"])
def test_a_missing_file_is_named(pool_path: Path, name: str) -> None:
    (pool_path / name).unlink()
    with pytest.raises(PoolCorrupt, match=f"{name} is missing"):
        open_pool(pool_path)


@pytest.mark.parametrize(
    "name",
    ["moe_meta.json", "moe_row_ptr.int64", "moe_topk_expert_ids.int16.b2", "tok_token_ids.int32.b2"],
)
def test_a_missing_or_truncated_shard_file_is_named(pool_path: Path, name: str) -> None:
    file = pool_path / SHARD / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PoolCorrupt, match=f"{name} has .* bytes"):
        open_pool(pool_path)
    file.unlink()
    with pytest.raises(PoolCorrupt, match=f"{name} is missing"):
        open_pool(pool_path)


def test_a_missing_shard_is_named(pool_path: Path) -> None:
    shutil.rmtree(pool_path / SHARD)
    with pytest.raises(PoolCorrupt, match=f"{SHARD}.* is missing"):
        open_pool(pool_path)


@pytest.mark.parametrize("change", [lambda p: p[::-1], lambda p: p + 1, lambda p: np.r_[p[:3], p[2], p[4:]]])
def test_a_row_pointer_that_does_not_rise_from_zero_is_refused(pool_path: Path, change: object) -> None:
    file = pool_path / SHARD / "moe_row_ptr.int64"
    np.asarray(change(np.fromfile(file, "<i8")), "<i8").tofile(file)
    with pytest.raises(PoolCorrupt, match=r"moe_row_ptr\.int64 (is not a row pointer|does not match)"):
        open_pool(pool_path)


def test_a_pointer_with_an_empty_run_is_refused_even_when_checksums_agree(pool_path: Path) -> None:
    file = pool_path / SHARD / "moe_row_ptr.int64"
    pointer = np.fromfile(file, "<i8")
    pointer[3] = pointer[2]
    pointer.tofile(file)
    entry = {"bytes": file.stat().st_size, "crc32": files.crc32_file(file)}
    rewrite(pool_path / SHARD / schema.SHARD_META, pointers={"moe_row_ptr": entry})
    touch_up(pool_path)
    with pytest.raises(PoolCorrupt, match="tokens, its row pointer 0"):
        open_pool(pool_path)


def test_ids_that_do_not_fit_the_router_are_refused_when_read(pool_path: Path) -> None:
    rewrite(pool_path / SHARD / schema.SHARD_META, experts=4)
    touch_up(pool_path)
    rewrite(pool_path / schema.POOL_JSON, experts=4)
    group = open_pool(pool_path).group("planted-0000")
    with pytest.raises(RolloutError, match=r"rollout 0 of problem 'planted-0000' hold \d+ .* outside \[0, 4\)"):
        select(group)
    with pytest.raises(PoolCorrupt, match=r"run 0: expert_ids hold \d+ .* outside \[0, 4\)"):
        group.rollouts[0].expert_ids  # noqa: B018


def test_a_description_that_lacks_a_field_is_refused(pool_path: Path) -> None:
    body = json.loads((pool_path / schema.POOL_JSON).read_bytes())
    for name in body.keys() - {"crc32", "schema_version", "columns", "problems", "vocab"}:
        (pool_path / schema.POOL_JSON).write_bytes(
            schema.seal_json({k: v for k, v in body.items() if k not in (name, "crc32")})
        )
        with pytest.raises(PoolCorrupt, match=r"pool\.json"):
            open_pool(pool_path)


def test_opening_parses_no_tokenizer(shared_pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from radmoe.vocab import Vocab

    monkeypatch.setattr(Vocab, "from_json", lambda *_: pytest.fail("parsed tokenizer.json"))
    pool = open_pool(shared_pool)
    assert len(pool.group("planted-0000")) == RECIPE.rollouts
    assert pool.vocab.json == (shared_pool / "tokenizer.json").read_bytes()
