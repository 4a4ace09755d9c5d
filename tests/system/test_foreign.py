"""Files that somebody else made: no string in them runs code, and what is no file is not read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import samples
from radmoe.errors import InputError
from radmoe.grading import grade_pool
from radmoe.grading.behaviours import write_behaviours
from radmoe.grading.sources import problems_of
from radmoe.pool import open_pool
from radmoe.system.foreign import check_recorded, read_file
from radmoe_lab.sample import read_sampled
from text_pools import write_texts

TASK = "stranger.notes.X"


# -- strings that would choose code ------------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool in the working directory whose recorded task is a module that came with it. The module leaves a file when it runs."""
    write_texts(tmp_path / "stranger", [("a", "\\boxed{3}")], task=TASK)
    ran = tmp_path / "ran"
    (tmp_path / "stranger" / "notes.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nX = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return ran


OPENED: dict[str, Callable[[Path, Path], object]] = {
    "grade": lambda pool, data: grade_pool(pool),
    "behaviours": lambda pool, data: write_behaviours(pool),
    "problems": lambda pool, data: problems_of(open_pool(pool)),
    "problems of a file": lambda pool, data: problems_of(open_pool(pool), data=data),
    "problems of a seed": lambda pool, data: problems_of(open_pool(pool), seed=3),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_pool_s_recorded_task_is_not_imported(name: str, trap: Path, tmp_path: Path) -> None:
    data = samples.write(tmp_path / "rows.jsonl", [{"id": "a", "prompt": "?", "answer": 3}])
    way_out = r"chooses only among math-1, .*: give --task stranger\.notes\.X if that is a Dataset of your own"
    with pytest.raises(InputError, match=rf"records the task 'stranger\.notes\.X', and a file {way_out}"):
        OPENED[name](tmp_path / "stranger", data)
    assert not trap.exists()
    assert "stranger" not in sys.modules


@pytest.mark.slow
def test_the_command_line_does_not_import_it_either(trap: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "radmoe", "grade", "stranger"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "records the task" in done.stderr
    assert not trap.exists()


def test_a_task_that_the_user_types_is_imported(trap: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"task 'stranger\.notes\.X' is a int, not a radmoe\.problems\.Dataset"):
        problems_of(open_pool(tmp_path / "stranger"), task=TASK)
    assert trap.exists()
    for name in ("stranger", "stranger.notes"):
        sys.modules.pop(name, None)


def test_sampled_rollouts_name_tasks_of_the_lab_alone(tmp_path: Path) -> None:
    header = json.dumps({"settings": {"problems": {TASK: ["a"]}}}).encode()
    arrays = {f"{TASK}/{name}": np.zeros((1, 1)) for name in ("tokens", "lengths", "finish_reasons", "logprobs")}
    np.savez(tmp_path / "x.npz", header=np.frombuffer(header, np.uint8), **arrays)
    with pytest.raises(InputError, match=r"records the task 'stranger\.notes\.X'.*: sample it again"):
        read_sampled(tmp_path / "x.npz")


@pytest.mark.parametrize("name", [None, 3, ["math-1"], "", "os.path", "x" * 100_000])
def test_anything_that_is_no_known_name_is_one_short_line(name: object) -> None:
    assert check_recorded("a", {"a", "b"}, "task", "pool", "choose") == "a"
    with pytest.raises(InputError, match=r"^pool records the task .*, and a file chooses only among a: choose$") as e:
        check_recorded(name, ["a"], "task", "pool", "choose")
    assert len(str(e.value)) < 200


# -- files that are none -----------------------------------------------------------------------------------------------------


def test_a_file_is_read_through_a_link_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "sparse").open("wb") as f:
        f.truncate(20 << 30)
    assert read_file(tmp_path / "link", "a file") == b"content"
    for name, reason in {
        "endless": "not a regular file",
        "fifo": "not a regular file",
        ".": "Is a directory",
        "missing": "No such file or directory",
        "file/x": "Not a directory",
        "a\0b": "embedded null byte",
        "sparse": "21,474,836,480 bytes, nearly none on disk",
    }.items():
        with pytest.raises(InputError, match=rf"^cannot read .* \({reason}\): pass a file$"):
            read_file(f"{tmp_path}/{name}", "a file")
