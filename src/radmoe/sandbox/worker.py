"""Runs a program inside a process that is already confined."""

from __future__ import annotations

import contextlib
import marshal
import sys
import threading
import time
import types
from typing import Any

from radmoe.sandbox.spelling import spell

# Modules that programs often import. They are loaded once, before any program is there.
OFTEN_IMPORTED = (
    "array bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools json "
    "operator queue random re statistics string typing"
)
# Modules that a contest's programs find imported, with all their names, in the order of LiveCodeBench's own runner.
STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
)
_RECURSION = 50_000


def run(request: dict[str, Any], *, reads: bool) -> tuple[bytes, int]:
    """Run a program. Returns the report about it, apart from what it printed, and the exit code.

    A program that `reads` has a text as standard input, and prints. Any other is called: see `Sandbox.call`.
    """
    limit_sleep(request["timeout"])
    program, entry = request["program"], request["entry"]
    if reads:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        complaint = _play(program, request["bare"])
        return complaint.encode("ascii", "replace"), int(bool(complaint))
    if "." in entry:
        lines = [_call(program, entry, request["calls"][0], request["bare"])]
    else:
        lines = _answer(program, entry, request["calls"])
    return "\n".join(lines).encode("ascii", "replace"), 0


def limit_sleep(seconds: float) -> None:
    """Limit the total time that a program may sleep. A longer sleep raises TimeoutError at once."""
    sleep, left = time.sleep, seconds

    def limited(secs: float) -> None:
        nonlocal left
        if secs > left:
            raise TimeoutError(f"a sleep of {secs:g} s, and {left:g} s are left for sleeping")
        sleep(secs)
        left -= secs

    time.sleep = limited  # type: ignore[assignment]


def _answer(program: str, entry: str, calls: list[bytes]) -> list[str]:
    """Call the program's function `entry` with each argument list; returns one line per call, its result as `spell` writes it.

    At the first error the list ends with a line that begins with "!" and names the error.
    """
    names: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), names)
    except BaseException as error:
        return ["!" + _complaint(error)]
    function = names.get(entry)
    if function is None:
        return [f"!NameError: it defines no function {entry}"]
    lines = []
    for call in calls:
        try:
            lines.append(spell(function(*marshal.loads(call))))
        except BaseException as error:
            lines.append("!" + _complaint(error))
            break
    return lines


def _module(name: str, bare: bool) -> dict[str, Any]:
    """The names of a new module. Unless `bare`, they contain everything that programs for a contest expect."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    if not bare:
        for source in STARRED.split():
            names = vars(sys.modules[source])
            public = names.get("__all__") or [key for key in names if key[0] != "_"]
            module.__dict__.update({key: names[key] for key in public})
        module.__dict__.update({source: sys.modules[source] for source in STARRED.split()})
        sys.setrecursionlimit(_RECURSION)
    # No thread can start here. The one that many programs start, for a deeper stack, may as well run at once.
    threading.Thread.start = threading.Thread.run  # type: ignore[method-assign]
    threading.Thread.join = lambda self, timeout=None: None  # type: ignore[method-assign]
    threading.stack_size = lambda size=0: 0
    return module.__dict__


def _play(program: str, bare: bool) -> str:
    """Run a program that reads and prints. Returns a complaint, set off from what it printed, or nothing."""
    complaint = ""
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), _module("__main__", bare))
    except SystemExit:
        pass
    except BaseException as error:
        complaint = "\0!" + _complaint(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    return complaint


def _call(program: str, entry: str, call: bytes, bare: bool) -> str:
    """What one call of a function, or of a method of the class Solution, returns: the value spelled, or a complaint."""
    names = _module("program", bare)
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), names)
        owner, name = names.get("Solution"), entry.rpartition(".")[2]
        function = names.get(name) if owner is None else getattr(owner(), name, None)
        if function is None:
            return f"!NameError: it defines no {entry}"
        return spell(function(*marshal.loads(call)))
    except BaseException as error:
        return "!" + _complaint(error)


def _complaint(error: BaseException) -> str:
    try:
        return ascii(f"{type(error).__name__}: {error}")[1:-1][:200]
    except BaseException:
        return "an exception that cannot be shown"
