"""Judges patches: git applies a patch, and the hidden tests run on the result, both in the sandbox.

`python -m radmoe_lab.agent.verdicts repo-0007 PATCH` judges one. A patched function is told its arguments and never what
should come back: its values are compared here.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from radmoe.errors import InputError, RadmoeError
from radmoe.sandbox import Sandbox
from radmoe.system.printing import say
from radmoe_agent.session import Session
from radmoe_lab.agent.repositories import BuggyRepository, repository_named
from radmoe_lab.agent.running import parse_call
from radmoe_lab.agent.workplace import ENVIRONMENT

RESOLVED, HIDDEN_FAIL, VISIBLE_FAIL, NO_PATCH, NOT_APPLIED, UNKNOWN = VERDICTS = (
    "resolved",
    "fails hidden tests",
    "fails visible tests",
    "no patch",
    "does not apply",
    "not judged",
)
_CHUNK = 48  # patches that are applied by one confined command
_DISK = 64 << 20  # bytes of them all
_LARGEST = 1 << 16  # bytes of a file that is read back
_FULL = 3
_APPLY = f"""
set -o pipefail
git --version > /dev/null || exit 1
for d in */; do
  said=$(cd "$d" && git apply ../"${{d%/}}".patch 2>&1) && continue
  case "$said" in *"No space left"*) exit {_FULL};; esac
  rm -rf "$d"
done
find . -maxdepth 2 '(' -type d -o -type f -name '*.py' -size -{_LARGEST + 1}c ')' -print0 2> /dev/null |
  tar -c --null --no-recursion -T - 2> /dev/null
"""
_PROTECTED = ("check.py", "tests.py")  # the tests are run as they were, whatever a patch makes of them
_PROGRAM = """
import builtins, sys, types
FILES = {files!r}
def _load(name, *_):
    if name not in sys.modules and name + ".py" in FILES:
        module = types.ModuleType(name)
        sys.modules[name] = module
        try:
            exec(compile(FILES[name + ".py"], name, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    if name in sys.modules:
        return sys.modules[name]
    return _import(name, *_)
_import = builtins.__import__
builtins.__import__ = _load
def call(module, name, argument):
    try:
        return repr(getattr(_load(module), name)(argument))
    except Exception as error:
        return type(error).__name__
"""


def judge(pairs: Sequence[tuple[BuggyRepository, str]]) -> list[str]:
    """Return the verdict on every (repository, patch), in one process. Equal pairs are judged once."""
    distinct = {(repository.repository_id, patch): repository for repository, patch in pairs if patch.strip()}
    known: dict[tuple[str, str], str] = {}
    keys = list(distinct)
    with Sandbox(timeout=1.0) as sandbox:
        for first in range(0, len(keys), _CHUNK):
            part = keys[first : first + _CHUNK]
            patched = _apply([(distinct[key].files, key[1]) for key in part])
            for key, files in zip(part, patched, strict=True):
                known[key] = NOT_APPLIED if files is None else _tested(sandbox, distinct[key], files)
    return [known.get((repository.repository_id, patch), NO_PATCH) for repository, patch in pairs]


def judge_many(pairs: Sequence[tuple[BuggyRepository, str]], *, jobs: int) -> list[str]:
    """Return the same verdicts as `judge`, computed by several processes."""
    if jobs <= 1:
        return judge(pairs)
    owners = sorted({repository.repository_id for repository, _ in pairs})
    places = {owner: i % jobs for i, owner in enumerate(owners)}
    shares = [
        [i for i, (repository, _) in enumerate(pairs) if places[repository.repository_id] == j] for j in range(jobs)
    ]
    verdicts = [UNKNOWN] * len(pairs)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for share, answers in zip(
            shares, pool.map(judge, [[pairs[i] for i in share] for share in shares]), strict=True
        ):
            for i, answer in zip(share, answers, strict=True):
                verdicts[i] = answer
    return verdicts


def _apply(changes: Sequence[tuple[Mapping[str, str], str]]) -> list[dict[str, str] | None]:
    """Return the Python files after each patch; None if git does not apply it.

    A patch may make links and large files, which are left out. Patches that take too much together are tried one by one.
    """
    work: dict[str, str] = {}
    for number, (files, patch) in enumerate(changes):
        work |= {f"{number:04d}/{name}": text for name, text in files.items()}
        work[f"{number:04d}.patch"] = patch
    with Session(files=work, environment=ENVIRONMENT, disk=_DISK, keep=_DISK, most=_DISK) as session:
        done = session.run(["bash", "-c", _APPLY])
    if done.stopped or done.code == _FULL:
        return [_apply([change])[0] for change in changes] if len(changes) > 1 else [None]
    if done.code:
        reason = done.output[-200:].decode("utf-8", "replace").strip()
        raise InputError(f"patches cannot be applied here ({reason}): install git, find and tar")
    applied: dict[str, dict[str, str]] = {}
    with tarfile.open(fileobj=io.BytesIO(done.output), mode="r:") as archive:
        for member in archive:
            directory, _, name = member.name.removeprefix("./").partition("/")
            patched = applied.setdefault(directory, {})
            if member.isreg() and (file := archive.extractfile(member)) is not None:
                patched[name] = file.read().decode(errors="replace")
    return [applied.get(f"{number:04d}") for number in range(len(changes))]


def _tested(sandbox: Sandbox, repository: BuggyRepository, files: Mapping[str, str]) -> str:
    kept = {**files, **{name: repository.files[name] for name in _PROTECTED}}
    cases = [*repository.visible, *repository.hidden]
    calls, expected = zip(*(case.split(" == ") for case in cases), strict=True)
    arguments = [(module, name, eval(argument)) for module, name, argument in map(parse_call, calls)]
    outcome = sandbox.call(_PROGRAM.format(files=kept), "call", arguments)
    answers = outcome.data.decode("ascii", "replace").split("\n") if not outcome.failure(partial=True) else []
    right = [i < len(answers) and answers[i] == repr(value) for i, value in enumerate(expected)]
    if all(right):
        return RESOLVED
    return HIDDEN_FAIL if all(right[: len(repository.visible)]) else VISIBLE_FAIL


def main(arguments: Iterable[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(words) != 2:
            raise InputError("usage: python -m radmoe_lab.agent.verdicts REPOSITORY PATCH   (repo-0007, a file or -)")
        patch = sys.stdin.read() if words[1] == "-" else Path(words[1]).read_text()
        (verdict,) = judge([(repository_named(words[0]), patch)])
        say(verdict)
    except (RadmoeError, OSError) as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
