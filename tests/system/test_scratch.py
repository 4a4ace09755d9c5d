"""What is there only while it is being made: a killed process leaves it behind, and the next one removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planted_pools import write_pool
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import merge_pools
from radmoe.pool.files import write_atomic
from radmoe.sandbox.run import Sandbox
from radmoe.system.scratch import Scratch, remove_abandoned
from radmoe_agent.session import Session
from radmoe_lab import planted
from radmoe_lab.planted import Planted

MERGE = """
import sys, time
from pathlib import Path
from radmoe.pool import merge_pools
def wait(shards):
    print(shards, flush=True)
    time.sleep(60)
merge_pools([Path(sys.argv[1]) / "one", Path(sys.argv[1]) / "two"], Path(sys.argv[1]) / "out", progress=wait)
"""
WRITE = """
import sys, time
from pathlib import Path
from radmoe.pool.files import write_atomic
def wait(f):
    print(1, flush=True)
    time.sleep(60)
write_atomic(Path(sys.argv[1]) / "labels.parquet", wait)
"""
JUDGE = """
import sys, time
from radmoe.sandbox.run import Sandbox
with Sandbox() as sandbox:
    sandbox._start()
    print(1, flush=True)
    time.sleep(60)
"""
CONFINE = """
import time
from radmoe_agent.session import Session
def wait(session, deadline):
    print(1, flush=True)
    time.sleep(60)
Session._said = wait
Session()
"""


def killed(code: str, place: Path) -> None:
    """Run a program until it says a line, and kill it."""
    environment = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        child.send_signal(signal.SIGKILL)


def hidden(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.name.startswith((".", "radmoe-")))


@pytest.mark.slow
def test_a_killed_merge_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    groups = list(planted.groups(Planted(problems=4, rollouts=2, tokens=20)))
    write_pool(tmp_path / "one", groups[:2])
    write_pool(tmp_path / "two", groups[2:])
    (tmp_path / ".out.backup").mkdir()  # somebody's own
    killed(MERGE, tmp_path)
    assert len(hidden(tmp_path)) == 2
    pool = merge_pools([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert len(pool) == 8
    assert hidden(tmp_path) == [".out.backup"]
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.slow
def test_a_killed_write_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    killed(WRITE, tmp_path)
    assert len(hidden(tmp_path)) == 1
    write_labels(tmp_path, [Label("a", 0, "1", True)])
    assert hidden(tmp_path) == []


@pytest.mark.slow
def test_a_killed_sandbox_is_cleared_away_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(JUDGE, tmp_path)
    assert len(hidden(tmp_path)) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    end = time.monotonic() + 10
    while hidden(tmp_path) and time.monotonic() < end:  # its helper may be ending yet
        with Sandbox() as sandbox:
            sandbox._start()
    assert hidden(tmp_path) == []


def test_a_killed_session_is_cleared_away_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(CONFINE, tmp_path)
    assert len(hidden(tmp_path)) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Session() as session:
        assert session.run(["echo", "on"]).output == b"on\n"
    assert hidden(tmp_path) == []


def test_what_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    mine = Scratch(tmp_path, "work-")
    other = Scratch(tmp_path, "work-")
    assert mine.path.is_dir()
    assert other.path.is_dir()
    seen: list[list[str]] = []

    def write(f: object) -> None:
        write_atomic(tmp_path / "file", b"second")
        seen.append(hidden(tmp_path))

    write_atomic(tmp_path / "file", write)
    assert len(seen[0]) == 1  # the first was not taken for abandoned by the second
    assert (tmp_path / "file").read_bytes() == b""
    mine.release()
    other.remove()
    remove_abandoned(tmp_path, "work-")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_links_and_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("mine")
    digits = "0" * 16
    (tmp_path / f"work-{digits}").symlink_to("victim")
    for name in ("work-", f"work-{digits}0", "work-backup", f"xwork-{digits}"):
        (tmp_path / name).mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    remove_abandoned(tmp_path, "work-")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "victim" / "file").read_text() == "mine"
