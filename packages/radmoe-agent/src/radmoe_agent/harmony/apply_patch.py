"""The format of the tool `apply_patch`: reads a patch, and works out what every file that it names becomes.

    *** Begin Patch
    *** Update File: sums.py
    @@ def total(xs):
    -    return sum(xs) + 1
    +    return sum(xs)
    *** End Patch

Nothing here touches a file: the caller reads files for `changes`, whose result is the whole change or a PatchError.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from radmoe.errors import InputError

BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_SECTIONS: dict[str, Kind] = {"*** Add File:": "add", "*** Delete File:": "delete", "*** Update File:": "update"}
_MOVE = "*** Move to:"
_COUNTS = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")  # the line numbers of a unified diff, which say nothing here
_SHOWN = 60  # characters of a line in a message
_PLAIN = str.maketrans(  # typographic punctuation that stands for what a keyboard has
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        "\u2026": "...",
    }
)
_PASSES: tuple[Callable[[str], str], ...] = (  # in which lines are compared, one after another
    lambda line: line,
    str.rstrip,
    str.strip,
    lambda line: line.translate(_PLAIN).strip(),
)

Kind = Literal["add", "delete", "update"]
Sign = Literal[" ", "-", "+"]


class PatchError(InputError):
    """A patch that cannot be read or applied. Nothing of it was applied."""


@dataclass(frozen=True)
class Hunk:
    """One change of a file: its lines with their signs, to be found after its headings (`@@ def total(xs):`)."""

    headings: tuple[str, ...]
    lines: tuple[tuple[Sign, str], ...]
    at_end: bool = False


@dataclass(frozen=True)
class Section:
    """What a patch does with one file. `text` is that of a file to add, and `move_to` the new name of an updated one."""

    kind: Kind
    path: str
    text: str = ""
    hunks: tuple[Hunk, ...] = ()
    move_to: str | None = None


def read_patch(text: str) -> list[Section]:
    """The sections of a patch. Raises PatchError for a text that is no patch, with the number of the line."""
    lines = text.replace("\r\n", "\n").strip().split("\n")
    if lines[0].strip() != BEGIN or lines[-1].strip() != END or len(lines) < 2:
        raise PatchError(f"a patch must begin with the line {BEGIN!r} and end with {END!r}")
    sections: list[Section] = []
    last = len(lines) - 1
    at = next((i for i in range(1, last) if lines[i].strip()), last)
    while at < last:
        stop = next((i for i in range(at + 1, last) if _section(lines[i])), last)
        sections.append(_read_section(lines[at:stop], at + 1))
        at = stop
    if not sections:
        raise PatchError(
            "the patch names no file: use *** Update File: PATH, *** Add File: PATH or *** Delete File: PATH"
        )
    return sections


def changes(sections: Sequence[Section], read: Callable[[str], str | None]) -> dict[str, str | None]:
    """The new text of every file that changes; None for one that is deleted.

    `read` gives the text of a file before the patch; None where there is none. Sections are applied in their order.
    """
    before: dict[str, str | None] = {}
    now: dict[str, str | None] = {}

    def current(path: str) -> str | None:
        if path not in now:
            now[path] = before[path] = read(path)
        return now[path]

    for section in sections:
        text = current(section.path)
        if section.kind == "add":
            if text is not None:
                raise PatchError(f"{section.path} exists already: change it with *** Update File")
            now[section.path] = section.text
            continue
        if text is None:
            raise PatchError(f"there is no file {section.path}")
        if section.kind == "delete":
            now[section.path] = None
            continue
        updated = _updated(section.path, text, section.hunks)
        if section.move_to is not None and section.move_to != section.path:
            if current(section.move_to) is not None:
                raise PatchError(f"{section.path} cannot be moved to {section.move_to}, which exists already")
            now[section.path] = None
        now[section.move_to or section.path] = updated
    _refuse_nested(now)
    return {path: text for path, text in now.items() if text != before[path]}


def paths_of(sections: Sequence[Section]) -> list[str]:
    """Every path that a patch names, once."""
    named = [path for one in sections for path in (one.path, one.move_to) if path is not None]
    return list(dict.fromkeys(named))


def repository_path(path: str, root: str) -> str:
    """A path relative to the repository at `root`. Raises PatchError for one that lies outside, or in `.git`."""
    if not path.strip() or any(ord(sign) < 32 for sign in path) or not _encodable(path):
        raise PatchError(f"{path[:_SHOWN]!r} is no path of a file")
    clean = posixpath.normpath(posixpath.join(root, path))
    if not clean.startswith(f"{root}/"):
        raise PatchError(f"{path!r} lies outside of the repository {root}")
    relative = clean[len(root) + 1 :]
    if ".git" in relative.lower().split("/"):
        raise PatchError(f"{path!r} lies in .git, which is not part of the repository's files")
    return relative


def _encodable(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _section(line: str) -> tuple[Kind, str] | None:
    """The kind and the path of a line that begins a section."""
    return next(((kind, line[len(mark) :].strip()) for mark, kind in _SECTIONS.items() if line.startswith(mark)), None)


def _read_section(lines: Sequence[str], number: int) -> Section:
    """The section that begins with the first of `lines`, which is line `number` of the patch."""
    heading = _section(lines[0])
    if heading is None:
        raise PatchError(f"line {number} of the patch belongs to no file: {lines[0][:_SHOWN]!r}")
    kind, path = heading
    body = list(enumerate(lines[1:], number + 1))
    if not path:
        raise PatchError(f"line {number} of the patch names no file: {lines[0]!r}")
    if kind == "add":
        while body and not body[-1][1]:  # blank lines that only set sections apart
            body.pop()
        for at, line in body:
            if not line.startswith("+"):
                raise PatchError(
                    f"line {at} of the patch must begin with +, as every line of an added file: {line[:_SHOWN]!r}"
                )
        return Section(kind, path, "".join(f"{line[1:]}\n" for _, line in body))
    if kind == "delete":
        if extra := next((at for at, line in body if line.strip()), None):
            raise PatchError(f"line {extra} of the patch follows *** Delete File, which has no lines")
        return Section(kind, path)
    move_to = None
    if body and body[0][1].startswith(_MOVE):
        move_to = body.pop(0)[1][len(_MOVE) :].strip()
        if not move_to:
            raise PatchError(f"line {number + 1} of the patch names no file to move to")
    hunks = _read_hunks(body)
    if not hunks and move_to is None:
        raise PatchError(f"*** Update File: {path} has no lines: write what is there (-) and what it becomes (+)")
    return Section(kind, path, hunks=tuple(hunks), move_to=move_to)


def _read_hunks(body: Sequence[tuple[int, str]]) -> list[Hunk]:
    hunks: list[Hunk] = []
    headings: list[str] = []
    lines: list[tuple[Sign, str]] = []

    def close(at: int, *, at_end: bool = False) -> None:
        if lines:
            hunks.append(Hunk(tuple(headings), tuple(lines), at_end))
        elif headings:
            raise PatchError(f"the hunk before line {at} of the patch has no lines")
        headings.clear()
        lines.clear()

    for at, line in body:
        if line.startswith("@@"):
            if lines:
                close(at)
            heading = _COUNTS.sub("", line[2:].removeprefix(" "), count=1)
            headings.append(heading)
        elif line.rstrip() == END_OF_FILE:
            close(at, at_end=True)
        elif line[:1] in (" ", "-", "+"):
            lines.append((line[0], line[1:]))  # type: ignore[arg-type]
        elif not line:
            lines.append((" ", ""))
        else:
            raise PatchError(f"line {at} of the patch must begin with a blank, -, + or @@: {line[:_SHOWN]!r}")
    close(body[-1][0] + 1 if body else 0)
    return hunks


def _updated(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """A file's text after its hunks. Lines that stay keep the file's own spelling, and the file its line ends."""
    windows = "\r\n" in text and text.count("\n") == text.count("\r\n")
    lines = (text.replace("\r\n", "\n") if windows else text).split("\n")
    closed = lines[-1] == ""  # the last line has its line end, or there is none
    if closed:
        lines.pop()
    made: list[str] = []
    at = 0
    for number, hunk in enumerate(hunks, 1):
        start, body = _place(f"{path}: hunk {number}", lines, at, hunk)
        made += lines[at:start]
        at = start
        for sign, new in body:
            made += [new] if sign == "+" else lines[at : at + 1] if sign == " " else []
            at += sign != "+"
        if at == len(lines) and body and body[-1][0] == "+":
            closed = True
    made += lines[at:]
    end = "\r\n" if windows else "\n"
    return end.join(made) + (end if made and closed else "")


def _place(what: str, lines: Sequence[str], at: int, hunk: Hunk) -> tuple[int, Sequence[tuple[Sign, str]]]:
    """Where a hunk begins, at line `at` or later, and its lines. Lines to add alone follow the heading, or end the file."""
    for heading in hunk.headings:
        if heading.strip():
            found = _find(lines, [heading], at, at_end=False)
            if found is None:
                raise PatchError(f"{what} was not found: no line is {heading[:_SHOWN]!r}, which stands after @@")
            at = found + 1
    body = hunk.lines
    while True:
        old = [line for sign, line in body if sign != "+"]
        if not old:
            return (at if any(map(str.strip, hunk.headings)) and not hunk.at_end else len(lines)), body
        found = _find(lines, old, at, at_end=hunk.at_end)
        if found is not None:
            return found, body
        if body[-1] != (" ", ""):  # a blank line that only sets hunks apart
            place = "at the end of the file" if hunk.at_end else "in this order"
            raise PatchError(
                f"{what} was not found: the file has no lines {place} like its {len(old)} that begin with "
                f"{next(filter(str.strip, old), '')[:_SHOWN]!r}: open the file and copy them"
            )
        body = body[:-1]


def _find(lines: Sequence[str], wanted: Sequence[str], at: int, *, at_end: bool) -> int | None:
    """The first place, at line `at` or later, where the wanted lines stand; at the end of the file alone if so asked."""
    last = len(lines) - len(wanted)
    for same in _PASSES:
        have, want = [same(line) for line in lines], [same(line) for line in wanted]
        for start in range(max(at, last) if at_end else at, last + 1):
            if have[start : start + len(want)] == want:
                return start
    return None


def _refuse_nested(files: Mapping[str, str | None]) -> None:
    """A path cannot be a file and the directory of another file."""
    for path in files:
        parents = path.split("/")[:-1]
        above = next((up for n in range(1, len(parents) + 1) if (up := "/".join(parents[:n])) in files), None)
        if above is not None:
            raise PatchError(f"{path} lies below {above}, which the patch names as a file")
