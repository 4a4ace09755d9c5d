"""The one way to a screen: whatever somebody else wrote passes `visible` before a terminal sees it.

Model names, problem ids, texts, paths and what servers answer are other people's. Printed as they are, they can move the
cursor, forge lines, set the clipboard, or be read as markup. So nothing here takes markup, and everything that is printed
(lines, blocks, tables, progress bars) passes `visible`. Ruff refuses `print`, `typer.echo` and rich's own Console, Table,
Text and Progress everywhere else in the package.
"""

from __future__ import annotations

import io
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.text import Text

    from radmoe.system.screen import Screen

PERIOD = 10.0  # seconds between lines of progress where stderr is no terminal

_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_SURROGATES = r"\ud800-\udfff"
# Unicode's format characters, line and paragraph separators, and what is ignorable by default: nobody sees them
_UNSEEN = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_EMOJI = r"\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_JOINING = r"\u0600-\u061b\u0620-\u0dff"  # Arabic to Sinhala: their spelling needs joiners
_MEANT = (  # unseen characters in the places where ordinary writing has them
    rf"(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])"
    r"|(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"  # a flag
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|(?<=[^{_CONTROLS}{_SURROGATES}{_UNSEEN}])[\ufe00-\ufe0f]"
)
_FOREIGN = re.compile(rf"({_MEANT})|[{_CONTROLS}{_SURROGATES}{_UNSEEN}]")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, *, block: bool = False) -> str:
    r"""Replace every character that is not printable by its escape, such as `\x1b` or `\u202e`.

    These are control characters (and with them every escape sequence), bidirectional and other format characters, line
    separators, zero-width characters, fillers and lone surrogates. Joiners within emoji and within scripts that are
    spelled with them stay, and so does a variation selector behind a character. In a `block` line ends and tabs stay too.
    """
    if block:
        text = text.replace("\r\n", "\n")

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if match[1] is not None or (block and character in "\n\t"):
            return character
        code = ord(character)
        return _NAMED.get(character) or (
            f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        )

    return _FOREIGN.sub(escape, text)


def shortened(text: str, longest: int = 500) -> str:
    """Shorten a text to at most this many visible characters, with an ellipsis in the middle."""
    text = visible(text)
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def say(text: object, *, err: bool = False) -> None:
    """Print one line. Line ends and control characters in it are printed as escapes."""
    _write(visible(str(text)), err)


def say_block(text: str, *, err: bool = False) -> None:
    """Print a text of several lines, followed by a line end."""
    _write(visible(text, block=True), err)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    _write(json_text(value), err=False)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Serialise a value as JSON in printable ASCII; `json` itself would leave DEL as it is."""
    return json.dumps(value, indent=indent).replace("\x7f", r"\u007f")


def _write(text: str, err: bool) -> None:
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def console(*, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> Screen:
    """A rich console to print tables and styled lines on; a `file` gets no colours."""
    from radmoe.system.screen import Screen

    if file is not None:
        return Screen(file=file, width=width, color_system=None)
    return Screen(stderr=stderr, width=width)


def styled(*pieces: str | tuple[str, str]) -> Text:
    """Build a styled line from plain texts and (text, style) pairs, such as `("failed", "bold red")`."""
    from rich.text import Text

    parts = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
    return Text.assemble(*((visible(text), own) for text, own in parts))


def block(text: str) -> Text:
    """Build a text of several lines for a console or a table's cell."""
    from rich.text import Text

    return Text(visible(text, block=True))


class Update(Protocol):
    """Tells a progress bar how many are done (or how many more), how many there are, and what else to show."""

    def __call__(
        self, done: float | None = None, total: float | None = None, *, advance: float = 0, note: str = ""
    ) -> None: ...


@contextmanager
def bar(what: str, unit: str = "rollouts", *, total: float | None = None) -> Iterator[Update]:
    """Progress on stderr: on a terminal a bar that goes away at the end, elsewhere a line every PERIOD seconds."""
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    from radmoe.system.screen import Note, ScreenLabel

    screen = console(stderr=True)
    finished, of, said = 0.0, total, time.monotonic()
    with Progress(
        ScreenLabel(what),
        BarColumn(),
        Note(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
        redirect_stdout=False,  # what goes to a pipe or a file meanwhile must not land on stderr, nor be wrapped
    ) as progress:
        task = progress.add_task("", total=total, note="")

        def update(
            done: float | None = None, total: float | None = None, *, advance: float = 0, note: str = ""
        ) -> None:
            nonlocal finished, of, said
            finished = finished + advance if done is None else done
            of = of if total is None else total
            text = f"{finished:,.0f}{'' if of is None else f' of {of:,.0f}'} {unit}{note and f', {note}'}"
            progress.update(task, completed=finished, total=of, note=text)
            if not screen.is_terminal and time.monotonic() - said >= PERIOD:
                said = time.monotonic()
                say(f"radmoe: {what}: {text}", err=True)

        yield update


def prepare_process() -> None:
    """Set up stdout and warnings for this process: warnings are printed as visible text, and a character that stdout
    cannot encode as its escape.
    """
    warnings.formatwarning = _visible_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


_python_format = warnings.formatwarning


def _visible_warning(*arguments: Any, **options: Any) -> str:
    return visible(_python_format(*arguments, **options), block=True)
