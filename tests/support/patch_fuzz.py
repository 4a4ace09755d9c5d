"""Fuzzed patches for apply_patch, and a repository on disk from which links lead out to files that must never change."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

from radmoe_agent.harmony.apply_patch import PatchError, changes, read_patch
from radmoe_agent.harmony.repository import Repository
from radmoe_agent.session import Finished

CODE = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(12))
TEXTS = {
    "pkg/a.py": CODE,
    "pkg/b.py": "one\ntwo\nthree",
    "crlf.txt": "a\r\nb\r\nc\r\n",
    "empty.txt": "",
    "-dash.txt": "x\n",
    "a b.txt": "say “hello” \u2013 it\u2019s\n",
}
HOSTILE = (
    "../outside/secret.txt", "away/secret.txt", "secret", "away/new.txt", "/etc/hostname", "pkg/../../outside/secret.txt", ".git/HEAD",
    ".git/hooks/post-commit", "inner/a.py", "pkg", "bin", "pkg/a.py/x", "loop/x", "$(touch owned)", "`touch owned`", "a;touch owned", "*",
    "~/owned", "new/../../outside/x", "'", '"', "a\tb", "", "x" * 300,
)  # fmt: skip
FRESH = ("new.txt", "new/deep/er.txt", "pkg/c.py", "-new", "ü.txt")
MARKS = ("*** Begin Patch", "*** End Patch", "*** Update File: pkg/a.py", "*** Add File: new.txt", "*** Delete File: crlf.txt", "*** Move to: x", "*** End of File", "@@", "@@ def f3(x):", "+x", "-x", " x", "")  # fmt: skip


class Place:
    """A directory with `testbed`, the repository, and `outside`, to which its links lead."""

    def __init__(self, where: Path) -> None:
        self.where, self.root = where, where / "testbed"
        self.repository = Repository(self._shell, str(self.root))
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.where, ignore_errors=True)
        for folder in ("testbed/pkg", "testbed/.git/objects", "testbed/.git/refs", "outside"):
            (self.where / folder).mkdir(parents=True)
        (self.root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (self.where / "outside" / "secret.txt").write_text("secret\n")
        for path, text in TEXTS.items():
            (self.root / path).write_bytes(text.encode())
        (self.root / "bin").write_bytes(b"\x00\xff\x00")
        (self.root / "pkg" / "b.py").chmod(0o755)
        for name, target in {
            "away": "../outside",
            "secret": "../outside/secret.txt",
            "inner": "pkg",
            "loop": "loop",
        }.items():
            (self.root / name).symlink_to(target)

    def state(self) -> dict[str, tuple[int, bytes | str | None]]:
        """Every path with its mode, and what a file has or a link says."""
        found: dict[str, tuple[int, bytes | str | None]] = {}
        for folder, names, files in os.walk(self.where):
            for name in (*names, *files):
                path = Path(folder) / name
                content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
                found[str(path.relative_to(self.where))] = (path.lstat().st_mode, content)
        return found

    def _shell(self, command: str, *, stdin: bytes = b"") -> Finished:
        done = subprocess.run(
            ["bash", "-c", command],
            input=stdin,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return Finished(done.returncode, done.stdout)


def fuzzed(rng: random.Random) -> str:
    """A patch of a few sections, damaged three times in ten."""
    lines = ["*** Begin Patch"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        lines += _section(rng)
    lines.append("*** End Patch")
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 4)):
            _damage(rng, lines)
    return "\n".join(lines)


def check(text: str, place: Place, before: dict[str, tuple[int, bytes | str | None]]) -> str:
    """Apply a patch and hold it to its promise; "applied" or "refused". The place is as before afterwards."""
    texts = dict(TEXTS)
    try:
        said = place.repository.patch(text)
    except PatchError:
        assert place.state() == before, f"refused, and yet something changed: {text!r}"
        return "refused"
    after = place.state()
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    assert not [path for path in touched if not path.startswith("testbed/")], f"written outside: {touched}, {text!r}"
    for section in read_patch(text):  # one after another, in memory: no section may be missing
        try:
            made = changes([section], lambda path: texts.get(os.path.normpath(path)))
        except PatchError as error:
            raise AssertionError(f"applied, though {error}: {text!r}") from None
        for path, new in made.items():
            texts.pop(os.path.normpath(path), None)
            if new is not None:
                texts[os.path.normpath(path)] = new
    wanted = {path for path in TEXTS.keys() | texts.keys() if TEXTS.get(path) != texts.get(path)}
    assert {line[2:] for line in said} == wanted, (said, wanted, text)
    files = {
        path.removeprefix("testbed/"): one
        for path, one in after.items()
        if path.startswith("testbed/") and one[1] is not None
    }
    folders = {f"testbed/{up}" for path in wanted for up in map(str, Path(path).parents)}
    assert set(touched) - folders == {f"testbed/{path}" for path in wanted}, (touched, text)
    for path in wanted:
        assert files.get(path, (0, None))[1] == (texts[path].encode() if path in texts else None), (path, text)
        if path in texts and path in TEXTS:
            assert files[path][0] == before[f"testbed/{path}"][0], f"the mode of {path} changed: {text!r}"
    place.reset()
    return "applied"


def _section(rng: random.Random) -> list[str]:
    path = rng.choice(HOSTILE) if rng.random() < 0.1 else rng.choice([*TEXTS])
    match rng.randrange(6):
        case 0:
            path = path if path in HOSTILE else rng.choice(FRESH)
            return [f"*** Add File: {path}", *(f"+line {n}" for n in range(rng.randrange(4)))]
        case 1:
            return [f"*** Delete File: {path}"]
    lines = [f"*** Update File: {path}"]
    if rng.random() < 0.2:
        lines.append(f"*** Move to: {rng.choice([*FRESH] * 4 + [*HOSTILE])}")
    rows = re.split("\r?\n", TEXTS.get(path, CODE))
    at = 0
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(at, len(rows)) if at < len(rows) else at
        lines.append(rng.choice(("@@", "@@", f"@@ {rows[max(0, at - 1)]}" if at < len(rows) else "@@")))
        for row in rows[at : at + rng.randrange(1, 5)]:
            lines += rng.choice(
                ([f" {row}"], [f"-{row}"], [f"-{row}", f"+{row} # new"], [f" {row}", "+new"], [f"-{row.strip()}", "+x"])
            )
            at += 1
    return lines


def _damage(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0 if len(lines) > 1:
            del lines[at]
        case 1:
            lines.insert(at, rng.choice(MARKS))
        case 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        case 3:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 4:
            spot = rng.randrange(len(lines[at]) + 1)
            lines[at] = (
                lines[at][:spot] + rng.choice(("\0", "\r", "/", "..", "\u2028", "é", "-", "+", " ")) + lines[at][spot:]
            )
        case _:
            lines[at] = rng.choice("+- ") + lines[at]
