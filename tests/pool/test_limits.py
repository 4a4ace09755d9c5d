"""What a file claims is checked before memory is taken for it, and a user can raise the limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planted_pools import faults_of
from pool_attacks import SHARD, abandoned_pool
from radmoe.errors import InputError, PoolCorrupt, PoolTooLarge
from radmoe.pool import Pool, PoolWriter, open_pool, schema
from radmoe.pool.limits import DEFAULT, VARIABLE, check_claim, check_json, memory_limit
from radmoe.pool.tables import LABEL_FIELDS, read_table
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", DEFAULT), ("2G", 2 << 30), ("800M", 800 << 20), ("10 kB", 10 << 10), ("1GiB", 1 << 30), ("7", 7)],
)
def test_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, limit: int) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert memory_limit() == limit


@pytest.mark.parametrize("text", ["much", "-1", "0", "1.5G", "5 X"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, pool_path: Path, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InputError, match=f"{VARIABLE} is .*such as 2G"):
        open_pool(pool_path)


def test_a_claim_is_allowed_below_the_limit_or_where_bytes_account_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1M")
    check_claim(Path("x"), "all", 1 << 20)
    check_claim(Path("x"), "all", 30 << 20, 1 << 20)
    with pytest.raises(
        PoolTooLarge, match=r"^x claims 9 rows, which takes 40.0 MB of memory, and has 1.0 MB on disk: .*=1G$"
    ):
        check_claim(Path("x"), "9 rows", 40 << 20, 1 << 20)


def test_a_raised_limit_opens_what_was_refused(monkeypatch: pytest.MonkeyPatch, pool_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "1k")
    with pytest.raises(PoolTooLarge, match=VARIABLE):
        open_pool(pool_path)
    monkeypatch.setenv(VARIABLE, "1M")
    assert len(open_pool(pool_path)) == 48


def test_json_is_measured_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1M")
    check_json(Path("x"), b'"' + b"x" * 400_000 + b'"')
    with pytest.raises(PoolTooLarge):
        check_json(Path("x"), b"[" + b"[]," * 50_000 + b"0]")


def labels(count: int, answer: str = "1") -> pa.Table:
    return pa.Table.from_pylist(
        [{"problem_id": "a", "rollout_index": 0, "answer": answer, "correct": True}] * count, schema=LABEL_FIELDS
    )


@pytest.mark.parametrize(
    ("table", "options", "claim"),
    [
        (labels(50_000), {}, "claims 50,000 rows and 200,000 values"),
        (labels(40, "x" * 30_000), {}, "bytes of rows"),
        (labels(1, "x" * 300_000), {"use_dictionary": False, "write_statistics": False}, "claims a page of 300,"),
    ],
)
def test_few_bytes_of_parquet_do_not_become_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: pa.Table, options: dict[str, bool], claim: str
) -> None:
    pq.write_table(table, tmp_path / "labels.parquet", compression="zstd", **options)
    assert read_table(tmp_path / "labels.parquet", LABEL_FIELDS).equals(table)
    monkeypatch.setenv(VARIABLE, "1M")
    with pytest.raises(PoolTooLarge, match=claim):
        read_table(tmp_path / "labels.parquet", LABEL_FIELDS)


def test_an_encoding_that_repeats_texts_is_refused(tmp_path: Path) -> None:
    encoding = {"answer": "DELTA_BYTE_ARRAY"}
    pq.write_table(labels(3), tmp_path / "labels.parquet", use_dictionary=False, column_encoding=encoding)
    with pytest.raises(PoolCorrupt, match="the encoding 7"):
        read_table(tmp_path / "labels.parquet", LABEL_FIELDS)


def test_rows_are_those_that_have_the_values(pool_path: Path) -> None:
    pool = open_pool(pool_path)
    rows = pool.runs(["tokens"], {"problem_id": "planted-0001", "rollout_index": 3})
    whole = [row for row in pool.runs().to_pylist() if (row["problem_id"], row["rollout_index"]) == ("planted-0001", 3)]
    assert rows.to_pylist() == [{"tokens": whole[0]["tokens"]}]
    assert len(pool.runs(["tokens"], {"problem_id": "nobody"})) == 0


def test_columns_of_nothing_but_zeros_are_read_and_verified(tmp_path: Path) -> None:
    """blosc2 keeps no bytes of a chunk of zeros: log-probabilities at temperature 0, for instance."""
    length = 1_200_000  # more than a chunk of 4 MiB
    logprobs = np.zeros(length, np.float32)
    logprobs[-1] = -1
    with PoolWriter(tmp_path / "p", shape=RouterShape(1, 2, 1), vocab=planted.vocab(), model="m") as writer:
        ids = np.arange(length).reshape(-1, 1, 1) % 2
        writer.add("a", Rollout(np.zeros(length, np.int32), ids.astype(np.int16), None, logprobs))
    assert faults_of(tmp_path / "p") == []
    pool = open_pool(tmp_path / "p")
    assert pool.shards[0].meta["columns"]["tok_sampled_logprob"]["chunks"][0] == [0, 0]
    (rollout,) = pool.group("a").rollouts
    assert rollout.sampled_logprobs is not None
    assert np.array_equal(rollout.sampled_logprobs, logprobs)
    assert np.array_equal(rollout.expert_ids, ids)


def test_a_shard_of_zeros_that_claims_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    length = 1_200_000
    with PoolWriter(tmp_path / "p", shape=RouterShape(1, 2, 1), vocab=planted.vocab(), model="m") as writer:
        writer.add("a", Rollout(np.zeros(length, np.int32), np.zeros((length, 1, 1), np.int16)))
    assert len(open_pool(tmp_path / "p")) == 1
    monkeypatch.setenv(VARIABLE, "4M")
    with pytest.raises(PoolTooLarge, match="claims columns of 7,200,000 bytes"):
        open_pool(tmp_path / "p")


def test_a_journal_that_does_not_begin_as_one_is_not_thrown_away(tmp_path: Path) -> None:
    path = abandoned_pool(tmp_path / "p")
    journal = path / SHARD / schema.JOURNAL
    content = journal.read_bytes().replace(b"RJ02", b"RJ99")
    journal.write_bytes(content)
    with pytest.raises(PoolCorrupt, match="begins with b'RJ99', not with b'RJ02'"):
        Pool.recover(path)
    assert journal.read_bytes() == content
