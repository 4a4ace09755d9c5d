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
from fractions import Fraction
from pathlib import Path

from radmoe.errors import InputError
from radmoe.grading.latex import shape_of
from radmoe.grading.shapes import UNORDERED, Shape, alone, consecutive, in_terms_of
from radmoe.grading.syntax import Tree
from radmoe.grading.verifier import CONSTANT, MISSING, NEGATIVE, NO, READY, YES

TIMEOUT_S = 3.0
MEMORY = 2 << 30  # address space
_START_S = 120.0
_SCRIPT = Path(__file__).with_name("verifier.py")


class _OutOfTimeError(Exception):
    """The algebra process gave no verdict in time. `tree` is set where a single tree could not be evaluated at all."""

    def __init__(self, tree: Tree | None) -> None:
        super().__init__()
        self.tree = tree


def _holds(shape: Shape, tree: Tree | None) -> bool:
    return shape.tree == tree if not shape.parts else any(_holds(part, tree) for part in shape.parts)


class Equivalence:
    """Equality of LaTeX answers. It is symmetric by construction, and a verdict is remembered, so it never changes.

    A unit that only one of two answers has is not compared, and neither is whether `(1, 2)` is a point or an interval.
    `Classes` settles these questions for one problem, so that equality is transitive there.

    `timeout` is wall seconds per comparison. Two threads must not use one object at once.
    """

    def __init__(self, *, timeout: float = TIMEOUT_S, memory: int = MEMORY) -> None:
        if timeout <= 0:
            raise InputError(f"timeout of a comparison must be positive, got {timeout}")
        self.timeout, self.memory = timeout, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._poisoned: set[str] = set()
        self._readable: dict[Tree, bool] = {}
        self._verdicts: dict[tuple[str, Tree, Tree], bytes] = {}

    def __enter__(self) -> Equivalence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def same(self, a: str, b: str) -> bool:
        """Whether two answers are equal; False if that cannot be decided in time."""
        left, right = shape_of(a), shape_of(b)
        return left is not None and right is not None and self.same_shape(left, right)

    def same_shape(self, a: Shape, b: Shape) -> bool:
        """Whether two answers that have been taken apart are equal; False if that cannot be decided in time."""
        if a.normal == b.normal:
            return True
        if not self._poisoned.isdisjoint((a.normal, b.normal)):
            return False
        a, b = sorted((a, b), key=lambda shape: shape.normal)
        self._deadline = 0.0
        try:
            return self._same(a, b)
        except _OutOfTimeError as error:  # blame the one that cannot even be read, else the second
            self._poisoned.add((a if error.tree is not None and _holds(a, error.tree) else b).normal)
            return False

    def _same(self, a: Shape, b: Shape) -> bool:
        if (a.kind, a.normal) == (b.kind, b.normal):
            return True
        if not a.parts and not b.parts:
            return self._same_value(a, b)
        if "=" in (a.kind, b.kind):
            return self._same_equation(a, b)
        if a.kind != b.kind:
            a, b = _alike(a, b)
        if a.kind != b.kind or len(a.parts) != len(b.parts):
            return False
        if a.kind in UNORDERED:
            return self._same_members(a, b)
        return all(map(self._same, a.parts, b.parts)) or self._proportional(a, b)

    def _same_members(self, a: Shape, b: Shape) -> bool:
        """Whether the parts of two shapes can be paired, whatever their order."""
        left = list(b.parts)
        for part in a.parts:
            partner = next((other for other in left if self._same(part, other)), None)
            if partner is None:
                return False
            left.remove(partner)
        return not left

    def _same_value(self, a: Shape, b: Shape) -> bool:
        """Whether two numbers or formulas are equal, in the same unit if both have one."""
        if "text" in (a.kind, b.kind):
            return False
        scale = Fraction(1)
        if a.unit is not None and b.unit is not None:
            if a.unit.dimension != b.unit.dimension:
                return False
            scale = a.unit.factor / b.unit.factor
        if a.value is not None and b.value is not None:
            return a.value * scale == b.value
        left, right = _tree(a), _tree(b)
        return self._equal("same", left if scale == 1 else ("*", ("n", str(scale)), left), right) == YES

    def _same_equation(self, a: Shape, b: Shape) -> bool:
        """Whether two equations are equal: side by side, or as multiples of each other; `y = 2x` equals the bare formula `2x`."""
        if a.kind != b.kind:
            equation, other = (a, b) if a.kind == "=" else (b, a)
            value = alone(equation)
            return value is not None and self._same(value, other)
        if len(a.parts) == len(b.parts) and self._same_members(a, b):
            return True
        left, right = alone(a), alone(b)
        if left is not None and right is not None and self._same(left, right):
            return True
        return self._proportional(a, b)

    def _proportional(self, a: Shape, b: Shape) -> bool:
        """Whether two equations or inequalities of two sides are a multiple of each other."""
        sides = (*a.parts, *b.parts)
        if (
            a.kind not in ("=", "<", "\\leq")
            or len(sides) != 4
            or any(side.kind not in ("number", "algebra") for side in sides)
        ):
            return False
        left, right = (("+", _tree(shape.parts[0]), ("-", _tree(shape.parts[1]))) for shape in (a, b))
        verdict = self._equal("ratio", left, right)
        return verdict == CONSTANT or (verdict == NEGATIVE and a.kind == "=")

    def _equal(self, question: str, a: Tree, b: Tree) -> bytes:
        key = question, a, b
        if key not in self._verdicts:
            for tree in (a, b):
                if tree not in self._readable:
                    self._readable[tree] = self._ask("value", tree) == YES
            readable = self._readable[a] and self._readable[b]
            self._verdicts[key] = self._ask(question, a, b) if readable else NO
        return self._verdicts[key]

    # -- the algebra process -----------------------------------------------------------------------------------------

    def _ask(self, question: str, *trees: Tree) -> bytes:
        """The verdict of the algebra process. If there is none in time, the process is ended and an error raised."""
        process = self._start()
        assert process.stdin
        self._deadline = self._deadline or time.monotonic() + self.timeout
        try:
            process.stdin.write(json.dumps([question, *trees]).encode() + b"\n")
            process.stdin.flush()
            answer = self._byte(process, self._deadline - time.monotonic())
        except OSError:
            answer = b""
        except BaseException:  # interrupted: the answer to come belongs to no later question
            self.close()
            raise
        if not answer:
            self.close()
            raise _OutOfTimeError(trees[0] if len(trees) == 1 else None)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if os.name != "posix":
                raise InputError("comparing LaTeX answers needs a POSIX system (Linux or macOS): run it in WSL")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-W", "ignore", str(_SCRIPT), str(self.timeout), str(self.memory)],
                env={},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            greeting = self._byte(self._process, _START_S)
            if greeting != READY:
                self.close()
                reason = "is not installed: pip install 'radmoe[eval]'" if greeting == MISSING else "does not start"
                raise InputError(f"comparing LaTeX answers needs mpmath, which {reason}")
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


def _tree(shape: Shape) -> Tree:
    return shape.tree if shape.tree is not None else ("n", str(shape.value))


def _alike(a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """Two shapes of different kinds, the more specific one rewritten as the other: a named point becomes a tuple."""
    if a.kind == "()":
        return a, in_terms_of(b, a) if b.kind == "interval" or consecutive(b.names) else b
    if b.kind == "()":
        return _alike(b, a)[::-1]
    return a, b


def _is_plain(shape: Shape) -> bool:
    """Whether a shape is a number without a unit."""
    return shape.kind == "number" and shape.unit is None


class Classes:
    """The answers to one problem, sorted into classes as they come. The first answer of a class stands for it.

    An answer is read in the terms of the gold answer (`shapes.in_terms_of`) and compared only with those that stand for
    a class, the gold answer first, so it is in one class only. `integer` says that answers are whole numbers.
    """

    def __init__(self, equivalence: Equivalence, gold: str, *, integer: bool = False) -> None:
        self._equivalence, self._integer = equivalence, integer
        self._gold = shape_of(gold, integer=integer)
        self.gold = self._gold.normal if self._gold else ""
        self._classes: dict[str, str] = {}  # how an answer is written -> what stands for its class
        self._standing: list[Shape] = []  # what stands for a class, the gold answer first
        self._numbers: dict[Fraction | None, Shape] = {}  # the numbers among them
        if self._gold is not None:
            self._class_of(self._gold)

    def add(self, answer: str) -> str:
        """The answer that stands for this answer's class."""
        shape = shape_of(answer, integer=self._integer)
        if shape is None:
            return ""
        if self._gold is not None:
            shape = in_terms_of(shape, self._gold)
        if shape.normal not in self._classes:
            self._classes[shape.normal] = self._class_of(shape).normal
        return self._classes[shape.normal]

    def _class_of(self, shape: Shape) -> Shape:
        """The shape that stands for this one's class. A number is looked up among numbers; all else is compared."""
        plain = _is_plain(shape)
        if plain and shape.value in self._numbers:
            return self._numbers[shape.value]
        for other in self._standing:
            if not (plain and _is_plain(other)) and self._equivalence.same_shape(other, shape):
                return other
        self._standing.append(shape)
        if plain:
            self._numbers[shape.value] = shape
        return shape
