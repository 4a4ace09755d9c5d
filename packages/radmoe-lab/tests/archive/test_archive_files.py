"""Packed files: what is written reads back the same, and nothing damaged or hostile is taken for rollouts."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe_lab.archive import files
from radmoe_lab.archive.files import (
    MANIFEST,
    ArchiveError,
    Packed,
    PackedTask,
    open_archive,
    packed,
    unpacked,
    write_archive,
)
from radmoe_lab.archive.source import check_checkpoint
from radmoe_lab.tasks import TASKS

pytestmark = pytest.mark.slow

NAME = "lab-qwen-thinking"


def small(**change: Any) -> PackedTask:
    """Two problems of two rollouts with 1, 2, 3 and 4 tokens."""
    fields: dict[str, Any] = {
        "tokens": np.arange(10, dtype=np.uint16),
        "lengths": np.array([[1, 2], [3, 4]], np.uint16),
        "finish_reasons": np.array([[0, 1], [1, 0]], np.uint8),
        "logprobs": np.array([[-1.5, -2], [-3, -4]], np.float32),
        "correct": np.array([[True, False], [False, True]]),
        "answers": {(0, 1): 'ü "\n', (1, 0): ""},
    }
    return PackedTask(**fields | change)


def archive_of(data: bytes, directory: Path) -> Path:
    """An archive whose one file has these bytes, and whose manifest agrees with them."""
    directory.mkdir(parents=True, exist_ok=True)
    entry = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "model": "lab-qwen",
        "style": "thinking",
        "n": 2,
        "sampling": {"seed": 0, "temperature": 1.0, "top_p": 1.0},
        "checkpoint": {},
        "tasks": {"math-1": {"problems": 2, "rollouts": 4, "tokens": 10, "right": 2}},
    }
    (directory / f"{NAME}.npz.xz").write_bytes(data)
    (directory / MANIFEST).write_text(json.dumps({"format": 1, "configurations": {NAME: entry}}))
    return directory


def test_what_is_packed_is_unpacked() -> None:
    routing = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
    before = Packed({"math-1": small(), "code": small(answers={})}, routing)
    after = unpacked(packed(before))
    assert list(after.tasks) == ["math-1", "code"]
    assert np.array_equal(after.expert_ids, routing)
    for task, rollouts in before.tasks.items():
        other = after.tasks[task]
        assert other.answers == rollouts.answers
        for name in ("tokens", "lengths", "finish_reasons", "logprobs", "correct"):
            assert np.array_equal(getattr(other, name), getattr(rollouts, name))
    assert [tokens.tolist() for tokens in after.tasks["code"].rollouts(1)] == [[3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": np.arange(9, dtype=np.uint16)},
        {"tokens": np.arange(10, dtype=np.float64)},
        {"lengths": np.array([[1, 2, 3, 4]], np.uint16)},
        {"lengths": np.array([[0, 3], [3, 4]], np.uint16)},
        {"lengths": np.empty((0, 2), np.uint16), "tokens": np.empty(0, np.uint16)},
        {"finish_reasons": np.full((2, 2), 2, np.uint8)},
        {"logprobs": np.zeros((2, 3), np.float32)},
        {"correct": np.zeros((2, 2), np.int8)},
    ],
)
def test_arrays_that_contradict_each_other_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"disagree|without tokens|of type"):
        small(**change)


@pytest.mark.parametrize("place", [0, 7, 100, -100, -1])
def test_a_flipped_byte_is_found(place: int, archive_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(archive_path, tmp_path / "a"))
    path = copy / f"{NAME}.npz.xz"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=r"npz\.xz is damaged: its sha256 is not that of manifest\.json"):
        open_archive(copy).read(NAME)


def test_half_a_file_and_no_file_are_found(archive_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(archive_path, tmp_path / "a"))
    path = copy / f"{NAME}.npz.xz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ArchiveError, match="is damaged"):
        open_archive(copy).read(NAME)
    path.unlink()
    with pytest.raises(ArchiveError, match=r"cannot read .* \(No such file or directory\): install radmoe-lab again"):
        open_archive(copy).read(NAME)


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def whole() -> bytes:
    return packed(Packed({"math-1": small()}, np.zeros((3, 2, 2), np.uint8)))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no xz": lambda: b"not compressed",
    "cut": lambda: whole()[:-40],
    "trailing": lambda: whole() + b"more",
    "no npz": lambda: lzma.compress(b"nothing"),
    "no arrays": lambda: lzma.compress(npz(tasks=np.frombuffer(b'["math-1"]', np.uint8), expert_ids=np.zeros(1))),
    "no json": lambda: lzma.compress(npz(tasks=np.frombuffer(b"[", np.uint8), expert_ids=np.zeros(1))),
    "no tasks": lambda: lzma.compress(npz(tasks=np.frombuffer(b"[]", np.uint8), expert_ids=np.zeros((3, 2, 2), "u1"))),
    "pickled": lambda: lzma.compress(npz(tasks=np.array([print], object), expert_ids=np.zeros(1))),
    "deep": lambda: lzma.compress(npz(tasks=np.frombuffer(b"[" * 100_000, np.uint8))),
    "a task that is code": lambda: packed(Packed({"stranger.notes.X": small()}, np.zeros((3, 2, 2), np.uint8))),
    "a task that leads elsewhere": lambda: packed(Packed({"../../x": small()}, np.zeros((3, 2, 2), np.uint8))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_with_the_right_checksum_is_one_line(name: str, tmp_path: Path) -> None:
    archive = open_archive(archive_of(HOSTILE[name](), tmp_path / "a"))
    with pytest.raises(ArchiveError, match=r"cannot be unpacked \(.+\): install radmoe-lab again") as error:
        archive.read(NAME)
    assert "\n" not in str(error.value)


def test_routing_of_another_number_of_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="routing that is not that of the first problem"):
        Packed({"math-1": small()}, np.zeros((4, 2, 2), np.uint8))


def one_entry(**change: Any) -> str:
    """A manifest of one configuration, named by its model and style."""
    entry: dict[str, Any] = {
        "sha256": "",
        "model": "lab-qwen",
        "style": "thinking",
        "n": 1,
        "sampling": {"seed": 0, "temperature": 1.0, "top_p": 1.0},
        "checkpoint": {},
        "tasks": {"math-1": {"problems": 1, "rollouts": 1, "tokens": 1, "right": 0}},
    }
    entry |= change
    return json.dumps({"format": 1, "configurations": {f"{entry['model']}-{entry['style']}": entry}})


def test_a_manifest_of_one_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(one_entry())
    assert list(open_archive(tmp_path).configurations) == [NAME]


MANIFESTS = {
    "no json": "{",
    "a list": "[]",
    "no configurations": '{"format": 1}',
    "none of them": '{"format": 1, "configurations": {}}',
    "an entry of nothing": '{"format": 1, "configurations": {"x": {}}}',
    "an entry that is none": '{"format": 1, "configurations": {"x": 3}}',
    "a name that leads elsewhere": json.dumps(
        {
            "format": 1,
            "configurations": {
                "../x": {
                    "sha256": "",
                    "model": "lab-qwen",
                    "style": "thinking",
                    "n": 1,
                    "sampling": {},
                    "checkpoint": {},
                    "tasks": {"math-1": {"problems": 1, "tokens": 1}},
                }
            },
        }
    ),
    "a model of somebody's": one_entry(model="/home/stranger/model"),
    "a task without counts": one_entry(tasks={"math-1": {"problems": 1, "tokens": 1}}),
    "a temperature of 1e999": one_entry(sampling={"seed": 0, "temperature": float("inf"), "top_p": 1}),
    "n of 10^4000": one_entry(n=10**4000),
    "a style that is none": one_entry(style="../.."),
    "a task that is code": one_entry(tasks={"stranger.notes.X": {"problems": 1, "tokens": 1}}),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_damaged_manifest_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(MANIFESTS[name])
    with pytest.raises(ArchiveError, match=r"manifest\.json is damaged \(.+\): install radmoe-lab again") as error:
        open_archive(tmp_path)
    assert "\n" not in str(error.value)


def test_another_format_is_said(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"format": 2, "configurations": {}}')
    with pytest.raises(ArchiveError, match="is of format 2, this radmoe reads 1"):
        open_archive(tmp_path)


def test_a_directory_without_rollouts_and_a_missing_package_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArchiveError, match=r"there are no rollouts at .*: install a radmoe-lab that has them"):
        open_archive(tmp_path)
    monkeypatch.setattr(files, "PACKAGE", "radmoe_lab_that_is_not_there")
    with pytest.raises(ArchiveError, match="in radmoe-lab, which is not installed: pip install radmoe-lab"):
        open_archive()


def test_an_unknown_configuration_is_said(archive_path: Path) -> None:
    archive = open_archive(archive_path)
    assert archive.check_names(()) == [NAME]
    with pytest.raises(InputError, match=f"no configuration 'lab-oss-high' is packed: use one of {NAME}"):
        archive.check_names(("lab-oss-high",))


def test_a_write_that_fails_leaves_the_old_manifest(archive_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(archive_path, tmp_path / "a"))
    before = (copy / MANIFEST).read_bytes()
    (copy / "x-y.npz.xz").mkdir()  # a directory is where the file is to be
    with pytest.raises(OSError, match="directory"):
        write_archive(copy, {"x-y": (Packed({"math-1": small()}, np.zeros((3, 2, 2), np.uint8)), {})})
    assert (copy / MANIFEST).read_bytes() == before
    assert sorted(file.name for file in copy.iterdir()) == [f"{NAME}.npz.xz", MANIFEST, "x-y.npz.xz"]


def test_a_seed_that_is_not_shipped_is_one_line() -> None:
    with pytest.raises(
        ArchiveError,
        match=r"seed 7 that were sampled as 'hot': use one of 0, 31, 32, 33, or another sampling \(paper\)$",
    ):
        open_archive(seed=7, sampling="hot")
    with pytest.raises(ArchiveError, match=r"seed 31 .* as 'paper': use one of 0, or another sampling \(hot\)$"):
        open_archive(seed=31)


def test_a_sampling_that_is_not_shipped_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^no rollouts were sampled as 'greedy': use one of paper, hot$"):
        open_archive(sampling="greedy")


@pytest.mark.parametrize(("seed", "math", "others"), [(31, 30, (30, 30)), (32, 12, (30, 30)), (33, 12, (60, 120))])
def test_the_shipped_problems_of_other_seeds_are_whole_and_of_the_shipped_weights(
    seed: int, math: int, others: tuple[int, int]
) -> None:
    choice_or_code, text = others
    archive = open_archive(seed=seed, sampling="hot")
    assert list(archive.configurations) == list(open_archive().configurations)
    for name, entry in archive.configurations.items():
        assert (entry["sampling"]["seed"], entry["n"]) == (seed, 64)
        check_checkpoint(entry["model"], entry["checkpoint"], name)
        problems = {task: len(each.lengths) for task, each in archive.read(name).tasks.items()}
        sizes = {"math": math, "choice": choice_or_code, "code": choice_or_code, "explain": text}
        assert problems == {task: sizes[task.partition("-")[0]] for task in TASKS}


REGISTERED = Path(__file__).parents[2] / "registered"  # in a checkout, in no package


@pytest.mark.parametrize(
    ("seed", "directory", "tasks"),
    [
        (0, None, set(TASKS)),
        (471, REGISTERED / "471", set(TASKS)),
        (472, REGISTERED / "472", {"code", "code-wide"}),
        (473, REGISTERED / "473", {"code", "code-wide"}),
    ],
)
def test_the_rollouts_at_the_papers_sampling_are_whole_and_of_the_shipped_weights(
    seed: int, directory: Path | None, tasks: set[str]
) -> None:
    hot, archive = open_archive(sampling="hot"), open_archive(directory)
    assert list(archive.configurations) == list(hot.configurations)
    for name, entry in archive.configurations.items():
        drawn = entry["sampling"]
        assert (drawn["seed"], drawn["temperature"], drawn["top_p"], entry["n"]) == (seed, 0.7, 0.9, 64)
        check_checkpoint(entry["model"], entry["checkpoint"], name)
        problems = {task: len(each.lengths) for task, each in archive.read(name).tasks.items()}
        assert problems == {task: hot.configurations[name]["tasks"][task]["problems"] for task in tasks}


def test_the_shipped_rollouts_of_both_samplings_take_24_megabytes_at_most() -> None:
    assert sum(file.stat().st_size for file in open_archive(sampling="hot").directory.rglob("*.npz.xz")) <= 24_000_000
