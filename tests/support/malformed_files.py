"""A table of files that a stranger could send beside pools: archives, trajectories, calibrations, data
files, lists of patches.

`malformed_files` maps a name to a function that makes the files of one case in a place, and returns what reads them.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from forked_runs import Outcome, Place, make, place, radmoe, run
from malformed_pools import good_pools
from radmoe.errors import RadmoeError
from radmoe_lab.archive.files import MANIFEST

Work = Callable[[], object]
Case = tuple[Callable[[Place], object], Callable[[Place], dict[str, Work]]]  # makes the files, and what reads them

NAME = "lab-qwen-thinking"
BOMB_BYTES = 3 << 29


# -- packed arrays -----------------------------------------------------------------------------------------------------------


def npy(header: str, content: bytes = b"") -> bytes:
    """An array file with this header, whatever it claims."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def described(shape: str, dtype: str = "|u1") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def archive(*members: tuple[str, bytes]) -> bytes:
    """A zip of arrays as they are given."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members:
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def text(value: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def deflated_bomb() -> bytes:
    """Zeros that are deflated, and whose deflated bytes repeat, so that xz makes next to nothing of them."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("tasks.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy(described(f"({BOMB_BYTES},)")))
        for _ in range(BOMB_BYTES >> 24):
            member.write(bytes(1 << 24))
    return file.getvalue()


def overlapping(count: int = 2000) -> bytes:
    """Many entries of a zip's directory that all point at one member of a megabyte."""
    one = archive(("a", npy(described("(1000000,)"), bytes(1_000_000))))
    at, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    directory = one[at:end] * count
    tail = bytearray(one[end:])
    tail[8:10] = tail[10:12] = count.to_bytes(2, "little")
    tail[12:16] = len(directory).to_bytes(4, "little")
    return one[:at] + directory + bytes(tail)


def xz_bomb() -> bytes:
    packer = lzma.LZMACompressor()
    return b"".join([*(packer.compress(bytes(1 << 24)) for _ in range(BOMB_BYTES >> 24)), packer.flush()])


PACKED: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no xz": lambda: b"not compressed",
    "an xz stream of 1.5 GB": xz_bomb,
    "deflated zeros of 1.5 GB": lambda: lzma.compress(deflated_bomb()),
    "a header of 6 GB": lambda: lzma.compress(archive(("tasks", npy(described("(6000000000,)"))))),
    "a header of 2^62": lambda: lzma.compress(archive(("tasks", npy(described(f"({2**62}, {2**62})"))))),
    "members that overlap": lambda: lzma.compress(overlapping()),
    "a member that is code": lambda: lzma.compress(archive(("tasks", npy("__import__('os').abort()")))),
    "objects": lambda: lzma.compress(archive(("tasks", npy(described("(1,)", "|O"), bytes(8))))),
    "items of nothing": lambda: lzma.compress(archive(("tasks", npy(described("(1000000000,)", "|V0"))))),
    "a task that is code": lambda: lzma.compress(
        saved(tasks=text(["pool.notes.X"]), expert_ids=np.zeros((1, 1, 1), "u1"))
    ),
    "a task that leads elsewhere": lambda: lzma.compress(
        saved(tasks=text(["../outside/victim"]), expert_ids=np.zeros((1, 1, 1), "u1"))
    ),
    "trajectories of another seed": lambda: lzma.compress(
        saved(header=text({"format": 1, "seed": math.inf, "repositories": ["repo-" + "9" * 5000]}))
    ),
    "deep JSON": lambda: lzma.compress(saved(tasks=np.frombuffer(b"[" * 200_000, np.uint8))),
}


def _archive_of(where: Place, content: bytes, **change: Any) -> None:
    """A directory of packed rollouts with one file of these bytes, and a manifest that agrees."""
    directory = where.root / "archive"
    directory.mkdir()
    entry: dict[str, Any] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "model": "lab-qwen",
        "style": "thinking",
        "n": 2,
        "sampling": {"seed": 0, "temperature": 0.8, "top_p": 1.0},
        "checkpoint": {},
        "tasks": {"math-1": {"problems": 2, "rollouts": 4, "tokens": 10, "right": 2}},
    }
    entry |= change
    from radmoe_lab.models import weights
    from radmoe_lab.sample import checksums

    entry["checkpoint"] = checksums(weights("lab-qwen"))
    name = f"{entry['model']}-{entry['style']}"
    (directory / f"{NAME}.npz.xz").write_bytes(content)
    (directory / MANIFEST).write_text(json.dumps({"format": 1, "configurations": {name: entry}}))


def _archive_commands(where: Place) -> dict[str, Work]:
    words = ("--rollouts", where.root / "archive")
    out = ("--out", where.root / "merged", "--limit", 1)
    return {"lab list": radmoe("lab", "list", *words), "lab pools": radmoe("lab", "pools", *words, *out)}


def _read_trajectories(where: Place) -> dict[str, Work]:
    def read() -> None:
        from radmoe_lab.agent.records import read_trajectories

        with_one_line(lambda: read_trajectories(where.root / "file.npz.xz"))

    return {"read": read}


def with_one_line(work: Work) -> None:
    """End as the command line does."""
    try:
        work()
    except RadmoeError as error:
        print(f"radmoe: error: {error}")
        raise SystemExit(2) from None


def _packed() -> Iterator[tuple[str, Case]]:
    for name, content in PACKED.items():
        yield f"archive: {name}", (lambda where, content=content: _archive_of(where, content()), _archive_commands)
        yield (
            f"trajectories: {name}",
            (
                lambda where, content=content: (where.root / "file.npz.xz").write_bytes(content()),
                _read_trajectories,
            ),
        )
    manifests: dict[str, dict[str, Any]] = {
        "a model of somebody's": {"model": "/outside/model"},
        "a style that leads elsewhere": {"style": "../../outside"},
        "a task that is code": {"tasks": {"pool.notes.X": {"problems": 1, "tokens": 1}}},
        "n of 10^4000": {"n": 10**4000},
        "a task without counts": {"tasks": {"math-1": {"problems": 1, "tokens": 1}}},
        "a task of no rollouts": {"tasks": {"math-1": {"problems": 1, "rollouts": 0, "tokens": 1, "right": 1}}},
        "a temperature that is a text": {"sampling": {"seed": 0, "temperature": "x", "top_p": 1}},
        "a seed of 1e999": {"sampling": {"seed": math.inf, "temperature": 1, "top_p": 1}},
    }
    for name, change in manifests.items():
        yield f"manifest: {name}", (lambda where, change=change: _archive_of(where, b"", **change), _archive_commands)


# -- files that are none, and odd lines --------------------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a FIFO": _fifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a directory": lambda path: path.mkdir(),
    "sparse": _sparse,
    "nothing": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe" * 100),
    "zeros": lambda path: path.write_bytes(bytes(1 << 20)),
    "deep": lambda path: path.write_bytes(b"[" * 200_000),
    "an id of 5,000 digits": lambda path: path.write_text(
        '{"problem_id": ' + "9" * 5_000 + ', "answer": 1, "prompt": "?"}'
    ),
    "an id of 4,299 digits": lambda path: path.write_text('{"id": ' + "9" * 4_299 + ', "answer": 1, "prompt": "?"}'),
    "an answer of 1e999": lambda path: path.write_text(
        '{"problem_id": "planted-0000", "answer": 1e999, "prompt": "?"}'
    ),
    "half a character": lambda path: path.write_text(
        '{"problem_id": "planted-0000", "answer": "\\ud800", "prompt": "\\ud800"}'
    ),
}


def _data_commands(where: Place) -> dict[str, Work]:
    file = where.root / "file.jsonl"
    shutil.copytree(good_pools() / "plain", where.pool)
    return {
        "grade --data": radmoe("grade", where.pool, "--data", file, "--jobs", 1),
        "grade --answers": radmoe("grade", where.pool, "--answers", file, "--jobs", 1),
        "select --calibration": radmoe("select", where.pool, "--calibration", file, "--json"),
        "a trajectory": partial(with_one_line, partial(_read_one, file)),
    }


def _read_one(file: Path) -> None:
    from radmoe_agent.candidates import candidate, read_trajectory

    candidate("one", 0, read_trajectory(file))


def _odd() -> Iterator[tuple[str, Case]]:
    for name, put in ODD_FILES.items():
        yield f"file: {name}", (lambda where, put=put: put(where.root / "file.jsonl"), _data_commands)


# -- calibrations ------------------------------------------------------------------------------------------------------------


def good_calibration() -> dict[str, Any]:
    """A calibration for the picks of the planted pool, whose checkpoint nobody recorded."""
    dense = {"density": 0.5, "picks": 10, "wrong": 3}
    curves = [
        {
            "rollouts": n,
            "intercept": 0.0,
            "slope": 1.0,
            "mean": 1.0,
            "scale": 1.0,
            "low": 0.0,
            "high": 9.0,
            "dense": dense,
        }
        for n in (2, 64)
    ]
    fit = {"curves": curves, "problems": 30, "located": 0.9, "measured": {}}
    origin = dict.fromkeys(("checkpoint", "style", "temperature", "top_p", "task"))
    return {
        "format": "radmoe-calibration",
        "version": 2,
        "origin": {"model": "planted", "routing": "all layers", "adaptive": False, **origin},
        "rule": {},
        "kinds": {"math": fit},
        "tasks": [],
        "pools": [],
    }


ENDLESS = "trajectory:/^(?:.?){60}\\x00$/@16"  # which takes 60 over 10 tries for a token of ten letters


def _calibrations() -> Iterator[tuple[str, Case]]:
    curve = good_calibration()["kinds"]["math"]["curves"][0]
    wrong: dict[str, Any] = {
        "1e999": math.inf,
        "NaN": math.nan,
        "10^4000": 10**4000,
        "null": None,
        "a text": "x",
        "-5": -5,
    }
    changes: dict[str, dict[str, Any]] = {
        f"{field} {word}": {
            "kinds": {"math": good_calibration()["kinds"]["math"] | {"curves": [curve | {field: value}]}}
        }
        for number, field in enumerate(curve)
        for word, value in list(wrong.items())[number % 2 :: 2]
    }
    changes |= {
        "an endless readout": {"rule": {"readout": ENDLESS}},
        "a readout of 5,000 digits": {"rule": {"readout": "delimiter@" + "9" * 5_000}},
        "a preset that is code": {"rule": {"preset": "os.system"}},
        "k of 1e999": {"rule": {"k": math.inf}},
        "a window of 2^62": {"rule": {"confidence_window": 2**62}},
        "a kind that is none": {"kinds": {"poem": good_calibration()["kinds"]["math"]}},
    }
    for name, change in changes.items():
        body = good_calibration() | change
        yield (
            f"calibration: {name}",
            (
                lambda where, body=body: (where.root / "file.jsonl").write_text(json.dumps(body)),
                lambda where: {"select": _data_commands(where)["select --calibration"]},
            ),
        )


# -- lists of an agent's patches ---------------------------------------------------------------------------------------------


def _candidates() -> Iterator[tuple[str, Case]]:
    good = {"instance_id": "planted-0000", "run": 0, "patch": "--- a\n+++ b\n"}
    wrong: dict[str, list[dict[str, Any]]] = {
        "notes that are a number": [{"notes": 5}],
        "a model that is an object": [{"model": {"a": []}}],
        "a problem that is a list": [{"problem": []}],
        "a run that is true": [{"run": True}],
        "a run of 4,299 digits": [{"run": int("9" * 4_299)}],
        "half a character": [{"patch": "\ud800", "status": "\ud800", "notes": ["\ud800"]}],
        "an instance of half a character": [{"instance_id": "\ud800"}],
        "an instance that nobody knows": [{"instance_id": "\x1b[31m"}],
        "30,000 runs": [{"run": number} for number in range(30_000)],
    }
    for name, changes in wrong.items():
        lines = "".join(json.dumps(good | change) + "\n" for change in changes)
        yield f"candidates: {name}", (lambda where, lines=lines: _runs_of(where, lines), _select_patch)


def _runs_of(where: Place, candidates: str) -> None:
    shutil.copytree(good_pools() / "plain", where.root / "runs" / "pool")
    (where.root / "runs" / "candidates.jsonl").write_text(candidates)


def _select_patch(where: Place) -> dict[str, Work]:
    return {"agent select": radmoe("agent", "select", where.root / "runs", "--out", where.root / "preds.json")}


def malformed_files() -> dict[str, Case]:
    """The cases by name, in a fixed order."""
    return dict([*_packed(), *_odd(), *_calibrations(), *_candidates()])


def run_files(case: Case) -> dict[str, Outcome]:
    """The outcome of whatever reads the files of one case."""
    spoil, commands = case
    with place() as where:
        make(where, spoil)
        return {name: run(where, work) for name, work in commands(where).items()}
