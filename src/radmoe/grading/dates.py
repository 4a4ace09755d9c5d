"""Dates and times of day, which look like divisions, differences and ratios but are none.

A date is written in one way if only one reading is possible: "July 14, 1789", "14 July 1789" and "1789-07-14" are one
date. Of 3/5/2021 nobody knows which number is the month, so it stays as it is, without leading zeros.
"""

from __future__ import annotations

import re

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = rf"({'|'.join(_MONTHS)}|{'|'.join(month[:3] for month in _MONTHS)}|sept)\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\s+)?"
_MONTH_FIRST = re.compile(rf"{_WEEKDAY}{_MONTH}\s+(?:the\s+)?{_DAY}(?:\s*,\s*|\s+)?(\d{{3,4}})?", re.I)
_DAY_FIRST = re.compile(rf"{_WEEKDAY}(?:the\s+)?{_DAY}\s+(?:of\s+)?{_MONTH}(?:\s*,\s*|\s+)?(\d{{3,4}})?", re.I)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_NUMBERS = re.compile(r"(\d{1,4})([/.])(\d{1,2})\2(\d{1,4})")
_TIME = re.compile(r"(\d{1,2})(?::([0-5]\d))?\s*([ap])\.?\s?m\.?", re.I)
_WRAP = re.compile(r"\\(?:text|mathrm|mbox|textbf|textrm)\s*\{([^{}]*)\}|\\[,; ]|[~{}]")


def date_or_time(text: str) -> str | None:
    """The normal form of a date or time of day; None for anything else. The normal form of a normal form is itself."""
    plain = " ".join(_WRAP.sub(lambda wrap: f" {wrap[1] or ''} ", text).split()).rstrip(".").strip()
    if not any(sign.isdigit() for sign in plain):
        return None
    if day := _MONTH_FIRST.fullmatch(plain):
        return _written(day[3], day[1], day[2])
    if day := _DAY_FIRST.fullmatch(plain):
        return _written(day[3], day[2], day[1])
    if iso := _ISO.fullmatch(plain):
        return plain if 1 <= int(iso[2]) <= 12 and 1 <= int(iso[3]) <= 31 else None
    if numbers := _NUMBERS.fullmatch(plain):
        first, sign, second, third = numbers.groups()
        if sign == "/" or (len(third) == 4 and int(first) <= 31 and int(second) <= 31):
            return sign.join(str(int(number)) for number in (first, second, third))
        return None
    if time := _TIME.fullmatch(plain):
        return f"{int(time[1])}:{time[2] or '00'}\\text{{ {time[3].lower()}m}}"
    return None


def _written(year: str | None, month: str, day: str) -> str | None:
    number = next(i for i, name in enumerate(_MONTHS, 1) if name[:3] == month.lower()[:3])
    if not 1 <= int(day) <= 31:
        return None
    return f"{int(year):04}-{number:02}-{int(day):02}" if year else f"\\text{{{int(day)} {_MONTHS[number - 1]}}}"
