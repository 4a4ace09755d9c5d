r"""Which answers to one problem are the same answer: `2\sqrt{3}` and `\sqrt{12}`, `1/2` and `0.5`.

Normal forms decide most of it, and algebra the rest, in a process of its own. An expression that makes this process run
out of time or memory costs one timeout, is never asked about again, and equals only itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from radmoe.errors import InputError
from radmoe.grading.latex import UNORDERED, Shape, normal_form, shape_of
from radmoe.grading.verifier import MISSING, READY, YES

TIMEOUT_S = 3.0
MEMORY = 2 << 30  # address space: SymPy itself takes a tenth of it
_START_S = 120.0
_SCRIPT = Path(__file__).with_name("verifier.py")


class _OutOfTime(Exception):
    def __init__(self, reading: str) -> None:
        super().__init__(reading)
        self.reading = reading


def _holds(shape: Shape, leaf: str) -> bool:
    return shape.normal == leaf if not shape.parts else any(_holds(part, leaf) for part in shape.parts)


class Equivalence:
    """Equality of LaTeX answers. It is symmetric by construction, and a verdict is remembered, so it never changes.

    `timeout` is wall seconds per question to the algebra process. Two threads must not use one object at once.
    """

    def __init__(self, *, timeout: float = TIMEOUT_S, memory: int = MEMORY) -> None:
        if timeout <= 0:
            raise InputError(f"timeout of a comparison must be positive, got {timeout}")
        self.timeout, self.memory = timeout, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._poisoned: set[str] = set()
        self._readable: dict[str, bool] = {}
        self._verdicts: dict[tuple[str, str], bool] = {}

    def __enter__(self) -> Equivalence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def same(self, a: str, b: str) -> bool:
        """Whether two answers are equal; False if that cannot be decided in time."""
        left, right = shape_of(a), shape_of(b)
        if left is None or right is None:
            return False
        if left.normal == right.normal:
            return True
        if not self._poisoned.isdisjoint((left.normal, right.normal)):
            return False
        try:
            return self._same(left, right)
        except _OutOfTime as error:  # blame the one that cannot even be read, else the second
            self._poisoned.add((left if error.reading and _holds(left, error.reading) else right).normal)
            return False

    def _same(self, a: Shape, b: Shape) -> bool:
        if (a.kind, a.normal) == (b.kind, b.normal):
            return True
        if len(a.parts) != len(b.parts):
            return False
        if not a.parts:
            return {a.kind, b.kind} in ({"algebra"}, {"algebra", "number"}) and self._equal(a.normal, b.normal)
        if a.kind != b.kind:
            return False
        if a.kind not in UNORDERED:
            return all(map(self._same, a.parts, b.parts))
        left = list(b.parts)
        for part in a.parts:
            partner = next((other for other in left if self._same(part, other)), None)
            if partner is None:
                return False
            left.remove(partner)
        return True

    def _equal(self, a: str, b: str) -> bool:
        pair = min(a, b), max(a, b)
        if pair not in self._verdicts:
            for latex in (a, b):
                if latex not in self._readable:
                    self._readable[latex] = self._ask(latex)
            self._verdicts[pair] = self._readable[a] and self._readable[b] and self._ask(*pair)
        return self._verdicts[pair]

    # -- the algebra process -----------------------------------------------------------------------------------------

    def _ask(self, *latex: str) -> bool:
        """The verdict of the algebra process. If there is none in time, the process is ended and _OutOfTime raised."""
        process = self._start()
        assert process.stdin
        try:
            process.stdin.write(json.dumps(latex).encode() + b"\n")
            process.stdin.flush()
            answer = self._byte(process, self.timeout)
        except OSError:
            answer = b""
        except BaseException:  # interrupted: the answer to come belongs to no later question
            self.close()
            raise
        if not answer:
            self.close()
            raise _OutOfTime(latex[0] if len(latex) == 1 else "")
        return answer == YES

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if os.name != "posix":
                raise InputError("comparing LaTeX answers needs a POSIX system (Linux or macOS): run it in WSL")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-W", "ignore", str(_SCRIPT), str(self.timeout), str(self.memory)],
                env={"PYTHONHASHSEED": "0"},  # what SymPy holds for the simplest form depends on the order of hashes
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            greeting = self._byte(self._process, _START_S)
            if greeting != READY:
                self.close()
                reason = "is not installed: pip install 'radmoe[eval]'" if greeting == MISSING else "does not start"
                raise InputError(f"comparing LaTeX answers needs math-verify, which {reason}")
        return self._process

    @staticmethod
    def _byte(process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout
        fd, deadline = process.stdout.fileno(), time.monotonic() + seconds
        left = seconds
        while left > 0:
            if select.select([fd], [], [], left)[0]:
                return os.read(fd, 1)
            left = deadline - time.monotonic()
        return b""

    def close(self) -> None:
        """End the algebra process; it is started again when needed."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()


class Classes:
    """The answers to one problem, sorted into classes as they come. The first answer of a class stands for it.

    An answer is compared only with those that stand for a class, the gold answer first, so it is in one class only.
    """

    def __init__(self, equivalence: Equivalence, gold: str) -> None:
        self.gold = normal_form(gold) or ""
        self._equivalence = equivalence
        self._standing = {self.gold: self.gold}  # normal form -> the answer that stands for its class

    def add(self, answer: str) -> str:
        """The answer that stands for this answer's class."""
        normal = normal_form(answer) or ""
        if normal not in self._standing:
            classes = dict.fromkeys(self._standing.values())
            equal = (other for other in classes if self._equivalence.same(other, normal))
            self._standing[normal] = next(equal, normal)
        return self._standing[normal]
