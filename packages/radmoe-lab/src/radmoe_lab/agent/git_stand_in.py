"""A stand-in for git on a machine without it: `git diff` and `git checkout`.

As a program (workplace.py copies this file) it works on the files of one directory; as they were, they lie in .git/start.
It uses the standard library only. A test compares it with git.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
from pathlib import Path


def difference(name: str, before: bytes, after: bytes | None) -> str:
    """Return what `git diff` prints about a file; `after` is None if the file was deleted."""
    if before == after:
        return ""
    old, new = (data.decode("utf-8", "replace").splitlines(keepends=True) for data in (before, after or b""))
    head = f"diff --git a/{name} b/{name}\n"
    if after is None:
        head += f"deleted file mode 100644\nindex {_blob(before)}..0000000\n"
    else:
        head += f"index {_blob(before)}..{_blob(after)} 100644\n"
    lines = difflib.unified_diff(old, new, f"a/{name}", "/dev/null" if after is None else f"b/{name}")
    return head + "".join(_line(line, old) for line in lines)


def _line(line: str, old: list[str]) -> str:
    """Format a line of a difference as git does. The head of a hunk names the last line before it that starts at the
    margin.
    """
    hunk = re.match(r"@@ -(\d+)", line)
    if hunk is None:
        return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    named = next((text for text in reversed(old[: max(int(hunk[1]) - 1, 0)]) if re.match(r"[A-Za-z_$]", text)), "")
    return f"{line.rstrip()} {named.rstrip()[:80]}".rstrip() + "\n"


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:7]


def main(arguments: list[str]) -> None:
    start = Path(".git", "start")
    names = sorted(path.name for path in start.iterdir())
    words = [word for word in arguments[1:] if not word.startswith("-")]
    wanted = [name for name in names if not words or "." in words or name in words]
    if arguments[:1] == ["diff"]:
        for name in wanted:
            after = Path(name).read_bytes() if Path(name).is_file() else None
            text = difference(name, (start / name).read_bytes(), after)
            sys.stdout.write(text)  # noqa: TID251 (a program of its own)
    elif arguments[:1] == ["checkout"] and words and wanted:
        for name in wanted:
            Path(name).write_bytes((start / name).read_bytes())
    else:
        sys.exit(f"git: {' '.join(arguments)} is not there: this stand-in knows diff and checkout")


if __name__ == "__main__":
    main(sys.argv[1:])
