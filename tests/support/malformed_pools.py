"""A table of pools that a stranger could send: every field, every column, every file, and sizes that are only claimed.

`malformed_pools` maps a name to a function that spoils a good pool in place, with checksums that fit, so that only the sense is
wrong. `run_pool` gives one of them to every command that reads pools.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forked_runs import Outcome, Place, make, place, radmoe, run
from malformed_claims import CLAIMS
from planted_pools import write_pool
from pool_attacks import SHAPE, SHARD, forge_runs, small_rollout, write_document
from radmoe.errors import RadmoeError
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import PoolWriter, Profile, schema
from radmoe.types import Rollout, Step
from radmoe_lab import planted
from radmoe_lab.planted import Planted

RECIPE = Planted(problems=2, rollouts=4, tokens=60)
META = f"{SHARD}/{schema.SHARD_META}"
COMPACT = Profile(readouts=("boundary@16",), layers=(0, 2))
MISSING = object()

T = TypeVar("T")
Spoil = Callable[[Place], object]
Cases = Iterator[tuple[str, Spoil]]


@functools.cache
def good_pools() -> Path:
    """Good pools: `plain` of planted rollouts with labels, `compact` with every column that `plain` lacks, and `open`.

    The writer of `open` was killed when it had sealed one shard and begun another.
    """
    root = Path(tempfile.mkdtemp(prefix="radmoe-good-"))
    groups = list(planted.groups(RECIPE))
    write_pool(root / "plain", groups)
    write_pool(root / "other", list(planted.groups(Planted(problems=3, rollouts=4, tokens=60)))[2:])
    write_labels(
        root / "plain",
        [Label(m.group.problem_id, i, a, a == m.truth) for m in groups for i, a in enumerate(m.answers)],
    )
    with PoolWriter(root / "compact", shape=SHAPE, vocab=planted.vocab(), model="test", profile=COMPACT) as writer:
        for i in range(4):
            one = small_rollout(40, i)
            steps = (Step((1, 2), 0), Step((3,), 9))
            rollout = Rollout(one.token_ids, one.expert_ids, one.weights, np.zeros(40, np.float32), steps=steps)
            prompt = small_rollout(5, 100 + i)
            writer.add(
                "a",
                rollout,
                kind="agent",
                rollout_index=i,
                text="t",
                prompt_routing=(prompt.expert_ids, prompt.weights),
            )
    writer = PoolWriter(root / "open", shape=SHAPE, vocab=planted.vocab(), model="test", shard_bytes=1)
    for i in range(2):
        writer.add("a", small_rollout(5, i), rollout_index=i, text=f"text {i}")
    writer.abandon()
    answers = [{"problem_id": m.group.problem_id, "answer": m.truth} for m in groups]
    (root / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return root


# -- every field of every JSON file ------------------------------------------------------------------


def _paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every field in a document; of a list only the first item."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inside = [(name, inner) for name, inner in value.items() if at or name != "crc32"]
    elif isinstance(value, list):
        inside = list(enumerate(value))[:1]
    for name, inner in inside:
        yield (*at, name)
        yield from _paths(inner, (*at, name))


def _values(value: Any) -> dict[str, Any]:
    """Wrong values for a field that has this one."""
    wrong: dict[str, Any] = {"missing": MISSING, "null": None, "NaN": math.nan, "negative": -7, "huge": 2**63}
    wrong["another type"] = [value] if isinstance(value, dict | int | str) else "text"
    if isinstance(value, str):
        wrong |= {"half a character": "\ud800", "long": "x" * 100_000, "a path": "../../outside/victim"}
    if isinstance(value, int):
        wrong |= {"true": True, "large": 2**40, "zero": 0, "a text": str(value), "fraction": 0.5}
    if value is None:
        wrong.pop("null")
    return {name: new for name, new in wrong.items() if new is MISSING or new is None or repr(new) != repr(value)}


def _some(wrong: dict[str, T], turn: int, count: int | None) -> Iterator[tuple[str, T]]:
    """The first way to be wrong, and `count` others, which are others at every turn; all of them if there is no count."""
    (first, *others) = wrong.items()
    yield first
    yield from (
        others
        if count is None
        else {
            others[(turn + 3 * i) % len(others)][0]: others[(turn + 3 * i) % len(others)] for i in range(count)
        }.values()
    )


def _set_field(document: str, at: tuple[str | int, ...], new: Any) -> Spoil:
    def spoil(where: Place) -> None:
        body = json.loads((where.pool / document).read_bytes())
        inner = body
        for name in at[:-1]:
            inner = inner[name]
        if new is MISSING:
            del inner[at[-1]]
        else:
            inner[at[-1]] = new
        write_document(where.pool, document, body)

    return spoil


def _fields(base: str, documents: dict[str, Callable[[tuple[str | int, ...]], bool]], count: int | None) -> Cases:
    for document, is_wanted in documents.items():
        body = json.loads((good_pools() / base / document).read_bytes())
        for turn, at in enumerate(filter(is_wanted, _paths(body))):
            inner = body
            for name in at:
                inner = inner[name]
            for word, new in _some(_values(inner), turn, count):
                yield f"{base}: {document} {'.'.join(map(str, at))} {word}", _set_field(document, at, new)


# -- every column of every table ------------------------------------------------------------------------


def _write_parquet(where: Place, name: str, table: pa.Table) -> None:
    pq.write_table(table, where.pool / name)  # the table of a sealed shard is listed nowhere
    if name == schema.RUNS:
        body = json.loads((where.pool / schema.POOL_JSON).read_bytes())
        write_document(where.pool, schema.POOL_JSON, body, relist=(name,))


def _change_column(file: str, index: int, change: Callable[[pa.Table, int], pa.Table]) -> Spoil:
    return lambda where: _write_parquet(where, file, change(pq.read_table(where.pool / file), index))


def _with(table: pa.Table, index: int, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    field = table.schema.field(index)
    return table.set_column(index, field.name, pa.array(values, kind or field.type))


def _column_changes(kind: pa.DataType) -> dict[str, Callable[[pa.Table, int], pa.Table]]:
    def first(new: Any) -> Callable[[pa.Table, int], pa.Table]:
        return lambda table, at: _with(table, at, [new, *table.column(at).to_pylist()[1:]])

    changes: dict[str, Callable[[pa.Table, int], pa.Table]] = {
        "missing": lambda table, at: table.remove_column(at),
        "null": first(None),
        "all null": lambda table, at: _with(table, at, [None] * len(table)),
        "twice": lambda table, at: table.append_column(table.schema.field(at), table.column(at)),
        "of fractions": lambda table, at: _with(table, at, [0.5] * len(table), pa.float64()),
        "of bytes": lambda table, at: _with(table, at, [b"\xff\xfe"] * len(table), pa.binary()),
        "of lists": lambda table, at: _with(table, at, [[1]] * len(table), pa.list_(pa.int64())),
        "of a dictionary": lambda table, at: _with(
            table, at, ["x"] * len(table), pa.dictionary(pa.int32(), pa.string())
        ),
    }
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        changes |= {"negative": first(-5), "huge": first(most), "smallest": first(-most - 1)}
    if pa.types.is_string(kind):
        changes |= {"long": first("x" * 2_000_000), "strange": first("\x1b[31m[/x]\0\n"), "empty": first("")}
    if pa.types.is_list(kind):
        steps = pa.types.is_struct(kind.value_type)  # else the tokens that each of them was given
        changes |= {
            "of no steps": first([]),
            "of a null step": first([None]),
            "of a backward step": first([{"start": 5}, {"start": 1}] if steps else [[-5], [1]]),
            "of a huge step": first([{"start": 2**62, "kept": 2**62}] if steps else [[2**31 - 1]]),
        }
    return changes


def _columns(base: str, file: str, count: int | None) -> Cases:
    for index, field in enumerate(pq.read_schema(good_pools() / base / file)):
        for word, change in _some(_column_changes(field.type), index, count):
            yield f"{base}: {file} column {field.name} {word}", _change_column(file, index, change)


# -- every file replaced -----------------------------------------------------------------------------


def _replacements() -> dict[str, Callable[[Path, Place], object]]:
    def bind(path: Path, where: Place) -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path.relative_to(where.root)) if len(str(path)) > 100 else str(path))

    return {
        "a link": lambda path, where: path.symlink_to(where.victim),
        "a dangling link": lambda path, where: path.symlink_to(where.root / "outside" / "new"),
        "a link to a device": lambda path, where: path.symlink_to("/dev/zero"),
        "a FIFO": lambda path, where: os.mkfifo(path),
        "a directory": lambda path, where: path.mkdir(),
        "a socket": bind,
        "missing": lambda path, where: None,
        "empty": lambda path, where: path.write_bytes(b""),
        "zeros": lambda path, where: path.write_bytes(b"\0" * 4096),
        "sparse": lambda path, where: _sparse(path),
        "brackets": lambda path, where: path.write_bytes(b"[" * 100_000),
    }


def _sparse(path: Path, size: int = 20 << 30) -> None:
    with path.open("wb") as f:
        f.truncate(size)


def _replace(file: str, put: Callable[[Path, Place], object]) -> Spoil:
    def spoil(where: Place) -> None:
        path = where.pool / file
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        put(path, where)

    return spoil


def _truncate(file: str) -> Spoil:
    def spoil(where: Place) -> None:
        content = (where.pool / file).read_bytes()
        (where.pool / file).write_bytes(content[: len(content) // 2])
        if file != schema.POOL_JSON and (where.pool / schema.POOL_JSON).exists():
            body = json.loads((where.pool / schema.POOL_JSON).read_bytes())
            write_document(where.pool, schema.POOL_JSON, body, relist=(file,) if file in body["files"] else ())

    return spoil


def _files(base: str, count: int | None) -> Cases:
    pool = good_pools() / base
    names = sorted(str(path.relative_to(pool)) for path in pool.rglob("*") if path.is_file())
    for turn, file in enumerate([*names, SHARD, "strange"]):
        for word, put in _some(_replacements(), turn, count):
            yield f"{base}: {file} {word}", _replace(file, put)
    for file in names:
        yield f"{base}: {file} truncated", _truncate(file)


# -- strings that would choose code, or search without end ----------------------------------------------


def _with_module(where: Place) -> None:
    """A recorded task that is a module in the pool, which writes outside when it is imported."""
    (where.pool / "notes.py").write_text(
        f"import pathlib\npathlib.Path({str(where.victim)!r}).write_text('was here')\n"
    )
    _set_field(schema.POOL_JSON, ("run", "task"), "pool.notes.X")(where)


def _with_ids(spell: Callable[[int], str]) -> Spoil:
    return lambda where: forge_runs(
        where.pool, lambda rows: [row.update(problem_id=spell(i)) for i, row in enumerate(rows)]
    )


ENDLESS = "trajectory:/^(?:.?){60}\\x00$/@16"  # which takes 60 over 10 tries for a token of ten letters


def _recorded() -> Cases:
    yield "plain: recorded task that is a module of the pool's", _with_module
    for task in (
        "os.system",
        "antigravity.x",
        "../../outside/victim",
        "pool..X",
        ".",
        "radmoe_lab.tasks.datasets.MATH_1",
    ):
        yield f"plain: recorded task {task}", _set_field(schema.POOL_JSON, ("run", "task"), task)
    for model in ("../../outside", "/dev/zero", "os.system"):
        yield f"plain: recorded model {model}", _set_field(schema.POOL_JSON, ("run", "model"), model)
    for readout in (ENDLESS, "trajectory:/[/@16", "delimiter@" + "9" * 5_000, "trajectory:so#" + "9" * 5_000 + "@16"):
        at = ("run", "profile", "readouts")
        yield f"compact: recorded readout {readout[:40]}", _set_field(schema.POOL_JSON, at, [readout])
    yield "plain: ids of 5,000 digits", _with_ids(lambda i: f"math-1-s{'9' * 5000}-{i:03d}")
    yield "plain: ids of very many draws", _with_ids(lambda i: f"math-1-s{i}-9999")
    yield "plain: ids that are paths", _with_ids(lambda i: f"../../outside/{i}")


def malformed_pools(*, thorough: bool = False) -> dict[str, Spoil]:
    """The cases by name, in a fixed order: every field, column and file in a few ways each, or in all of them."""
    few = None if thorough else 2
    lacking = {column.name for column in (schema.TOKEN_INDEX, schema.PROMPT_IDS, schema.PROMPT_WEIGHTS)}
    plain = {
        schema.POOL_JSON: lambda at: True,
        META: lambda at: thorough or at[0] != "columns" or at[1:2] in ((), (schema.EXPERT_IDS.name,)),
    }
    compact = {
        schema.POOL_JSON: lambda at: at[0] == "run",
        META: lambda at: at[0] == "pointers" or (at[0] == "columns" and at[1:2] and at[1] in lacking),
    }
    tokenizer = {schema.TOKENIZER_JSON: lambda at: len(at) == 1 or at[:1] == ("added_tokens",) or len(at) == 2}
    return dict(
        [
            *CLAIMS.items(),
            *_recorded(),
            *_files("open", few),
            *_fields("open", {schema.OPEN_JSON: lambda at: True}, few),
            *_columns("open", f"{SHARD}/{schema.RUNS}", few),
            *_fields("plain", tokenizer, few if thorough else 1),
            *_files("plain", few),
            *_fields("plain", plain, few),
            *_fields("compact", compact, few if thorough else 1),
            *_columns("plain", schema.RUNS, None if thorough else 4),
            *_columns("plain", schema.LABELS, None if thorough else 4),
            *_columns("compact", schema.RUNS, few if thorough else 1),
        ]
    )


COMMANDS: dict[str, Callable[[Place], tuple[object, ...]]] = {
    "verify": lambda where: ("verify", where.pool),
    "inspect": lambda where: ("inspect", where.pool, "--json"),
    "select": lambda where: ("select", where.pool, "--json", "--text"),
    "evaluate": lambda where: ("evaluate", where.pool, "--jobs", 1, "--resamples", 20, "--json"),
    "merge": lambda where: ("merge", where.pool, good_pools() / "other", "--out", where.root / "merged"),
    "grade": lambda where: ("grade", where.pool, "--answers", good_pools() / "answers.jsonl", "--jobs", 1),
    "grade by record": lambda where: ("grade", where.pool, "--jobs", 1),
    "report": lambda where: ("report", where.pool, "--out", where.root / "report.html", "--jobs", 1),
    "recover": lambda where: ("verify", where.pool, "--recover"),
}
BASES = ("plain", "compact", "open")


def _go_on(where: Place, base: str) -> Callable[[], None]:
    """Go on in the pool as capture does, and end as the command line does."""

    def work() -> None:
        shape = planted.Planted().shape if base == "plain" else SHAPE
        profile = COMPACT if base == "compact" else None
        model = "planted" if base == "plain" else "test"
        try:
            PoolWriter(where.pool, shape=shape, vocab=planted.vocab(), model=model, profile=profile).close()
        except RadmoeError as e:
            print(f"radmoe: error: {e}")
            raise SystemExit(2) from None

    return work


def run_pool(name: str, spoil: Spoil) -> dict[str, Outcome]:
    """The outcome of every command on one malformed pool."""
    base = name.partition(":")[0] if name.startswith(BASES) else "plain"
    with place() as where:
        shutil.copytree(good_pools() / base, where.pool)
        make(where, spoil)
        outcomes = {command: run(where, radmoe(*words(where))) for command, words in COMMANDS.items()}
    with place() as where:  # a writer gets a pool of its own, which nothing has graded or recovered
        shutil.copytree(good_pools() / base, where.pool)
        make(where, spoil)
        return outcomes | {"go on": run(where, _go_on(where, base))}
