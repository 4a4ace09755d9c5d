r"""Numbers as people write them: thousands in groups, decimal commas, periods, powers of ten.

A comma groups thousands (`1,234`), separates (`1, 234`, `(1,234)`) or is a decimal comma. It is the last one where it
cannot be anything else: `{,}` before other than three digits, `0,125`, `3,05`, `12,5\%`.
"""

from __future__ import annotations

import re

_FIRM = r"(?:\{,\}|\\[,! ],?|,\\!)"  # no one separates a list with these
_ANY = rf"(?:{_FIRM}|,| )"
_GROUPED = re.compile(rf"(?<![\d._^])(?<!(?<!\\),)(?<!\d[, ])[1-9]\d{{0,2}}(?:{_ANY}\d{{3}})+(?!\d|{_ANY}\d|,\S)")
_FIRMLY = re.compile(rf"(?<![\d._^])[1-9]\d{{0,2}}(?:{_FIRM}\d{{3}})+(?!\d|{_FIRM}\d)")
_POINTED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.,])")
_GAPS = re.compile(r"[^\d]+")
_FIRM_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_COMMA = re.compile(
    r"(?<![\d.,])(?<![\d.,][ ])(?:0,(?=\d{3,}(?!\d))|\d+,(?=0\d(?!\d))|\d+,(?=\d{1,2}\s*\\?%))(?!\d+,\d)"
)
_EXPONENT = re.compile(r"(?<![A-Za-z\d.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![A-Za-z\d.])")
_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_DOTTED = re.compile(r"(\d*\.\d*)\\dot\{?(\d)\}?(?:(\d*)\\dot\{?(\d)\}?)?")
_BRACKETED = re.compile(r"(?<![\d.])(\d+\.)\((\d+)\)(?!\d)")
_DOTS = re.compile(r"\.\.\.+")
_GOES_ON = re.compile(
    r"(?<![\d.])(\d*\.\d*?)(\d)\2\2+\s*\\[lc]?dots\b|(?<![\d.])(\d*\.\d*?)(\d{2,6})\4+\s*\\[lc]?dots\b"
)


def joined_numbers(text: str) -> str:
    """Rewrite every number in one way: no separators between digits, a decimal point, `\\overline` over repeating decimals."""
    text = _DOTS.sub(r"\\ldots ", text)
    text = _DOTTED.sub(lambda m: f"{m[1]}\\overline{{{m[2]}{m[3] or ''}{m[4] or ''}}}", text)
    text = _BRACKETED.sub(r"\1\\overline{\2}", text)
    text = _GOES_ON.sub(lambda m: f"{m[1] or m[3] or ''}\\overline{{{m[2] or m[4]}}}", text)
    text = _GROUPED.sub(lambda number: number[0] if _depth(text, number.start()) else _GAPS.sub("", number[0]), text)
    text = _FIRMLY.sub(lambda number: _GAPS.sub("", number[0]), text)
    text = _POINTED.sub(lambda number: number[0].replace(".", ""), text)
    text = _FIRM_COMMA.sub(".", text)
    text = _COMMA.sub(lambda number: number[0] if _depth(text, number.start()) else number[0][:-1] + ".", text)
    return _EXPONENT.sub(r"\1\\cdot 10^{\2}", _TIMES.sub(r"\\cdot ", text))


def _depth(text: str, stop: int) -> int:
    """How many brackets of a tuple or set are open at a place. Inside them a comma separates."""
    before = text[:stop]
    return sum(map(before.count, ("(", "[", "\\{"))) - sum(map(before.count, (")", "]", "\\}")))
