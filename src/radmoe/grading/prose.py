r"""Words in answers: one spelling for each, and which words around a value say nothing about it.

Case counts where it tells things apart: in words of one or two letters (`Aa` and `AA`), in those with capitals inside
(`CaCO`) and in short ones all in capitals (`CO`). Elsewhere it does not: `Yes`, `YES` and `yes` are one.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z]+")
_COMMON = {"yes", "no", "true", "false", "none", "odd", "even", "red", "blue", "am", "pm"}
_MEANING = {
    "dne": "does not exist", "no solutions": "no solution", "no real solutions": "no real solution",
    "no integer solutions": "no integer solution", "there are no solutions": "no solution",
    "there is no solution": "no solution", "all reals": "all real numbers", "any real number": "all real numbers",
    "the empty set": "empty set",
}  # fmt: skip
_SETS = {"all real numbers": "\\mathbb{R}", "empty set": "\\emptyset", "infinity": "\\infty"}
_DIGITS = "zero one two three four five six seven eight nine ten eleven twelve"
_SAID = _SETS | {word: str(number) for number, word in enumerate(_DIGITS.split())}
PERCENT = {"percent", "pct", "percents"}
_ABOUT = r"(?:or\s+|i\.?\s?e\.?,?\s+|which is\s+|that is,?\s+)?(?:about|approximately|approx\.?|roughly|around|circa)"
ABOUT = re.compile(rf"\s*(\(?)\s*{_ABOUT}(?![a-z])\s*:?(.*)", re.DOTALL | re.I)
LEAD_IN = re.compile("\\\\text\\{.*(?:(?::|\\bis|\\bare|\\bequals|\u662f|\u4e3a)\\}|\\}:)", re.I)
COUNTS = re.compile(  # words behind a number that change its value, or mean that it is not the whole answer
    r"\b(tens?|dozens?|hundreds?|thousands?|[mbtr]?illions?|percent\w*|pct|or|and|not|if|when|for|where|mod|base|more|less|"
    r"fewer|least|most|than|over|above|below|times|squared|cubed|half|halves|thirds?|quarters?|pairs?|to|negative|minus|"
    r"[ap]\.?m|bce?|north|south|east|west|left|right|clockwise|counterclockwise|anticlockwise)\b|"
    "[\u5341\u767e\u5343\u4e07\u4ebf\u534a\u591a\u500d\u6210\u6298\u4ee5]",
    re.I,
)


def prose(text: str) -> str:
    r"""Words as an atom `\text{...}` in their normal spelling. Words that name a set or a number become that set or number."""
    words = " ".join(_WORD.sub(_folded, text).split()).strip(" .\"'`")
    words = _MEANING.get(words.lower(), words)
    return _SAID.get(words, f"\\text{{{words}}}")


def _folded(word: re.Match[str]) -> str:
    plain, low = word[0], word[0].lower()
    same = low in _COMMON or len(plain) >= 5 or (len(plain) >= 3 and (plain.islower() or plain.istitle()))
    return low if same and (plain.isupper() or plain.islower() or plain.istitle()) else plain
