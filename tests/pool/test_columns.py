"""A column gives back the rows that were written, whatever range is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import pytest

from radmoe.pool.columns import ColumnReader, ColumnWriter, compression
from radmoe.pool.schema import BLOCK_BYTES, EXPERT_IDS, EXPERT_WEIGHTS, TOKEN_IDS, StoredColumn


def written(path: Path, column: StoredColumn, rows: np.ndarray, top_k: int) -> ColumnReader:
    writer = ColumnWriter(path, column, rows.shape[1], compression(column, top_k, sorted_experts=False))
    writer.append(rows)
    return ColumnReader(path, column, writer.finish())


@pytest.mark.parametrize(
    ("column", "per_row", "rows"),
    [
        (TOKEN_IDS, 1, (1 << 20) + 5000),  # two chunks
        (EXPERT_IDS, 32 * 8, 9_000),  # 32 rows are a block
        (EXPERT_IDS, 16 * 8, 17_001),
        (EXPERT_WEIGHTS, 16 * 8, 17_001),
    ],
)
def test_a_range_as_long_as_a_block_is_read_from_where_it_begins(
    column: StoredColumn, per_row: int, rows: int, tmp_path: Path
) -> None:
    """C-Blosc2 3.3.5 gives a whole block for a slice of its length, without an error."""
    rng = np.random.default_rng(3)
    data = rng.integers(0, 60, (rows, per_row)).astype(column.dtype)
    reader = written(tmp_path / column.file, column, data, 8)
    row_bytes = per_row * column.dtype.itemsize
    block = BLOCK_BYTES // row_bytes
    last = rows * row_bytes % (4 << 20) % (block * row_bytes) // row_bytes  # the last block of the last chunk
    for length in {1, 2, block - 1, block, block + 1, 2 * block, max(last, 1)}:
        starts = rng.integers(0, rows - length + 1, 20).tolist()
        for start in (0, 1, block - 1, *starts, rows - length, max(0, rows - length - 1)):
            assert np.array_equal(reader.read(start, start + length), data[start : start + length]), (start, length)


@pytest.mark.parametrize(
    "settings",
    [
        {"filters": [blosc2.Filter.SHUFFLE], "clevel": 3},  # as expert ids were written until 2026-11-19
        {"codec": blosc2.Codec.LZ4, "splitmode": blosc2.SplitMode.NEVER_SPLIT, "blocksize": 6_000},
        {"nthreads": 4},  # blocks lie in the order in which threads were done with them
        {"clevel": 0},  # not in blocks
        {"typesize": 1, "blocksize": 1_001},  # rows begin at odd places
    ],
)
def test_a_frame_that_was_compressed_in_another_way_is_read(settings: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    data = rng.integers(0, 60, (20_000, 128)).astype(EXPERT_IDS.dtype)
    data[5_000:8_000] = 7  # all alike
    cparams = compression(EXPERT_IDS, 8, sorted_experts=False) | settings
    cparams["filters_meta"] = [0] * len(cparams["filters"])
    writer = ColumnWriter(tmp_path / EXPERT_IDS.file, EXPERT_IDS, 128, cparams)
    writer.append(data)
    reader = ColumnReader(tmp_path / EXPERT_IDS.file, EXPERT_IDS, writer.finish())
    spans = [(int(start), int(start) + 16) for start in rng.integers(0, 19_984, 60)]
    spans += [(4_990, 8_010), (19_999, 20_000), (3, 3), (0, 20_000)]
    for (start, stop), rows in zip(spans, reader.read_spans(spans), strict=True):
        assert np.array_equal(rows, data[start:stop])
        assert rows.flags.aligned


def test_routing_is_shuffled_by_bit_unless_its_ids_are_sorted() -> None:
    """Reading takes a third or a fourth of the time then, for 4% more bytes on disk (docs/log.md)."""
    for column in (EXPERT_IDS, EXPERT_WEIGHTS):
        assert compression(column, 8, sorted_experts=False)["filters"] == [blosc2.Filter.BITSHUFFLE]
    assert compression(EXPERT_IDS, 8, sorted_experts=True)["filters"] == [
        blosc2.Filter.SHUFFLE,
        blosc2.Filter.BYTEDELTA,
    ]
