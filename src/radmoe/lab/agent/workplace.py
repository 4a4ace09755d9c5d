"""Where an agent's commands run: a private copy of a repository, in our own confinement (`radmoe.sandbox.session`).

No mini-swe-agent and no bubblewrap is needed. A command sees the system's programs and its own directory, and has no
network, ten seconds and a gibibyte of memory. Where a system has no namespaces, commands are refused unless the caller
says that they may run unconfined, which is meant for a machine that is thrown away.
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
from radmoe.lab.agent.git_stand_in import difference
from radmoe.lab.agent.templates import COMMAND_S
from radmoe.sandbox.confine import ENVIRONMENT as MINIMAL
from radmoe.sandbox.confine import SYSTEM
from radmoe.sandbox.session import Session

MEMORY = 1 << 30
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
    """A directory, and the confinement in which one agent's commands run there, made for the first of them."""

    def __init__(self, directory: Path, *, unconfined: bool = False) -> None:
        self._directory, self._unconfined = directory, unconfined
        self._session: Session | None = None

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str) -> Printed:
        """Run a command as an agent types it."""
        if self._unconfined:
            return _run_unconfined(self._directory, command)
        if self._session is None:
            path, binds = _tools(self._directory)
            self._session = Session(
                self._directory,
                binds=(*SYSTEM, *binds),
                environment={**ENVIRONMENT, "PATH": path},
                timeout=COMMAND_S,
                memory=MEMORY,
                most=MOST,
            )
        try:
            done = self._session.run(["bash", "-c", command])
        except InputError:  # the command took its confinement down; the next one gets another
            self.close()
            return Printed("", -1, stopped=True)
        code = -1 if done.stopped else done.code
        return Printed(done.stdout.decode("utf-8", "replace"), code, bool(done.stopped))

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def run(directory: Path, command: str, *, unconfined: bool = False) -> Printed:
    """Run one command in a directory."""
    with Workplace(directory, unconfined=unconfined) as place:
        return place.run(command)


def _run_unconfined(directory: Path, command: str) -> Printed:
    """The same in the caller's own namespaces, with limits of time and memory only."""
    path, _ = _tools(directory)
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
    """Whether the system, of which commands see the programs, lacks one."""
    return shutil.which(program, path=MINIMAL["PATH"]) is None


def _tools(directory: Path) -> tuple[str, list[Path]]:
    """Where commands find programs, and what they see beside the system: Python and git where the system has none."""
    path, binds = MINIMAL["PATH"].split(":"), []
    if _missing("git"):
        path.append(str(_stand_in(directory)))
        binds.append(_stand_in(directory))
    if _missing("python3"):
        path.append(str(Path(sys.executable).parent))
        binds += [Path(sys.prefix), Path(sys.base_prefix)]
    return ":".join(path), binds


def _stand_in(directory: Path) -> Path:
    """The directory of the stand-in for git, beside those of repositories."""
    return directory.parent / "bin"


def prepare(directory: Path, files: Mapping[str, str], *, unconfined: bool = False) -> None:
    """Make a directory a git repository with these files and one commit.

    Where there is no git, the files as they were lie in .git, and a stand-in of that name knows `diff` and `checkout`.
    """
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    if _missing("git"):
        (directory / ".git").mkdir()
        for name, text in files.items():
            (directory / ".git" / name).write_text(text)
        _place_stand_in(_stand_in(directory))
        return
    done = run(directory, _COMMIT, unconfined=unconfined)
    if done.code:
        raise InputError(f"no git repository can be made in {directory}: {done.output.strip()[:200]}")


def _place_stand_in(place: Path) -> None:
    """Write the program; several processes may do so at the same time."""
    place.mkdir(exist_ok=True)
    partial = place / f"git.{os.getpid()}"
    partial.write_text(f"#!/usr/bin/env python3\n{_STAND_IN.read_text()}")
    partial.chmod(0o755)
    partial.rename(place / "git")


def probe(place: Path, *, unconfined: bool = False) -> None:
    """Make a repository in a directory and run a command there. Raises InputError where that does not work."""
    try:
        prepare(place / "probe", {"a.py": _PROBES[0].decode()}, unconfined=unconfined)
        done = run(place / "probe", "sed -i s/6/7/ a.py && python3 a.py && git diff", unconfined=unconfined)
    except InputError as error:
        raise InputError(
            f"{error}; on a machine that is thrown away, --unconfined runs commands all the same"
        ) from None
    if done.output != f"7\n{difference('a.py', *_PROBES)}":
        raise InputError(f"commands need bash, sed and python3, and say {done.output.strip()[:120]!r}: install them")
