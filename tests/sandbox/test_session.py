"""Several commands in one confinement: each sees what `run_command` shows it, and leaves nothing to the next but its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe.sandbox.confine import run_command
from radmoe.sandbox.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "work").mkdir()
    with Session(tmp_path / "work", timeout=5, environment={"COLOUR": "red"}, memory=1 << 30, most=100_000) as made:
        yield made


def said(session: Session, command: str) -> str:
    done = session.run(["bash", "-c", command])
    assert not done.stopped
    return done.stdout.decode()


def test_commands_run_one_after_another_in_one_directory(session: Session, tmp_path: Path) -> None:
    assert said(session, "echo one > a; echo $COLOUR") == "red\n"
    assert said(session, "cat a; echo two >&2; echo three") == "one\ntwo\nthree\n"
    assert session.run(["bash", "-c", "exit 7"]).code == 7
    assert session.run(["bash", "-c", "kill -9 $$"]).code == 137
    assert (tmp_path / "work" / "a").read_text() == "one\n"


@pytest.mark.parametrize(
    "command",
    [
        "id -u; id -g; pwd; umask; ulimit -a | grep -v pipe; env | sort | grep -v ^_=",
        "ls -A / /tmp /dev /etc /home 2>&1; ls /proc > list; grep -c '^[0-9]' list",
        "cat /etc/passwd; echo 1 > /usr/x; echo 1 > /x; mount -t tmpfs x /tmp; unshare -n true; cat /proc/1/environ",
        "cat; hostname; readlink /proc/self/ns/net | cut -c1-5; cat /proc/net/route | wc -l",
        "nonesuch",
    ],
)
def test_a_command_sees_what_a_single_one_sees(command: str, session: Session, tmp_path: Path) -> None:
    joined = ["bash", "-c", 'exec bash -c "$1" 2>&1', "bash", command]
    alone = run_command(joined, workdir=tmp_path / "work", timeout=5, environment={"COLOUR": "red"}, memory=1 << 30)
    together = session.run(["bash", "-c", command])
    assert (together.stdout.decode(), together.code) == (alone.stdout.decode(), alone.code)


def test_nothing_is_left_to_the_next_command_but_files_in_the_directory(session: Session, tmp_path: Path) -> None:
    command = "mkdir -p /tmp/d/e; ln -s / /tmp/l; echo 1 > /tmp/f; (sleep 60 &) ; export X=1; cd /; echo done"
    assert said(session, command) == "done\n"
    left = said(session, "find /tmp -mindepth 1 -maxdepth 1; echo $X; basename $PWD").split()
    assert [Path(name).name for name in left] == [*tmp_path.parts[2:3], "work"]
    assert "sleep" not in said(session, "cat /proc/[0-9]*/comm")


def test_a_command_that_hangs_floods_or_hides_is_stopped_and_the_next_one_runs(tmp_path: Path) -> None:
    with Session(tmp_path, timeout=1, most=1000) as session:
        for command, reason in (
            ("echo begun; sleep 60", "it ran out of time (1 s)"),
            ("exec >&- 2>&-; sleep 60", "it ran out of time (1 s)"),
            ("yes", "it wrote more than 1000 bytes"),
            ("trap '' TERM; (setsid sleep 60 &) ; while :; do :; done", "it ran out of time (1 s)"),
        ):
            began = time.monotonic()
            assert session.run(["bash", "-c", command]).stopped == reason
            assert time.monotonic() - began < 30
            assert said(session, "echo on") == "on\n"
        assert session.run(["bash", "-c", "echo begun; sleep 60"]).stdout == b"begun\n"


def test_a_directory_below_tmp_survives_whatever_a_command_moves(tmp_path: Path) -> None:
    """The caller's directory lies in the /tmp that is emptied, and a command may rename what is above it."""
    (tmp_path / "a" / "work").mkdir(parents=True)
    (tmp_path / "a" / "work" / "file").write_text("1")
    if not str(tmp_path).startswith("/tmp/"):
        pytest.skip("the directory of tests is not below /tmp")
    with Session(tmp_path / "a" / "work", timeout=5) as session:
        first = tmp_path.parts[2]
        session.run(["bash", "-c", f"cd / && mv /tmp/{first} /tmp/elsewhere && ls /tmp"])
        session.run(["true"])
    assert (tmp_path / "a" / "work" / "file").read_text() == "1"


def test_memory_is_limited(session: Session) -> None:
    assert session.run(["python3", "-c", "b = bytearray(2 << 30)"]).code == 1
    assert said(session, "python3 -c 'print(6 * 7)'") == "42\n"


def test_a_command_that_does_not_exist_says_so(session: Session) -> None:
    done = session.run(["nonesuch"])
    assert (done.code, done.stdout) == (127, b"No such file or directory\n")


def test_closing_ends_all_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "work").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Session(tmp_path / "work") as session:
        assert said(session, "echo 1") == "1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(InputError, match="is gone"):
        session.run(["true"])


def test_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no directory"):
        Session(tmp_path / "none")
