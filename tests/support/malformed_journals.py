"""A table of journals that no writer made: every record has a good checksum, and only the sense is wrong.

`malformed_journals` maps a name to a function that changes the records of a good journal. `run_journal` gives one to
recovery, to a writer that goes on in the pool, and to a reader.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from forked_runs import Outcome, make, place, radmoe, run
from pool_attacks import SHAPE, SHARD, abandoned_pool
from radmoe.errors import RadmoeError
from radmoe.pool import PoolWriter, schema
from radmoe_lab import planted

HEAD = struct.Struct("<4sQI")
FIELDS = {
    "problem_id": [None, 5, "\ud800", ["a"]],
    "problem_index": ["1", 0.5, 2**70],
    "kind": ["poem", 3, []],
    "rollout_index": [-1, "0", 2**64, True, math.nan],
    "tokens": [None, 0, -1, 10**9, 4, "5", 5.0],
    "finish_reason": [1, {}],
    "steps": [
        "x",
        [1],
        [{"given": [1]}],
        [{"given": "a", "start": 0}],
        [{"given": [-1], "start": 0}],
        [{"given": [1], "start": 3}],
    ],
    "text": [7, ["t"], "\udfff"],
    "prompt": [7],
    "extra": [{"a": 1}],
    "captured_bytes": [None, "many", -1, 1.5],
}

Records = list[tuple[dict[str, Any], bytes]]  # of each record the header, and the bytes behind it
Change = Callable[[Records], Records | bytes | None]


def split(content: bytes) -> Records:
    """The records of a journal."""
    records, at = [], 0
    while at < len(content):
        _, length, _ = HEAD.unpack_from(content, at)
        payload = content[at + HEAD.size : at + HEAD.size + length]
        (size,) = struct.unpack_from("<I", payload)
        records.append((json.loads(payload[4 : 4 + size]), payload[4 + size :]))
        at += HEAD.size + length
    return records


def sealed(payload: bytes) -> bytes:
    """A payload as a record, with the checksum that fits."""
    return HEAD.pack(b"RJ02", len(payload), zlib.crc32(payload)) + payload


def joined(records: Records) -> bytes:
    headers = [(json.dumps(header).encode(), rest) for header, rest in records]
    return b"".join(sealed(struct.pack("<I", len(header)) + header + rest) for header, rest in headers)


def _fields() -> Iterator[tuple[str, Change]]:
    for name, values in FIELDS.items():
        yield f"{name} missing", lambda records, name=name: records[2][0].pop(name) and None
        for value in values:
            yield f"{name} {value!r:.30}", lambda records, name=name, value=value: records[2][0].update({name: value})


def _arrays() -> Iterator[tuple[str, Change]]:
    def entry(index: int, part: int, value: Any) -> Change:
        return lambda records: records[2][0]["arrays"][index].__setitem__(part, value)

    for word, value in {
        "unknown": "strange", "a path": "../../x", "null": None, "a number": 3, "twice": "tok_token_ids",
    }.items():  # fmt: skip
        yield f"array name {word}", entry(0, 0, value)
    for dtype in ("object", "|O", "<f8", "<i8", "|V1000000", ">i2", None, 5, "M8[ns]", "U5", "(2,)<i2"):
        yield f"array dtype {dtype}", entry(0, 1, dtype)
    for shape in ([], [5], [-5, 3, 2], [5, -3, -2], [0, 3, 2], [10**9, 3, 2], [2**62, 2**62, 0], [5, 3, 2, 1], [5.0, 3, 2],
                  ["5", 3, 2], None, "532", 30, [5, 2, 3], [6, 3, 2], [True, 3, 2], [2**70], [1] * 100):  # fmt: skip
        yield f"array shape {shape!r:.30}", entry(0, 2, shape)


def _set_arrays(value: Any) -> Change:
    return lambda records: records[2][0].update(arrays=value)


def _bytes(at: int, content: bytes) -> Change:
    """Other values in the arrays of a record: expert ids come first, then token ids, then weights."""

    def change(records: Records) -> None:
        header, rest = records[2]
        records[2] = header, rest[:at] + content + rest[at + len(content) :]

    return change


def _raw(payload: bytes) -> Change:
    """A record in the middle that holds just these bytes."""
    return lambda records: joined(records[:2]) + sealed(payload) + joined(records[2:])


def _others() -> Iterator[tuple[str, Change]]:
    yield "arrays missing", lambda records: records[2][0].pop("arrays") and None
    for value in (None, {}, "x", [[]], [["a"]], [None], [["tok_token_ids", "<i4"]], []):
        yield f"arrays {value!r:.30}", _set_arrays(value)
    yield "a field too many", lambda records: records[2][0].update(shard=5)
    yield "a column too few", lambda records: records[2][0]["arrays"].pop() and None
    yield "bytes too many", lambda records: records.__setitem__(2, (records[2][0], records[2][1] + b"x"))
    yield "bytes too few", lambda records: records.__setitem__(2, (records[2][0], records[2][1][:-1]))
    yield "an expert that is not there", _bytes(0, struct.pack("<h", 8))
    yield "a negative expert", _bytes(0, struct.pack("<h", -1))
    yield "a negative token", _bytes(60, struct.pack("<i", -1))
    yield "weights that are NaN", _bytes(80, b"\xff" * 4)
    yield "weights that are infinite", _bytes(80, struct.pack("<e", math.inf))
    yield "weights that do not sum to 1", _bytes(80, struct.pack("<e", 5))
    yield "no provenance", lambda records: records[0][0].pop("provenance") and None
    yield "provenance is a list", lambda records: records[0][0].update(provenance=[1])
    yield "a rollout for provenance", lambda records: records.pop(0) and None
    yield "provenance in the middle", lambda records: records.insert(2, records[0])
    yield "a rollout twice", lambda records: records.append(records[2])
    for word, payload in {
        "no bytes": b"", "three bytes": b"abc", "a header beyond the record": struct.pack("<I", 2**31) + b"{}",
        "no JSON": struct.pack("<I", 5) + b"hello", "deep JSON": struct.pack("<I", 100_000) + b"[" * 100_000,
        "no text": struct.pack("<I", 4) + b"\xff\xfe\xfd\xfc", "a list": struct.pack("<I", 2) + b"[]",
        "a number": struct.pack("<I", 1) + b"5", "a long number": struct.pack("<I", 9_000) + b"9" * 9_000,
        "much JSON": struct.pack("<I", 12_000_001) + b"[" + b"[],{}," * 2_000_000,
    }.items():  # fmt: skip
        yield f"a record of {word}", _raw(payload)
    yield "only rubbish", lambda records: b"rubbish" * 100
    yield "empty", lambda records: b""
    yield "a length beyond the file", lambda records: joined(records) + HEAD.pack(b"RJ02", 2**63, 0)
    yield "a torn record", lambda records: joined(records)[:-7]
    yield "a wrong checksum", lambda records: joined(records[:2]) + HEAD.pack(b"RJ02", 3, 5) + b"abc"
    yield "another version", lambda records: joined(records).replace(b"RJ02", b"RJ99")


def malformed_journals() -> dict[str, Change]:
    """The cases by name, in a fixed order."""
    return dict([*_fields(), *_arrays(), *_others()])


@functools.cache
def good_pool() -> Path:
    return abandoned_pool(Path(tempfile.mkdtemp(prefix="radmoe-good-")) / "pool")


def go_on(pool: Path) -> None:
    """Go on in the pool as capture does, and end as the command line does."""
    try:
        PoolWriter(pool, shape=SHAPE, vocab=planted.vocab(), model="test").close()
    except RadmoeError as e:
        print(f"radmoe: error: {e}")
        raise SystemExit(2) from None


def run_journal(change: Change) -> dict[str, Outcome]:
    """The outcome of whatever reads one malformed journal. A journal that is refused must stay as it is."""
    outcomes = {}
    for command in ("inspect", "recover", "go on"):
        with place() as where:
            shutil.copytree(good_pool(), where.pool)
            journal = where.pool / SHARD / schema.JOURNAL

            def spoil(_: object, journal: Path = journal) -> None:
                records = split(journal.read_bytes())
                changed = change(records)
                journal.write_bytes(changed if isinstance(changed, bytes) else joined(records))

            make(where, spoil)
            before = journal.read_bytes()
            works = {
                "inspect": radmoe("inspect", where.pool),
                "recover": radmoe("verify", where.pool, "--recover"),
                "go on": functools.partial(go_on, where.pool),
            }
            outcome = run(where, works[command])
            if (
                outcome.line.startswith("refused")
                and command != "inspect"
                and journal.exists()
                and journal.read_bytes() != before
            ):
                outcome = outcome._replace(line="TRACEBACK the journal was changed although it was refused")
            outcomes[command] = outcome
    return outcomes
