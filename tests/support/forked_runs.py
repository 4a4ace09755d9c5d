"""Commands in forked children: what they end with, how long they take, how much memory, and what they write outside.

A child is forked from a process that has imported radmoe, so that a command costs milliseconds. `ru_maxrss` of a child
starts at what its parent has in memory, so the figure is the peak of the whole process, not of the command alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MOST_SECONDS = 15.0
MOST_BYTES = 1 << 30


class Outcome(NamedTuple):
    """How a command ended: in words, after how long, with how much memory, and what it changed outside the pool."""

    line: str
    seconds: float
    peak_bytes: int
    outside: tuple[str, ...] = ()

    @property
    def broken_rule(self) -> str | None:
        """The condition that was not kept; None if all were."""
        if self.line.startswith(("TRACEBACK", "HANG", "CRASH", "ESCAPED", "LOST", "LIES", "LEFT")):
            return self.line
        if self.peak_bytes > MOST_BYTES:
            return f"MEMORY {self.peak_bytes >> 20} MB"
        return f"WRITTEN OUTSIDE {self.outside}" if self.outside else None


@dataclass(frozen=True)
class Place:
    """A directory in which a case is made: the pool, and what lies outside it and must stay as it is."""

    root: Path

    @property
    def pool(self) -> Path:
        return self.root / "pool"

    @property
    def victim(self) -> Path:
        return self.root / "outside" / "victim"

    def files(self) -> dict[str, str]:
        """What lies outside the pool, with checksums. The user's cache is his own, and `merged` is where merge writes."""
        entries = {}
        for path in sorted((self.root / "outside").rglob("*")):
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            entries[str(path.relative_to(self.root))] = f"{path.lstat().st_mode} {hashlib.sha256(content).hexdigest()}"
        return entries


@contextlib.contextmanager
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="radmoe-case-") as root:
        made = Place(Path(root))
        for name in ("home", "tmp"):
            (made.root / "outside" / name).mkdir(parents=True)
        made.victim.write_bytes(b"what the user has\n" * 10)
        yield made


def run(where: Place, work: Callable[[], object], seconds: float = MOST_SECONDS) -> Outcome:
    """Call `work` in a forked child with the place's own home, and say how it ended."""
    before = where.files()
    output = where.root / "output"
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        become(where, work, output)
    status, peak = _wait(child, started + seconds)
    spent = time.monotonic() - started
    text = output.read_bytes().decode(errors="replace") if output.exists() else ""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    after = where.files()
    outside = tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
    for name in ("tmp",):  # what a killed process left there is no write through the pool
        shutil.rmtree(where.root / "outside" / name)
        (where.root / "outside" / name).mkdir()
    outside = tuple(name for name in outside if not name.startswith("outside/tmp"))
    return Outcome(_line(status, text, last), spent, peak, outside)


def _line(status: int | None, text: str, last: str) -> str:
    if status is None:
        return f"HANG {last}"
    if os.WIFSIGNALED(status):
        return f"CRASH {signal.Signals(os.WTERMSIG(status)).name} {last}"
    code = os.WEXITSTATUS(status)
    if "Traceback (most recent call last)" in text or code not in (0, 2):
        return f"TRACEBACK {code} {last}"
    return f"accepted: {last}" if code == 0 else f"refused: {last}"


def _wait(child: int, deadline: float) -> tuple[int | None, int]:
    """The status of the child, None where it was killed at the deadline, and the peak of its memory."""
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return status, usage.ru_maxrss << 10
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, _, usage = os.wait4(child, 0)
    return None, usage.ru_maxrss << 10


def become(where: Place, work: Callable[[], object], output: Path) -> None:
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        home = where.root / "outside" / "home"
        os.chdir(home)
        sys.path.insert(0, str(where.root))  # as `python -m radmoe` has the directory in which a stranger's pool lies
        os.environ.update(
            HOME=str(home),
            RADMOE_CACHE=str(where.root / "cache"),
            TMPDIR=str(where.root / "outside" / "tmp"),
            COLUMNS="200",
        )
        tempfile.tempdir = None
        work()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def make(where: Place, spoil: Callable[[Place], object]) -> None:
    """Spoil a place in a child, so that the memory it takes is not that of the commands that follow."""
    outcome = run(where, lambda: spoil(where), seconds=120)
    if not outcome.line.startswith("accepted"):
        raise RuntimeError(f"the case could not be made: {outcome.line}")


def radmoe(*words: object) -> Callable[[], None]:
    """The command line, as a piece of work for `run`."""

    def work() -> None:
        from radmoe.cli import main

        sys.argv = ["radmoe", *map(str, words)]
        main()

    return work


def warm() -> None:
    """Import what the commands import, so that children do not."""
    import blosc2  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import radmoe.cli
    import radmoe.evaluation.methods
    import radmoe.evaluation.report
    import radmoe.evaluation.workers
    import radmoe.grading.grade
    import radmoe.pool.merge
    import radmoe.pool.verify
    import radmoe.selection.kernels.jaccard
    import radmoe.selection.selector

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        radmoe.cli.app(["--version"])  # typer imports the greater part of itself when it first parses a command
