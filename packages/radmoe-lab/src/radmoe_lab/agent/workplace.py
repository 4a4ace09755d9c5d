"""Where an agent's commands run: a repository of its own, in the confinement of `radmoe_agent.session`.

No mini-swe-agent is needed. A command sees the system's programs and its own work tree, and has no network, ten seconds
and a gibibyte of memory. Where a system has no namespaces, commands are refused unless the caller says that they may run
unconfined, in a directory, which is meant for a machine that is thrown away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from radmoe.errors import InputError
from radmoe.sandbox.root import WORKDIR
from radmoe_agent.session import ENVIRONMENT as MINIMAL
from radmoe_agent.session import SYSTEM, Session
from radmoe_lab.agent.git_stand_in import difference
from radmoe_lab.agent.templates import COMMAND_S

MEMORY = 1 << 30
DISK = 64 << 20  # bytes of the work tree; the repositories have a few kilobytes
MOST = 200_000  # bytes of output, beyond which a command is stopped
ENVIRONMENT = {
    "PAGER": "cat",
    "PYTHONDONTWRITEBYTECODE": "1",  # a file that is edited twice in a second would run as it was
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
_COMMIT = (
    "git init -q --template= -b main . && git add -A && "
    "git -c user.name=lab -c user.email=lab@localhost commit -q -m start --date 2026-01-01T00:00:00Z"
)
_PLACE_STAND_IN = "chmod +x .git/bin/git"
_REMOVE = 'rm -rf -- "$1" || { chmod -R u+rwx -- "$1"; rm -rf -- "$1"; }'  # however deep, and whatever its modes
_PROBES = b"print(6)\n", b"print(7)\n"
_STAND_IN = Path(__file__).with_name("git_stand_in.py")
_JOINED = 'exec bash -c "$1" 2>&1'  # one stream for both outputs, as mini-swe-agent has it
_LIMITED = f"ulimit -v {MEMORY >> 10} -t {COMMAND_S + 1} -f {64 << 10}; {_JOINED}"


class Printed(NamedTuple):
    """What a command printed on both outputs, its exit code (-1 if it was stopped), and whether it was stopped."""

    output: str
    code: int
    stopped: bool = False


class Workplace:
    """A repository with some files and one commit, made for the first of the commands that one agent runs there.

    With `unconfined`, it is made in that directory, which must not exist yet, and commands run in the caller's own
    namespaces. Raises InputError where commands cannot be confined or no repository can be made.
    """

    def __init__(self, files: Mapping[str, str], *, unconfined: Path | None = None) -> None:
        self._files, self._directory = dict(files), unconfined
        self._session: Session | None = None
        self._made = False

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str) -> Printed:
        """Run a command as an agent types it. Where an earlier one took its confinement down, it is stopped at once."""
        if not self._made:
            self._make()
        return self._run(command)

    def _make(self) -> None:
        stand_in = _missing("git")
        files = {**self._files, **(_stand_in(self._files) if stand_in else {})}
        if self._directory is None:
            path, binds = _tools(WORKDIR)
            self._session = Session(
                files=files,
                binds=(*SYSTEM, *binds),
                environment={**ENVIRONMENT, "PATH": path},
                timeout=COMMAND_S,
                memory=MEMORY,
                disk=DISK,
                most=MOST,
            )
        else:
            for name, text in files.items():
                (self._directory / name).parent.mkdir(parents=True, exist_ok=True)
                (self._directory / name).write_text(text)
        self._made = True
        done = self._run(_PLACE_STAND_IN if stand_in else _COMMIT)
        if done.code:
            raise InputError(f"no git repository can be made: {done.output.strip()[:200]}")

    def _run(self, command: str) -> Printed:
        if self._directory is not None:
            return _run_unconfined(self._directory, command)
        if self._session is None:
            return Printed("", -1, stopped=True)
        try:
            done = self._session.run(["bash", "-c", command])
        except InputError:  # the command took its confinement down, and with it its files
            self.close()
            return Printed("", -1, stopped=True)
        code = -1 if done.stopped else done.code
        return Printed(done.output.decode("utf-8", "replace"), code, bool(done.stopped))

    def close(self) -> None:
        """End what runs here. A work tree is gone with its confinement; an unconfined one is removed."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if self._directory is not None:
            subprocess.run(["bash", "-c", _REMOVE, "bash", self._directory], check=False, capture_output=True)


def _run_unconfined(directory: Path, command: str) -> Printed:
    """Run a command in the caller's own namespaces, with limits of time and memory only."""
    path, _ = _tools(str(directory))
    process = subprocess.Popen(
        ["bash", "-c", _LIMITED, "bash", command],
        cwd=directory,
        env={**MINIMAL, **ENVIRONMENT, "PATH": path, "HOME": str(directory.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=COMMAND_S)
        stopped = len(output) > MOST
    except subprocess.TimeoutExpired:
        stopped = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if stopped and process.returncode is None:
        output, _ = process.communicate()
    code = -1 if stopped else process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Printed(output[:MOST].decode("utf-8", "replace"), code, stopped)


def _missing(program: str) -> bool:
    """Whether commands, which see the system's programs, would not find this one."""
    return shutil.which(program, path=MINIMAL["PATH"]) is None


def _tools(directory: str) -> tuple[str, list[Path]]:
    """The PATH of commands, and the directories to mount besides the system: those of Python if the system has none."""
    path, binds = MINIMAL["PATH"].split(":"), []
    if _missing("git"):
        path.append(f"{directory}/.git/bin")
    if _missing("python3"):
        path.append(str(Path(sys.executable).parent))
        binds += [Path(sys.prefix), Path(sys.base_prefix)]
    return ":".join(path), binds


def _stand_in(files: Mapping[str, str]) -> dict[str, str]:
    """The contents of .git without git: the original files, and a program that implements `diff` and `checkout`."""
    start = {f".git/start/{name}": text for name, text in files.items()}
    return {**start, ".git/bin/git": f"#!/usr/bin/env python3\n{_STAND_IN.read_text()}"}


def probe(place: Path, *, unconfined: bool = False) -> None:
    """Make a repository, in a directory if unconfined, and run a command there. Raises InputError where that fails."""
    try:
        with Workplace({"a.py": _PROBES[0].decode()}, unconfined=place / "probe" if unconfined else None) as works:
            done = works.run("sed -i s/6/7/ a.py && python3 a.py && git diff")
    except InputError as error:
        raise InputError(
            f"{error}; on a machine that is thrown away, --unconfined runs commands all the same"
        ) from None
    if done.output != f"7\n{difference('a.py', *_PROBES)}":
        raise InputError(f"commands need bash, sed and python3, and say {done.output.strip()[:120]!r}: install them")
