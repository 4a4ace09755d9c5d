"""Pools, journals, labels, answers, questions and a server's answers that are changed at random, from a seed.

Half of the changes are of bytes, as a bad disk or a careless forger makes them; the others are of fields, with checksums
that fit. A case is known by its seed and number, so that one that breaks something can be made again.
"""

from __future__ import annotations

import json
import random
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from forked_runs import Outcome, Place, make, place, radmoe, run
from malformed_journals import go_on, good_pool, joined, split
from malformed_pools import COMMANDS, META, good_pools
from misbehaving_server import COMPLETIONS, MODELS, Case, sends_with
from pool_attacks import SHARD, write_document
from radmoe.errors import RadmoeError
from radmoe.pool import schema
from radmoe.problems import load_questions
from radmoe.problems.gold import load_problems
from server_misbehaviours import expect, prepare

Work = Callable[[], object]

_QUESTIONS = [
    {"problem_id": "a", "prompt": "one", "answer": "1", "kind": "math"},
    {"id": 7, "messages": [{"role": "user", "content": "hi"}], "answer": 5},
    {"id": "c", "question": "f?", "entry_point": "f", "tests": [{"args": [1], "result": 2}]},
    {"id": "d", "question": "g?", "tests": ["assert g(1) == 2"], "entry_point": "g"},
]
_NUMBERS = (0, 1, -1, 2, 7, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, 0.5, 1e308)


def fuzz(seed: int, seconds: float) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """Cases until the time is over, with what the commands made of them."""
    prepare()
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield f"seed {seed} case {number}", fuzz_one(seed, number)
        number += 1


def fuzz_one(seed: int, number: int) -> dict[str, Outcome]:
    """One case: a pool that was spoiled several times, given to two commands; or a journal; or a file of answers."""
    rng = random.Random(f"{seed} {number}")
    with place() as where:
        if number % 4 == 0:
            shutil.copytree(good_pool(), where.pool)
            make(where, lambda where: _spoil_journal(where.pool / SHARD / schema.JOURNAL, rng))
            works: dict[str, Work] = {
                "recover": radmoe("verify", where.pool, "--recover"),
                "go on": lambda: go_on(where.pool),
            }
        elif number % 16 == 1:
            shutil.copytree(good_pools() / "plain", where.pool)
            answers = where.root / "answers.jsonl"
            answers.write_bytes(_changed_bytes((good_pools() / "answers.jsonl").read_bytes(), rng))
            works = {"grade": radmoe("grade", where.pool, "--answers", answers, "--jobs", 1)}
        elif number % 16 == 9:
            questions = where.root / "questions.jsonl"
            questions.write_bytes(_changed_questions(rng))
            works = {"load": lambda: _load(questions)}
        elif number % 16 == 5:
            change = partial(_changed_answer, rng=rng)
            path = rng.choice((COMPLETIONS, COMPLETIONS, MODELS))
            works = {"capture": partial(expect, Case("fuzzed", "", sends_with(change=change), path))}
        else:
            shutil.copytree(good_pools() / rng.choice(["plain", "plain", "compact"]), where.pool)
            make(where, lambda where: _spoil_pool(where, rng))
            chosen = rng.sample(sorted(COMMANDS), 3)
            works = {command: radmoe(*COMMANDS[command](where)) for command in chosen}
        return {command: run(where, work) for command, work in works.items()}


def _changed_answer(body: bytes, rng: random.Random) -> bytes:
    """What a server answers, with other fields or other bytes."""
    if rng.random() < 0.5:
        return _changed_bytes(body, rng)
    answer = json.loads(body)
    for _ in range(rng.choice((1, 1, 3))):
        _change_field(answer, rng)
    return json.dumps(answer).encode()


def _changed_questions(rng: random.Random) -> bytes:
    """A file of problems of one's own in which fields, and sometimes bytes, are others."""
    rows: list[Any] = json.loads(json.dumps(_QUESTIONS))
    for _ in range(rng.choice((1, 1, 3))):
        _change_field(rows, rng)
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    return _changed_bytes(content, rng) if rng.random() < 0.3 else content


def _load(questions: Path) -> None:
    """Load problems as capture and grading do, and end as the command line does."""
    try:
        load_questions(data=questions)
        load_problems(data=questions)
    except RadmoeError as e:
        print(f"radmoe: error: {e}")
        raise SystemExit(2) from None


def _spoil_pool(where: Place, rng: random.Random) -> None:
    files = sorted(path for path in where.pool.rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(rng.choice((1, 1, 2))):
        document = rng.choice((schema.POOL_JSON, META))
        if rng.random() < 0.4:
            try:
                body = json.loads((where.pool / document).read_bytes())
            except ValueError:  # the change before this one was of its bytes
                continue
            _change_field(body, rng)
            _write(where.pool, document, body)
        else:
            file = rng.choice(files)
            file.write_bytes(_changed_bytes(file.read_bytes(), rng))
            _make_checksums_fit(where.pool)


def _write(pool: Path, document: str, body: dict[str, Any]) -> None:
    try:
        write_document(pool, document, body)
    except (KeyError, TypeError, ValueError, AttributeError):  # an earlier change took what the checksum is written to
        (pool / document).write_bytes(schema.seal_json({k: v for k, v in body.items() if k != "crc32"}))


def _make_checksums_fit(pool: Path) -> None:
    """Write the sizes and checksums of all files anew, as far as the descriptions still allow it."""
    try:
        meta = json.loads((pool / META).read_bytes())
        for column in schema.COLUMNS:
            entry = meta["columns"].get(column.name)
            if entry is not None:
                _describe_frame(pool / SHARD / column.file, entry)
        for name in meta["pointers"]:
            _describe(pool / SHARD / schema.pointer_file(name), meta["pointers"][name])
        write_document(pool, META, meta)
        body = json.loads((pool / schema.POOL_JSON).read_bytes())
        write_document(pool, schema.POOL_JSON, body, relist=schema.LISTED)
    except (KeyError, TypeError, ValueError, AttributeError, OSError):
        return


def _describe(path: Path, entry: dict[str, Any]) -> None:
    content = path.read_bytes()
    entry |= {"bytes": len(content), "crc32": zlib.crc32(content)}


def _describe_frame(path: Path, entry: dict[str, Any]) -> None:
    _describe(path, entry)
    content, head, data = path.read_bytes(), entry["frame_head"], entry["frame_data"]
    entry["frame_crc32"] = zlib.crc32(content[head + data :], zlib.crc32(content[:head]))
    at = head
    for chunk in entry["chunks"]:
        chunk[1] = zlib.crc32(content[at : at + chunk[0]])
        at += chunk[0]


def _spoil_journal(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.3:
        path.write_bytes(_changed_bytes(path.read_bytes(), rng))
        return
    records = split(path.read_bytes())
    for _ in range(rng.choice((1, 2))):
        at = rng.randrange(len(records))
        header, rest = records[at]
        if rng.random() < 0.6:
            _change_field(header, rng)
        else:
            rest = _changed_bytes(rest, rng)
        records[at] = header, rest
    path.write_bytes(joined(records))


def _changed_bytes(content: bytes, rng: random.Random) -> bytes:
    """Some bytes flipped, overwritten, cut out, doubled or put in."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        # Headers and footers decide what a reader believes, so they are hit more often than the middle.
        at = rng.choice(
            (
                rng.randrange(len(data) + 1),
                rng.randrange(min(len(data) + 1, 130)),
                max(len(data) - rng.randrange(1, 1500), 0),
            )
        )
        length = rng.choice((1, 1, 2, 4, 8, 64))
        way = rng.randrange(5)
        if way == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            data[at : at + length] = rng.choice(
                (rng.randbytes(length), b"\xff" * length, b"\0" * length, b"\x7f" * length)
            )
        elif way == 2:
            del data[at : at + length]
        elif way == 3:
            data[at:at] = rng.randbytes(length)
        else:
            data[at:at] = data[at : at + length]
    return bytes(data)


def _change_field(body: Any, rng: random.Random) -> None:
    """A random field of a document becomes something else, or goes away."""
    while True:
        keys: list[Any] = list(body) if isinstance(body, dict) else list(range(len(body)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = body[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            body = inner
            continue
        if rng.random() < 0.15:
            del body[key]
        else:
            body[key] = _value(inner, rng)
        return


def _value(old: Any, rng: random.Random) -> Any:
    if isinstance(old, int) and rng.random() < 0.5:
        return rng.choice((old + 1, old - 1, old * 2, old // 2, -old, old * 1000))
    return rng.choice(
        (
            rng.choice(_NUMBERS),
            None,
            "",
            "x" * rng.choice((1, 1000)),
            [],
            {},
            [old],
            {"a": old},
            True,
            "\ud800",
            "../x",
            "\x1b[2J[/x]",
        )
    )
