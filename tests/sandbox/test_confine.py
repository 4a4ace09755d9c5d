"""Any command in the confinement that programs have: a real bash, and a real git."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe.sandbox.confine import Finished, run_command
from sandbox.available import needs_namespaces
from sandbox.crippled import NO_MOUNTS, cripple
from sandbox.leftovers import leftovers

pytestmark = needs_namespaces


def bash(workdir: Path, script: str, timeout: float = 20, **options: object) -> Finished:
    return run_command(["bash", "-c", script], workdir=workdir, timeout=timeout, **options)  # type: ignore[arg-type]


def test_a_command_works_in_its_directory_and_its_output_comes_back(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("here")
    finished = bash(tmp_path, "pwd; cat given -; echo made > made; echo complaint >&2; exit 3", stdin=b" and there\n")
    assert finished == Finished(3, f"{tmp_path}\nhere and there\n".encode(), b"complaint\n")
    assert (tmp_path / "made").read_text() == "made\n"


def test_it_gets_the_environment_it_is_given_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "secret")
    names = {
        line.split("=")[0] for line in bash(tmp_path, "env", environment={"GIVEN": "1"}).stdout.decode().split("\n")
    }
    assert {"GIVEN", "PATH", "HOME"} <= names
    assert "HIDDEN" not in names


@pytest.mark.parametrize(
    "script",
    [
        "cat /etc/passwd",
        "ls /root || ls /home",
        "ls /work /srv /mnt",
        "touch /usr/hostile-file",
        "touch /hostile-file",
        "echo x > /proc/sys/kernel/core_pattern",
        "cat /proc/1/environ",
        "test $(ls /proc | grep -c '^[0-9]*$') -gt 6",
        "mount -t tmpfs none /tmp",
        "unshare -Ur true",
        "unshare -m true",
        "chroot / true",
        "exec 3<>/dev/tcp/127.0.0.1/22",
        "test $(grep -c : /proc/self/net/dev) -gt 1",
        "test -e /sys/kernel || test -e /dev/kmsg || test -e /dev/mem",
        "python3 -c 'import socket; socket.socket(40, 1)'",
        "ulimit -v unlimited",
        "grep -v 0000000000000000 <(grep ^Cap /proc/self/status)",
    ],
)
def test_it_sees_and_may_do_no_more_than_it_should(tmp_path: Path, script: str) -> None:
    before = leftovers()
    finished = bash(tmp_path, script)
    assert finished.code != 0, finished
    assert leftovers() == before


def test_a_pipe_that_closes_ends_what_writes_to_it(tmp_path: Path) -> None:
    assert bash(tmp_path, "yes | head -1; echo ${PIPESTATUS[0]}") == Finished(0, b"y\n141\n", b"")


def test_it_cannot_end_the_process_that_watches_it(tmp_path: Path) -> None:
    finished = bash(tmp_path, "kill -9 1; kill -9 -1; sleep 0.2; echo alive")
    assert (finished.stdout, finished.code) == (b"alive\n", 0)


def test_it_may_start_processes_and_none_of_them_outlives_it(tmp_path: Path) -> None:
    before, started = leftovers(), time.monotonic()
    finished = bash(tmp_path, "(setsid sleep 60 &) ; sleep 60 & seq 3 | sort -r | tr -d '\\n'; cat <(echo x)")
    assert (finished.stdout, finished.code) == (b"321x\n", 0)
    assert time.monotonic() - started < 10
    assert leftovers() == before


def test_its_temporary_directory_is_gone_afterwards(tmp_path: Path) -> None:
    assert bash(tmp_path, "echo x > /tmp/hostile-file && cat /tmp/hostile-file").stdout == b"x\n"
    assert not Path("/tmp/hostile-file").exists()
    assert bash(tmp_path, "cat /tmp/hostile-file").code != 0
    assert bash(tmp_path, "head -c 3000000 /dev/zero > /tmp/x", scratch=1 << 20).code != 0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 60", "it ran out of time (1 s)"),
        ("exec >&- 2>&-; sleep 60", "it ran out of time (1 s)"),
        ("trap '' TERM INT HUP; while true; do sleep 60; done", "it ran out of time (1 s)"),
        ("setsid bash -c 'while true; do :; done' & wait", "it ran out of time (1 s)"),
        ("yes", "it wrote more than 1048576 bytes"),
    ],
)
def test_one_that_takes_too_much_is_stopped_with_all_it_started(tmp_path: Path, script: str, reason: str) -> None:
    before, started = leftovers(), time.monotonic()
    finished = bash(tmp_path, script, timeout=1)
    assert finished.stopped == reason
    assert len(finished.stdout) <= 1 << 20
    assert time.monotonic() - started < 8
    assert leftovers() == before


def test_memory_is_limited(tmp_path: Path) -> None:
    assert bash(tmp_path, "x=$(head -c 300000000 /dev/zero | tr '\\0' a)", memory=100 << 20).code != 0


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_git_commits_and_shows_what_changed(tmp_path: Path) -> None:
    who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    script = "git init -q . && echo one > file && git add file && git commit -qm first && echo two > file && git diff"
    finished = bash(tmp_path, script, environment=who)
    assert finished.code == 0, finished
    assert b"-one\n+two\n" in finished.stdout
    assert run_command(["git", "log", "--format=%s"], workdir=tmp_path).stdout == b"first\n"
    assert (tmp_path / ".git" / "HEAD").stat().st_uid == tmp_path.stat().st_uid


def test_more_can_be_shown_but_not_written_to(tmp_path: Path) -> None:
    tools, work = tmp_path / "tools", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    (tools / "tool").write_text("#!/bin/sh\necho works\n")
    (tools / "tool").chmod(0o755)
    assert bash(work, f"{tools}/tool").code == 127
    shown = bash(work, f"{tools}/tool; touch {tools}/hostile-file", binds=("/usr", "/bin", "/lib", "/lib64", tools))
    assert (shown.stdout, shown.code) == (b"works\n", 1)


def test_what_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'no-such-command' cannot be run in confinement: No such file or directory"):
        run_command(["no-such-command"], workdir=tmp_path)
    with pytest.raises(InputError, match="nowhere is no directory"):
        run_command(["true"], workdir=tmp_path / "nowhere")
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS)
    with pytest.raises(InputError, match="cannot be run in confinement: pivot_root: Operation not permitted"):
        run_command(["true"], workdir=tmp_path)
