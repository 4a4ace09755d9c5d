"""Texts that are answers: names, dates, words, sentences.

Two texts are the same if they differ only in case, in the width and place of blanks, in the Unicode form of their
characters (an accent that is a character of its own, full-width letters, curly quotes, long dashes) and in punctuation
around them. Dates that can be read in one way only are the same date however they are written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from radmoe.grading.dates import date_or_time

_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc"), "'") | dict.fromkeys(map(ord, "\u201c\u201d\u201e"), '"')
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), "")
_COMMAND = re.compile(r"\\(?:text|math)(?:bf|it|rm|sf|tt|sc|normal)?\s*\{([^{}]*)\}|\\[,; ]")
_BEGINNING, _END = " \"'`*_\u00ab\u00bf\u00a1$", " \"'`*_\u00bb.,;:!?$\u3002"
_PAIRS = {")": "(", "]": "[", "}": "{", ">": "<"}


def plain_text(answer: str) -> str:
    """An answer as a label shows it: without font commands, and with single blanks."""
    before = None
    while before != answer:
        before, answer = answer, _COMMAND.sub(lambda command: command[1] or " ", answer)
    return " ".join(answer.split())


def text_key(answer: str) -> str:
    """The key by which texts are compared: equal keys mean the same text. It is empty only for an empty answer."""
    plain = unicodedata.normalize("NFKC", plain_text(answer)).translate(_DASHES | _QUOTES | _INVISIBLE)
    plain = " ".join(unicodedata.normalize("NFKC", plain.casefold()).split())
    bare = _without_ends(plain) or plain
    return date_or_time(bare) or bare


class TextClasses:
    """The answers to one problem in classes of equal `key`. The first answer of a class represents it; the gold answer is first."""

    def __init__(self, gold: str, key: Callable[[str], str | None] = text_key) -> None:
        self.gold, self._key = gold, key
        self._standing = {key(gold): gold}

    def add(self, answer: str) -> str:
        """The answer that stands for this answer's class."""
        return self._standing.setdefault(self._key(answer), answer)


def _without_ends(text: str) -> str:
    """The text without punctuation around it. A bracket goes only together with its partner: "f(x)" keeps its own."""
    before = None
    while before != text:
        before = text
        text = text.lstrip(_BEGINNING)
        if text[-1:] in _PAIRS and text[:1] == _PAIRS[text[-1]]:
            text = text[1:-1]
        elif text[-1:] not in _PAIRS:
            text = text.rstrip(_END)
    return text
