"""Runs printed commands one after the other in one process, in which only what an extra installs can be imported.

    python tests/support/printed_driver.py EXTRAS WORKSPACE SCRATCH < steps.json > results.jsonl

A step is {"argv": [...]} of radmoe or of `python -m`, or {"code": TEXT} of Python, or {"parse": [...]} of `python -m`, of
which only the options are parsed. Each runs in SCRATCH with copies of what it names of WORKSPACE, unless both are the same.
With "follow", the commands that a step ends with ("Now try:") are run after it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from glob import glob
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]


def installed_by(extras: str) -> set[str]:
    """The distributions that `pip install 'radmoe[EXTRAS]'` installs, by what their own metadata say."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    todo = [Requirement(f"radmoe[{extras}]")]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        one = todo.pop()
        name, wanted = canonicalize_name(one.name), tuple(sorted(one.extras))
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        if name == "radmoe":
            needs = [*project["dependencies"], *(line for e in wanted for line in project["optional-dependencies"][e])]
        else:
            try:
                needs = distribution(one.name).requires or []
            except PackageNotFoundError:
                continue
        found.add(name)
        for line in needs:
            needed = Requirement(line)
            marked = needed.marker
            if marked is None or any(marked.evaluate({"extra": extra}) for extra in ("", *wanted)):
                todo.append(needed)
    return found


def hide_all_but(extras: str) -> None:
    """Let the finders of modules find nothing that these extras do not install."""
    from packaging.utils import canonicalize_name

    allowed = installed_by(extras)
    hidden = {
        module
        for module, owners in packages_distributions().items()
        if not allowed & {canonicalize_name(owner) for owner in owners}
    } - {"radmoe", "radmoe_agent", "radmoe_lab", "radmoe_studies", "pip", "setuptools", "packaging"}

    class Finder:
        def __init__(self, original: Any) -> None:
            self._original = original

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            return None if name.partition(".")[0] in hidden else self._original.find_spec(name, path, target)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._original, name)

    sys.meta_path[:] = [Finder(finder) for finder in sys.meta_path]  # type: ignore[misc]


class Parsed(Exception):
    """The options of a module were parsed."""


@contextlib.contextmanager
def only_parsed() -> Iterator[None]:
    """Let argparse stop a module once it has parsed its options. What is left out, or stands for a value, is no fault."""
    original, refuse = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.error

    def parse_args(self: argparse.ArgumentParser, *arguments: Any, **options: Any) -> NoReturn:
        original(self, *arguments, **options)
        raise Parsed

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        if re.search(r"the following arguments are required|invalid \w+ value: '[A-Z]+'", message):
            raise Parsed
        refuse(self, message)

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign,assignment]
    argparse.ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
        argparse.ArgumentParser.error = refuse  # type: ignore[method-assign]


def run(step: dict[str, Any]) -> None:
    if "code" in step:
        exec(compile(step["code"], "<snippet>", "exec"), {"__name__": "snippet"})
        return
    argv = step.get("argv") or step["parse"]
    if argv[0] == "radmoe":
        sys.argv = list(argv)
        from radmoe.cli import main

        main()
        return
    sys.argv = list(argv[2:])
    if "parse" in step:
        found = find_spec(argv[2])
        if found is None or found.origin is None:
            raise SystemExit(f"there is no module {argv[2]}")
        if "ArgumentParser" not in Path(found.origin).read_text():
            return  # it has no options, and would run
    with only_parsed() if "parse" in step else contextlib.nullcontext(), contextlib.suppress(Parsed):
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)


def main() -> None:
    extras, workspace, scratch = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    steps = json.load(sys.stdin)
    sys.path[0] = str(ROOT)  # benchmarks is a package of the repository
    if extras:
        hide_all_but(extras)
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what worker processes print is no result
    os.environ["COLUMNS"] = "160"
    for step in steps:
        os.chdir("/")
        if scratch != workspace:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            named = " ".join([step.get("code", ""), *step.get("argv", ()), *step.get("needs", ())])
            for entry in (entry for entry in workspace.iterdir() if entry.name in named):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.copytree(entry, scratch / entry.name)
                else:
                    shutil.copy(entry, scratch / entry.name, follow_symlinks=False)
        os.chdir(scratch)
        for stale in step.get("without", ()):
            shutil.rmtree(stale, ignore_errors=True)
        result = perform(step)
        if step.get("follow"):
            result["hints"] = [{"argv": argv} | perform({"argv": argv}) for argv in hints(result["said"])]
        results.write(json.dumps(result) + "\n")
        results.flush()


def perform(step: dict[str, Any]) -> dict[str, Any]:
    """Run one step here: its exit code, what it said, and its seconds."""
    said, code, began = io.StringIO(), 0, time.monotonic()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            run(step)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
            said.write(end.code if isinstance(end.code, str) else "")
        except BaseException:
            said.write(traceback.format_exc())
            code = 1
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())
    return {"code": code, "said": text, "seconds": time.monotonic() - began}


def hints(said: str) -> list[list[str]]:
    """The commands that a command says one may run next."""
    lines = re.findall(r"^(?:Now try:)?  (?:\S*/)?(radmoe .*)$", said, re.MULTILINE)
    calls = [shlex.split(call, comments=True) for line in lines for call in line.split("   |   ")]
    return [[name for word in call for name in sorted(glob(word)) or [word]] for call in calls]  # noqa: PTH207


if __name__ == "__main__":
    main()
