"""Computes in this process what a repository's functions return, with the same result as its own check.py.

Only text that the generator or the demonstrations wrote is run here. What a model wrote runs in the sandbox.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

CHECK = """\
import sys

from tests import CASES

failed = 0
for case in CASES:
    call, expected = case.split(" == ")
    module, rest = call.split(".", 1)
    name, argument = rest[:-1].split("(")
    try:
        value = repr(getattr(__import__(module), name)(eval(argument)))
    except Exception as error:
        value = type(error).__name__
    if value != expected:
        failed += 1
        print(f"FAIL {call} gives {value}, not {expected}")
print(f"{len(CASES) - failed} of {len(CASES)} pass")
sys.exit(1 if failed else 0)
"""


def call_text(module: str, name: str, values: Sequence[int]) -> str:
    return f"{module}.{name}({list(values)!r})"


def cases_file(cases: Sequence[str]) -> str:
    return "CASES = [\n" + "".join(f'    "{case}",\n' for case in cases) + "]\n"


def parse_call(call: str) -> tuple[str, str, str]:
    """Split a call into module, function and argument, as check.py does."""
    module, _, rest = call.partition(".")
    name, argument = rest[:-1].split("(")
    return module, name, argument


def results(files: Mapping[str, str], calls: Sequence[str]) -> list[str]:
    """Return the result of every call as check.py reports it: its repr, or the name of the exception."""
    modules: dict[str, ModuleType] = {}

    def load(name: str, *_: Any) -> ModuleType:
        if name not in modules:
            if f"{name}.py" not in files:
                raise ModuleNotFoundError(name)
            module = ModuleType(name)
            names = {**vars(builtins), "__import__": load}
            module.__dict__["__builtins__"] = names
            modules[name] = module
            try:
                exec(_compiled(files[f"{name}.py"]), module.__dict__)
            except BaseException:
                del modules[name]
                raise
        return modules[name]

    out = []
    for call in calls:
        module, name, argument = parse_call(call)
        try:
            out.append(repr(getattr(load(module), name)(eval(argument))))
        except Exception as error:
            out.append(type(error).__name__)
    return out


def check_output(files: Mapping[str, str], cases: Sequence[str]) -> tuple[str, int]:
    """Return what `python3 check.py` prints for these files, and its exit code."""
    calls, expected = zip(*(case.split(" == ") for case in cases), strict=True)
    lines = [
        f"FAIL {call} gives {value}, not {right}\n"
        for call, value, right in zip(calls, results(files, calls), expected, strict=True)
        if value != right
    ]
    return "".join(lines) + f"{len(cases) - len(lines)} of {len(cases)} pass\n", int(bool(lines))


@lru_cache(maxsize=512)
def _compiled(source: str) -> CodeType:
    return compile(source, "<module>", "exec", dont_inherit=True)
