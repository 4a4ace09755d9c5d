"""The commands that demonstrations use, and exactly what they print and change, without running them.

Training takes millions of tokens, and a process per command would take hours. A test runs a sample of these commands in
real repositories with bash and compares every output, exit code and file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from radmoe_lab.agent.git_stand_in import difference
from radmoe_lab.agent.running import check_output
from radmoe_lab.agent.templates import SUBMIT

_PLAIN = re.compile(r"[\w <>=+\-(),:]+")  # text that means itself to sed, as a pattern and as a replacement


class ShellResult(NamedTuple):
    """A command, what it printed, its exit code, and the files after it."""

    command: str
    output: str
    code: int
    files: dict[str, str]


Files = Mapping[str, str]


def ls(files: Files) -> ShellResult:
    return ShellResult("ls", "".join(f"{name}\n" for name in sorted(files)), 0, dict(files))


def cat(files: Files, *names: str) -> ShellResult:
    return ShellResult(f"cat {' '.join(names)}", "".join(files[name] for name in names), 0, dict(files))


def cat_numbered(files: Files, name: str) -> ShellResult:
    lines = files[name].removesuffix("\n").split("\n")
    numbered = "".join(f"{n:6d}\t{line}\n" for n, line in enumerate(lines, 1))
    return ShellResult(f"cat -n {name}", numbered, 0, dict(files))


def grep(files: Files, word: str) -> ShellResult:
    """Print the lines that contain a word, in all modules, with file and line number."""
    hits = [
        f"{name}:{n}:{line}\n"
        for name in sorted(files)
        for n, line in enumerate(files[name].split("\n"), 1)
        if word in line
    ]
    return ShellResult(f'grep -n "{word}" *.py', "".join(hits), 0 if hits else 1, dict(files))


def check(files: Files, cases: Sequence[str]) -> ShellResult:
    return ShellResult("python3 check.py", *check_output(files, cases), dict(files))


def replace_lines(files: Files, name: str, first: int, removed: int, lines: Sequence[str]) -> ShellResult:
    """Replace whole lines by sed; removing none inserts before line `first`."""
    if removed == 0:
        text = "\\n".join(lines)
        command = f"sed -i '{first - 1}a\\{text}' {name}"
    elif removed == len(lines):
        edits = [f"{first + i}s|.*|{line}|" for i, line in enumerate(lines)]
        command = f"sed -i '{'; '.join(edits)}' {name}"
    else:
        raise ValueError("as many lines as are removed, or none removed")
    old = files[name].split("\n")
    old[first - 1 : first - 1 + removed] = lines
    return ShellResult(command, "", 0, {**files, name: "\n".join(old)})


def substitute(files: Files, name: str, old: str, new: str) -> ShellResult | None:
    """Run sed to replace the first `old` in every line; None where sed would read one of the texts as a pattern."""
    if not (_PLAIN.fullmatch(old) and _PLAIN.fullmatch(new)):
        return None
    lines = [line.replace(old, new, 1) for line in files[name].split("\n")]
    return ShellResult(f"sed -i 's/{old}/{new}/' {name}", "", 0, {**files, name: "\n".join(lines)})


def python_replace(files: Files, name: str, old: str, new: str) -> ShellResult:
    """Run a Python program that replaces `old` by `new` everywhere in a file."""
    program = f'p = "{name}"\ns = open(p).read()\nopen(p, "w").write(s.replace("{old}", "{new}"))'
    return ShellResult(f"python3 - <<'EOF'\n{program}\nEOF", "", 0, {**files, name: files[name].replace(old, new)})


def write(files: Files, name: str, text: str) -> ShellResult:
    return ShellResult(f"cat > {name} <<'EOF'\n{text}EOF", "", 0, {**files, name: text})


def restore(files: Files, original: Files, name: str) -> ShellResult:
    return ShellResult(f"git checkout -q {name}", "", 0, {**files, name: original[name]})


def diff(files: Files, original: Files) -> ShellResult:
    return ShellResult("git diff", patch(files, original), 0, dict(files))


def submit(files: Files) -> ShellResult:
    return ShellResult(SUBMIT, "", 0, dict(files))  # its output ends the conversation: nobody sees it


def patch(files: Files, original: Files) -> str:
    """Return what `git diff` prints for files of which some have changed."""
    return "".join(difference(name, original[name].encode(), files[name].encode()) for name in sorted(original))
