"""The repository that an agent works in, read and changed by commands of bash.

Only bash, git, tar, grep, sed, find and coreutils are needed where the commands run. A path that leads out of the
repository, by itself or by a link, is refused before anything is read or written.
"""

from __future__ import annotations

import base64
import binascii
import io
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Any, NamedTuple, Protocol

from radmoe.errors import EngineError, InputError
from radmoe.sandbox.root import WORKDIR
from radmoe_agent.harmony.apply_patch import PatchError, changes, paths_of, read_patch, repository_path
from radmoe_agent.session import Finished

MOST_BYTES = 2_000_000  # of a file that is patched
_MOST_FILES = 200  # that one patch names
_WIDEST = 400  # bytes of a line that was found

_OPENED = """
real=$(realpath -e -- "$1" 2>/dev/null) || exit 91
case $real/ in "$(pwd -P)"/*) ;; *) exit 92;; esac
"""
_REFUSALS = {
    91: "there is no {path!r}",
    92: "{path!r} lies outside of the repository",
    93: "{path!r} is no directory: use repo_browser.open_file",
    94: "{path!r} is no file: use repo_browser.list_dir",
    95: "{path!r} is a binary file",
}
_LIST = """
[ -d "$real" ] || exit 93
find "$real" -mindepth 1 -maxdepth "$2" -name .git -prune -o -mindepth 1 -printf '%y%P\\0'
"""
_SEARCH = """
cd -- "$(pwd -P)" && place=$(realpath --relative-to=. -- "$real")
hits() { grep -rnIH --exclude-dir=.git "$1" -e "$2" -- "$place" 2>/dev/null | cut -b-WIDEST | head -n "$3"; }
found=$(hits -E "$2" "$3")
[ -n "$found" ] || found=$(hits -F "$2" "$3")
printf '%s' "$found"
""".replace("WIDEST", str(_WIDEST))
_LINES = """
[ -f "$real" ] || exit 94
[ ! -s "$real" ] || LC_ALL=C grep -qI '' -- "$real" || exit 95
wc -l < "$real"
sed -n "$2,$3p;$3q" -- "$real"
"""
_READ = """
root=$(pwd -P)
for path; do
  dir=$path
  while [ "$dir" != "${dir%/*}" ]; do dir=${dir%/*}; [ ! -e "$dir" ] || break; done
  if [ "$(realpath -m -- "$path")" != "$root/$path" ]; then echo link
  elif [ -d "$path" ]; then echo directory
  elif [ -f "$path" ]; then
    if [ "$(stat -c %s -- "$path")" -gt MOST ]; then echo large
    else printf 'file '; base64 -w0 < "$path"; echo; fi
  elif [ -e "$path" ]; then echo special
  elif [ "$dir" != "$path" ] && [ -e "$dir" ] && [ ! -d "$dir" ]; then echo blocked
  else echo none; fi
done
""".replace("MOST", str(MOST_BYTES))
_STATES = {
    "link": "{path} is a link or lies behind one: patch the file that it stands for",
    "directory": "{path} is a directory",
    "large": f"{{path}} has more than {MOST_BYTES:,} bytes: change it by a command",
    "special": "{path} is no regular file",
    "blocked": "{path} would lie below a file",
}
# Every new text is written beside the repository's files first; then they are renamed, and all is undone if one fails.
_WRITE = """
stage=$(git rev-parse --git-dir 2>/dev/null || echo .)/radmoe-patch
made=()
missing() { [ -d "$1" ] || { missing "$(dirname -- "$1")" && mkdir -- "$1" && made+=("$1"); }; }
staged() {
  rm -rf -- "$stage" && mkdir -- "$stage" "$stage/new" "$stage/old" && tar -xf - -C "$stage/new" || return 1
  local i=0 path
  for path; do
    if [ -e "$path" ]; then
      ln -- "$path" "$stage/old/$i" || return 1
      [ ! -e "$stage/new/$i" ] || chmod --reference="$path" -- "$stage/new/$i" || return 1
    fi
    i=$((i + 1))
  done
}
renamed() {
  local i=0 path
  for path; do
    if [ -e "$stage/new/$i" ]; then
      missing "$(dirname -- "$path")" && mv -fT -- "$stage/new/$i" "$path" || return 1
    else rm -f -- "$path" || return 1; fi
    i=$((i + 1))
  done
}
undone() {
  local i=0 path
  for path; do
    if [ -e "$stage/old/$i" ]; then mv -fT -- "$stage/old/$i" "$path"; else rm -f -- "$path"; fi
    i=$((i + 1))
  done
  for ((i = ${#made[@]} - 1; i >= 0; i--)); do rmdir -- "${made[i]}"; done
}
code=0
if ! staged "$@"; then code=1; elif ! renamed "$@"; then code=1; undone "$@"; fi
rm -rf -- "$stage"
exit $code
"""


class Shell(Protocol):
    """Runs a command of bash in the repository."""

    def __call__(self, command: str, *, stdin: bytes = b"") -> Finished: ...


class TreeEntry(NamedTuple):
    """An entry of a directory: its path below that directory, and whether it is a directory itself."""

    path: str
    directory: bool


class Repository:
    """The work tree at `root`, on the machine or in the container in which `shell` runs commands.

    A path that is missing, of the wrong kind, binary, or outside the tree raises InputError.
    """

    def __init__(self, shell: Shell, root: str = WORKDIR) -> None:
        self.shell, self.root = shell, root

    def entries(self, path: str, depth: int) -> list[TreeEntry]:
        """What lies below a directory, down to a depth, without `.git`, in the order of a tree."""
        raw = self._asked(_LIST, path, depth).split("\0")[:-1]
        found = [TreeEntry(line[1:], line[0] == "d") for line in raw]
        return sorted(found, key=lambda one: one.path.split("/"))

    def search(self, path: str, query: str, most: int) -> list[str]:
        """Lines `PATH:NUMBER:TEXT` that match a regular expression (POSIX extended) or, where none does, have that text."""
        return [line.removeprefix("./") for line in self._asked(_SEARCH, path, query, most).splitlines()]

    def lines(self, path: str, first: int, last: int) -> tuple[list[str], int]:
        """Lines `first` to `last` of a text file, counted from 1, and the number of its line ends."""
        count, _, text = self._asked(_LINES, path, first, last).partition("\n")
        return text.removesuffix("\n").split("\n") if text else [], int(count)

    def patch(self, text: str) -> list[str]:
        """Apply a patch, all of it or nothing. Returns a line per file: A (added), M (changed) or D (deleted)."""
        sections = [
            replace(
                one,
                path=repository_path(one.path, self.root),
                move_to=None if one.move_to is None else repository_path(one.move_to, self.root),
            )
            for one in read_patch(text)
        ]
        paths = paths_of(sections)
        if len(paths) > _MOST_FILES:
            raise PatchError(f"the patch names {len(paths)} files: at most {_MOST_FILES} at a time")
        states = dict(zip(paths, self._states(paths), strict=True))
        before = {path: self._text(path, state) for path, state in states.items()}
        made = changes(sections, before.__getitem__)
        if made:
            self._write(made)
        signs = {path: "D" if new is None else "A" if before[path] is None else "M" for path, new in made.items()}
        return [f"{sign} {path}" for path, sign in signs.items()]

    def diff(self) -> str:
        """The patch: everything that differs from the last commit, new files with it."""
        done = self.shell("git add -A && git diff --cached")
        if done.code != 0 or done.stopped or done.left_out:
            reason = done.stopped or (f"{done.left_out:,} bytes too long" if done.left_out else _said(done))
            raise EngineError(f"the patch could not be read by git ({reason})")
        return done.output.decode(errors="replace")

    def _asked(self, script: str, path: str, *arguments: object) -> str:
        words = [_word(path) if path else ".", *(_word(str(one)) for one in arguments)]
        done = self.shell(f"set -- {' '.join(words)}\n{_OPENED}{script}")
        if done.code in _REFUSALS:
            raise InputError(_REFUSALS[done.code].format(path=path))
        if done.stopped:
            raise InputError(f"this was stopped: {done.stopped}")
        if done.code != 0:
            raise InputError(f"{path!r} cannot be read: {_said(done)}")
        return done.output.decode(errors="replace")

    def _states(self, paths: Sequence[str]) -> list[str]:
        done = self.shell(f"set -- {' '.join(map(_word, paths))}\n{_READ}")
        states = done.output.decode(errors="replace").split("\n")[:-1]
        if done.code != 0 or done.stopped or done.left_out or len(states) != len(paths):
            raise PatchError(f"the files of the patch cannot be read: {done.stopped or _said(done)}")
        return states

    @staticmethod
    def _text(path: str, state: str) -> str | None:
        """The text of a file by what `_READ` said of it; None where there is no file."""
        if state in _STATES:
            raise PatchError(_STATES[state].format(path=path))
        if state == "none":
            return None
        try:
            text = base64.b64decode(state.removeprefix("file "), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = "\0"
        if "\0" in text:
            raise PatchError(f"{path} is a binary file, which cannot be patched")
        return text

    def _write(self, texts: dict[str, str | None]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for number, text in enumerate(texts.values()):
                if text is not None:
                    content = text.encode()
                    entry = tarfile.TarInfo(str(number))
                    entry.size, entry.mode = len(content), 0o644
                    archive.addfile(entry, io.BytesIO(content))
        done = self.shell(f"set -- {' '.join(map(_word, texts))}\n{_WRITE}", stdin=packed.getvalue())
        if done.code != 0 or done.stopped:
            raise PatchError(
                f"the patch was not applied, because a file could not be written: {done.stopped or _said(done)}"
            )


def environment_shell(environment: Any) -> Shell:
    """The shell of a mini-swe-agent environment, such as docker."""
    from minisweagent.exceptions import Submitted

    def run(command: str, *, stdin: bytes = b"") -> Finished:
        call = f"bash -c {quote(command)}"
        if stdin:
            call = f"base64 -d <<'RADMOE' | {call}\n{base64.encodebytes(stdin).decode()}RADMOE\n"
        try:
            done = environment.execute({"command": call})
        except Submitted as error:  # a command that printed mini-swe-agent's own sign of submission
            done = {"returncode": 0, "output": str(error.messages[0].get("content", ""))}
        return Finished(int(done["returncode"]), str(done["output"]).encode(), str(done.get("exception_info") or ""))

    return run


def _said(done: Finished) -> str:
    lines = done.output.decode(errors="replace").strip().splitlines()
    return lines[0][:200] if lines else f"exit code {done.code}"


def _word(text: str) -> str:
    """A text as one word of bash. Raises InputError for what no word can hold."""
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(f"{text[:60]!r} has a sign that no path or query can have")
    return quote(text)
