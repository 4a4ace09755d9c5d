"""Pools of few bytes that claim to hold much: rows, pages, texts, lists, chunks, JSON values, tokens, routers."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forked_runs import Place
from pool_attacks import SHARD, write_document
from radmoe.pool import files, schema
from radmoe.pool.columns import ColumnWriter, compression
from radmoe.pool.tables import LABEL_FIELDS, RUN_FIELDS
from radmoe.vocab import Vocab

META = f"{SHARD}/{schema.SHARD_META}"


def _load(where: Place, document: str) -> dict[str, Any]:
    return dict(json.loads((where.pool / document).read_bytes()))


def _runs_of(where: Place, batches: Iterable[pa.Table], *, rows: int | None = None, **options: Any) -> None:
    """Replace the run table; pool.json agrees, and claims so many runs."""
    total = 0
    with pq.ParquetWriter(where.pool / schema.RUNS, RUN_FIELDS, compression="zstd", **options) as writer:
        for batch in batches:
            writer.write_table(batch)
            total += len(batch)
    body = _load(where, schema.POOL_JSON) | {"runs": total if rows is None else rows}
    write_document(where.pool, schema.POOL_JSON, body, relist=(schema.RUNS,))


def _row(**change: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("run_id", "problem_index", "rollout_index", "shard", "row"), 0)
    return numbers | {"problem_id": "planted-0000", "kind": "math", "tokens": 60, "steps": None} | change


def _same_rows(count: int, **change: Any) -> pa.Table:
    return pa.Table.from_pylist([_row(**change)] * count, schema=RUN_FIELDS)


def many_runs(where: Place) -> None:
    """Five million runs in less than a megabyte."""
    _runs_of(where, [_same_rows(100_000)] * 50)


def many_labels(where: Place) -> None:
    row = {"problem_id": "planted-0000", "rollout_index": 0, "answer": "1", "correct": True}
    table = pa.Table.from_pylist([row] * 100_000, schema=LABEL_FIELDS)
    with pq.ParquetWriter(where.pool / schema.LABELS, LABEL_FIELDS) as writer:
        for _ in range(80):
            writer.write_table(table)


def many_row_groups(where: Place) -> None:
    table = pa.Table.from_pylist([{"problem_id": "a", "rollout_index": 0, "correct": True}], schema=LABEL_FIELDS)
    with pq.ParquetWriter(where.pool / schema.LABELS, LABEL_FIELDS) as writer:
        for _ in range(10_001):
            writer.write_table(table)


def long_text_often(name: str) -> Callable[[Place], None]:
    """One text of a megabyte, to which 100,000 rows point."""

    def spoil(where: Place) -> None:
        rows = _same_rows(100_000).drop_columns([name])
        values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * 1_000_000]))
        table = rows.append_column(name, values).select(RUN_FIELDS.names)
        fields = pa.schema([table.schema.field(n) if n == name else RUN_FIELDS.field(n) for n in RUN_FIELDS.names])
        with pq.ParquetWriter(
            where.pool / schema.RUNS, fields, compression="zstd", store_schema=False, dictionary_pagesize_limit=1 << 26
        ) as writer:
            writer.write_table(table.cast(fields))
        body = _load(where, schema.POOL_JSON) | {"runs": 100_000}
        write_document(where.pool, schema.POOL_JSON, body, relist=(schema.RUNS,))

    return spoil


def large_page(where: Place) -> None:
    """A page that is 300 MB when it is decompressed."""
    table = _same_rows(3, text="x" * 100_000_000)
    _runs_of(where, [table], use_dictionary=False, data_page_size=1 << 30, write_statistics=False)


def large_label_page(where: Place) -> None:
    row = {"problem_id": "planted-0000", "rollout_index": 0, "answer": "1" * 300_000_000, "correct": True}
    table = pa.Table.from_pylist([row], schema=LABEL_FIELDS)
    pq.write_table(table, where.pool / schema.LABELS, use_dictionary=False, compression="zstd", write_statistics=False)


def long_steps(where: Place) -> None:
    """One run whose first step was given twenty million tokens."""
    given = pa.ListArray.from_arrays(pa.array([0, 20_000_000], pa.int32()), pa.array(np.zeros(20_000_000, np.int32)))
    step = pa.StructArray.from_arrays([given, pa.array([0], pa.int64())], ["given", "start"])
    steps = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), step).cast(RUN_FIELDS.field("steps").type)
    table = _same_rows(1)
    _runs_of(where, [table.set_column(table.schema.get_field_index("steps"), "steps", steps)])


def delta_encoding(where: Place) -> None:
    """Texts that each repeat the one before: the encoding needs a few bytes for each of them."""
    rows = [_row(problem_id="x" * 1_000_000, rollout_index=i) for i in range(50)]
    encodings = {"problem_id": "DELTA_BYTE_ARRAY"}
    _runs_of(where, [pa.Table.from_pylist(rows, schema=RUN_FIELDS)], use_dictionary=False, column_encoding=encodings)


def zeros(rows: int, *, problems: int = 1) -> Callable[[Place], None]:
    """A shard in which so many tokens and their routing are all zero: blosc2 keeps no byte of it."""

    def spoil(where: Place) -> None:
        import blosc2

        directory = where.pool / SHARD
        body, meta = _load(where, schema.POOL_JSON), _load(where, META)
        for path in directory.iterdir():
            if path.name != schema.SHARD_META:
                path.unlink()
        columns = {}
        for column in (schema.EXPERT_IDS, schema.TOKEN_IDS):
            cparams = compression(column, 1, sorted_experts=False)
            writer = ColumnWriter(directory / column.file, column, 1, cparams)
            writer._frame.fill_special(rows * column.dtype.itemsize // cparams["typesize"], blosc2.SpecialValue.ZERO)
            writer._rows = rows
            columns[column.name] = writer.finish()
        pointer = np.linspace(0, rows, problems + 1).astype("<i8")
        path = directory / schema.pointer_file(schema.MOE_PTR)
        path.write_bytes(pointer.tobytes())
        entry = {"bytes": path.stat().st_size, "crc32": files.crc32_file(path)}
        router = {"layers": 1, "experts": 2, "top_k": 1}
        pool = {
            "runs": problems,
            "problems": problems,
            "columns": {schema.EXPERT_IDS.name: [1, 1], schema.TOKEN_IDS.name: []},
        }
        (where.pool / schema.POOL_JSON).write_bytes(schema.seal_json(body | router | pool | {"crc32": 0}))
        shard = {"runs": problems, "tokens": rows, "columns": columns, "pointers": {schema.MOE_PTR: entry}}
        lengths = np.diff(pointer).tolist()
        table = [_row(run_id=i, problem_id=str(i), row=i, tokens=n) for i, n in enumerate(lengths)]
        _runs_of(where, [pa.Table.from_pylist(table, schema=RUN_FIELDS)])
        write_document(where.pool, META, meta | router | shard)

    return spoil


def large_router(layers: int, experts: int, top_k: int) -> Callable[[Place], None]:
    def spoil(where: Place) -> None:
        router = {"layers": layers, "experts": experts, "top_k": top_k}
        body, meta = _load(where, schema.POOL_JSON), _load(where, META)
        shapes = {
            name: [layers, top_k] if name.startswith("moe_topk") else shape for name, shape in body["columns"].items()
        }
        write_document(where.pool, schema.POOL_JSON, body | router | {"columns": shapes})
        write_document(where.pool, META, meta | router)

    return spoil


def many_experts(where: Place) -> None:
    """As large_router, with a shape that the columns on disk still have."""
    body, meta = _load(where, schema.POOL_JSON), _load(where, META)
    layers, top_k = body["layers"] * body["top_k"], 1
    router = {"layers": layers, "experts": 2**15, "top_k": top_k}
    shapes = {
        name: [layers, top_k] if name.startswith("moe_topk") else shape for name, shape in body["columns"].items()
    }
    write_document(where.pool, schema.POOL_JSON, body | router | {"columns": shapes})
    write_document(where.pool, META, meta | router)


def json_values(document: str, text: str) -> Callable[[Place], None]:
    """A document that holds a list of two million of these."""

    def spoil(where: Place) -> None:
        body = _load(where, document)
        body.pop("crc32")
        body["extra"] = json.loads(f"[{','.join([text] * 2_000_000)}]")
        write_document(where.pool, document, body)

    return spoil


def tokenizer_values(where: Place) -> None:
    (where.pool / schema.TOKENIZER_JSON).write_bytes(b"[" + b"{},[]," * 4_000_000 + b"0]")
    write_document(where.pool, schema.POOL_JSON, _load(where, schema.POOL_JSON), relist=(schema.TOKENIZER_JSON,))


def tokenizer_id(where: Place) -> None:
    spec = json.loads((where.pool / schema.TOKENIZER_JSON).read_bytes())
    spec["model"]["vocab"]["strange"] = 2**40
    (where.pool / schema.TOKENIZER_JSON).write_text(json.dumps(spec))
    write_document(where.pool, schema.POOL_JSON, _load(where, schema.POOL_JSON), relist=(schema.TOKENIZER_JSON,))


def vocab_header(tokens: int, added: int, size: int) -> Callable[[Place], None]:
    def spoil(where: Place) -> None:
        content = struct.pack("<8sIIIQ", b"radvocab", 1, tokens, added, size) + b"\0" * 64
        (where.pool / schema.VOCAB_TABLE).write_bytes(content + struct.pack("<I", zlib.crc32(content)))
        write_document(where.pool, schema.POOL_JSON, _load(where, schema.POOL_JSON), relist=(schema.VOCAB_TABLE,))

    return spoil


def vocab_tokens(change: Callable[[list[bytes], list[int]], object]) -> Callable[[Place], None]:
    """A table whose tokens and ids of added ones are changed, under checksums and a fingerprint that fit."""

    def spoil(where: Place) -> None:
        path = where.pool / schema.VOCAB_TABLE
        good = Vocab.from_table(path.read_bytes(), bytes)
        tokens, added = [good.token_bytes(i) for i in range(len(good))], list(good.added.values())
        change(tokens, added)
        blob = b"".join(tokens)
        body = struct.pack("<8sIIIQ", b"radvocab", 1, len(tokens), len(added), len(blob))
        body += struct.pack(f"<{len(added)}i{len(tokens)}H", *added, *map(len, tokens)) + blob
        path.write_bytes(body + struct.pack("<I", zlib.crc32(body)))
        document = _load(where, schema.POOL_JSON) | {"vocab": hashlib.sha256(body).hexdigest()}
        write_document(where.pool, schema.POOL_JSON, document, relist=(schema.VOCAB_TABLE,))

    return spoil


def far_control(tokens: list[bytes], added: list[int]) -> None:
    tokens += [b""] * (2_000_000 - len(tokens))
    tokens.append(b"<far>")
    added.append(2_000_000)


def no_text(tokens: list[bytes], added: list[int]) -> None:
    tokens[added[0]] = b"<\xff\xfe>"


def all_control(tokens: list[bytes], added: list[int]) -> None:
    tokens[:] = [b"<%d>" % i for i in range(len(tokens))]
    added[:] = range(len(tokens))


def sparse_pointer(where: Place) -> None:
    """A pointer of ten billion bytes, none of which is on the disk."""
    meta = _load(where, META)
    (name,) = meta["pointers"]
    path: Path = where.pool / SHARD / schema.pointer_file(name)
    runs = 1_250_000_000
    with path.open("wb") as f:
        f.truncate(8 * (runs + 1))
    meta["pointers"][name] = {"bytes": 8 * (runs + 1), "crc32": 0}
    write_document(where.pool, META, meta | {"runs": runs})


def frame_field(at: int, content: bytes, *, column: schema.StoredColumn = schema.TOKEN_IDS) -> Callable[[Place], None]:
    """A field of a blosc2 frame's header, or of its first chunk's behind it, with checksums that fit."""

    def spoil(where: Place) -> None:
        path = where.pool / SHARD / column.file
        data = bytearray(path.read_bytes())
        data[at : at + len(content)] = content
        path.write_bytes(data)
        meta = _load(where, META)
        entry = meta["columns"][column.name]
        head, stored = entry["frame_head"], entry["frame_data"]
        entry["crc32"] = zlib.crc32(data)
        entry["frame_crc32"] = zlib.crc32(data[head + stored :], zlib.crc32(data[:head]))
        entry["chunks"][0][1] = zlib.crc32(data[head : head + entry["chunks"][0][0]])
        write_document(where.pool, META, meta)

    return spoil


HUGE = 2**31 - 1
CLAIMS: dict[str, Callable[[Place], object]] = {
    "claim: five million runs": many_runs,
    "claim: eight million labels": many_labels,
    "claim: ten thousand row groups": many_row_groups,
    "claim: a long problem id, often": long_text_often("problem_id"),
    "claim: a long text, often": long_text_often("text"),
    "claim: a page of 300 MB": large_page,
    "claim: a label of 300 MB": large_label_page,
    "claim: steps of twenty million tokens": long_steps,
    "claim: texts that repeat the one before": delta_encoding,
    "claim: a rollout of 10^9 tokens": zeros(10**9),
    "claim: 1000 problems of 10^6 tokens": zeros(10**9, problems=1000),
    "claim: a rollout of 5 * 10^7 tokens": zeros(5 * 10**7),
    "claim: a router of 10^6 layers": large_router(10**6, 2**15, 8),
    "claim: a router of 2^40 layers": large_router(2**40, 2, 1),
    "claim: 32768 experts in many layers": many_experts,
    "claim: pool.json of empty lists": json_values(schema.POOL_JSON, "[]"),
    "claim: pool.json of empty objects": json_values(schema.POOL_JSON, "{}"),
    "claim: moe_meta.json of empty lists": json_values(META, "[]"),
    "claim: moe_meta.json of numbers": json_values(META, "1.5"),
    "claim: tokenizer.json of empty objects": tokenizer_values,
    "claim: tokenizer.json with an id of 2^40": tokenizer_id,
    "claim: tokenizer.bytes of 2^32 tokens": vocab_header(2**32 - 1, 0, 0),
    "claim: tokenizer.bytes of 2^63 bytes": vocab_header(1, 0, 2**63),
    "claim: tokenizer.bytes of 32 tokens without bytes": vocab_header(32, 0, 0),
    "claim: tokenizer.bytes with a control token of 2,000,000": vocab_tokens(far_control),
    "claim: tokenizer.bytes with an added token that is no text": vocab_tokens(no_text),
    "claim: tokenizer.bytes of control tokens alone": vocab_tokens(all_control),
    "claim: a sparse pointer": sparse_pointer,
    "claim: a frame of 2^62 bytes": frame_field(30, (2**62).to_bytes(8, "big")),
    "claim: a frame of chunks of 2 GB": frame_field(58, HUGE.to_bytes(4, "big")),
    "claim: a frame of items of 2 GB": frame_field(48, HUGE.to_bytes(4, "big")),
    "claim: a frame of items of 0 bytes": frame_field(48, bytes(4)),
    "claim: a frame with a long header": frame_field(11, HUGE.to_bytes(4, "big")),
    "claim: a frame with metadata": frame_field(91, b"\xde\x00\x01"),
    "claim: a chunk of 2 GB": frame_field(97 + 4, HUGE.to_bytes(4, "little")),
    "claim: a chunk of blocks of 2 GB": frame_field(97 + 8, HUGE.to_bytes(4, "little")),
    "claim: a chunk of blocks of no bytes": frame_field(97 + 8, bytes(4)),
    "claim: a chunk that is 2 GB on disk": frame_field(97 + 12, HUGE.to_bytes(4, "little")),
    "claim: a chunk of zeros only": frame_field(97 + 31, b"\x10"),
    "claim: a chunk of one value only": frame_field(97 + 31, b"\x30"),
    "claim: a chunk of a codec from elsewhere": frame_field(97 + 2, b"\xe5"),
    "claim: a chunk of a filter from elsewhere": frame_field(97 + 16, b"\xa0"),
}
