r"""Multiple choice: the letter that an answer names, however it is written.

`(B)`, `\text{B. the second}`, `The answer is B`, `B (10 GeV)` and a full-width B are B. Several letters are an answer of their
own (`(A) and (B)` and `(A, B)` are `AB`), and what names no letter stays as it is: in "A proton" the A is a word. Where the
letters of the options are known, another letter names nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_DRESS = re.compile(
    r"\\(?:text|math)[a-z]*\s*(?=\{)|\\(?:operatorname|mbox|hbox|boxed|fbox|framebox|underline|uline|emph|bm|boldsymbol|pmb|"
    r"ensuremath)\s*(?=\{)|\\(?:text)?color\s*\{[^{}]*\}|\\hspace\*?\s*\{[^{}]*\}|"
    r"\\(?:left|right|[bB]ig+[lr]?|tiny|small|large|Large|LARGE|huge|Huge|bf|rm|it|displaystyle|q?quad)(?![A-Za-z])|"
    r"\\[,;!:() ]|[$\s*{}~`\"']"
)
_TEXT_COLOUR = re.compile(r"\\textcolor\s*\{[^{}]*\}")
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore)\b,?\s*)?(?:(?:the|my|your)\s+)?(?:(?:final|correct|right|best)\s+)*"
    r"(?:(?:answer|option|choice|letter|ans)\b\s*(?:is\b|[:=.-])?\s*)*(?:[:=]\s*)?",
    re.I,
)
_LABEL = re.compile(
    r"[(\[]\s*([A-Za-z])\s*(?:[)\]]|\Z)|"  # in brackets; or with a sign, a number, a bracket or nothing behind it
    r"([A-Za-z])(?=\s*(?:\Z|[.,;:!)\]=/&(]|-+\s|and\b|or\b|are\b|is\s+(?:correct|right|the)\b)|\s+[-+\\\d])"
)
_ARTICLE = re.compile(r"[AIai]\s+[-+\\\d]")  # "A 10 GeV photon" names no option
_NEXT = re.compile(r"\s*[.)\]]?\s*(?:(?:[,;/&]|and\b|or\b)\s*)*(?:(?:options?|choices?)\s+)?", re.I)
_SEPARATE = re.compile(r"[A-Za-z]\s*(?:\Z|[.,;:!)\]/&]|and\b|or\b|is\b|are\b)")  # "B", "B." and "B and C", not "B = 3"
_IN_BRACKETS = re.compile(r"\s*[(\[]\s*[A-Za-z]\s*[)\]]")
_LIST_IN_BRACKETS = re.compile(r"[(\[]\s*([A-Z](?:(?:\s*(?:[,;/&]|and\b|or\b))+\s*[A-Z]\b)+)\s*[)\]]")
_SET = re.compile(r"[A-J]{2,6}")
_STATED = re.compile(
    r"(?:(?<!\beach )(?<!\bevery )(?<!\bany )(?<!\bno )(?<!\bother )(?<!\bwrong )(?<!\bincorrect )(?<!\bpossible )\banswer|"
    r"(?:\A|[.:;!?-]\s+|\b(?:the|my|your|answer|correct|right|best|final|chosen|selected|only|true|valid|closest|likely|plausible|"
    r"appropriate|suitable|accurate|optimal|remaining|matching)\s+)(?:option|choice))\s*(?:is\b\s*:?|[:=])\s*",
    re.I,
)
# "Option: B" may begin a line without a stop before it. In "(a) The ball" the letter numbers a part.
_OWN_LINE = re.compile(r"(?<![\W_])((?:[^\w\n]|_)*+)\n[\W_]*+(?=(?:option|choice)\b)", re.I)
_MOST_COATS = 10  # what is dressed more often than that stays so; people dress a letter in two or three
_LONGEST_NAMED = 1000  # characters in which "the answer is" names its letters
_NUMBERED = re.compile(r"[(\[]?\s*([a-z])\s*[)\].:]?\s+[A-Za-z]{2}")


def letter_of(answer: str, letters: str = "") -> str | None:
    """The letter that an answer names, or its letters in alphabetical order; else the answer without spaces, brackets and formatting.

    `letters` are those of the options; empty where they are not known.
    """
    plain = _undressed(answer)
    return _letters(plain, letters) or plain.replace(" ", "") or None


def letters_in(answer: str, letters: str = "") -> str:
    """The letter or letters that an answer names; empty if it names none."""
    return _letters(_undressed(answer), letters)


def stated_letter(response: str, letters: str = "", *, whole: bool = True) -> str | None:
    """The letter that a response states: the one named by its last "the answer is", or by the `whole`
    response; None where there is none.

    A whole response is a letter if it has one line, alone or with its option. A line that begins a list of options, or
    that a small letter numbers, is none.
    """
    plain = _undressed(_OWN_LINE.sub(r"\1 ; ", response))
    for stated in reversed(list(_STATED.finditer(plain))):
        if named := _letters(plain[stated.end() : stated.end() + _LONGEST_NAMED], letters):
            return named
    if not whole or len(response.strip().splitlines()) != 1 or _NUMBERED.match(plain):
        return None
    named = _letters(plain, letters)
    following = chr(ord(named[-1]) + 1) if named else ""
    return None if not named or re.search(rf"[(\[\s]{following}[)\].:]", plain) else named


def _letters(plain: str, known: str) -> str:
    """The letters that a text begins with, behind words such as "The answer is"; empty if it begins with none."""
    rest = plain[match.end() :] if (match := _LEAD.match(plain)) else plain
    rest = re.sub(r"\A(?:both|either)\s+", "", rest, flags=re.I)
    if several := _LIST_IN_BRACKETS.match(rest):
        rest = several[1] + rest[several.end() :]
    together = rest.rstrip(" .")
    if _SET.fullmatch(together) and len(set(together)) == len(together):
        return _known(together, known)
    letters, joint = set[str](), ""
    while (label := _LABEL.match(rest)) and not _ARTICLE.match(rest):
        if letters and label[2] and not _SEPARATE.match(rest):
            break
        letters.add((label[1] or label[2]).upper())
        rest = rest[label.end() :]
        following = _NEXT.match(rest)
        joint = following[0].strip(" .)]").lower() if following else ""
        if not joint and not _IN_BRACKETS.match(rest):
            break
        rest = rest[following.end() :] if following else rest
    else:
        if re.search("and|or", joint):  # "A and the rest" names more than a letter
            return ""
    return _known(letters, known)


def _known(letters: Iterable[str], known: str) -> str:
    """The letters in alphabetical order; empty where the options are known and one of the letters is none of theirs."""
    return "".join(sorted(letters)) if not known or set(letters) <= set(known) else ""


def _undressed(answer: str) -> str:
    plain = unicodedata.normalize("NFKC", answer)
    for _ in range(_MOST_COATS):
        before, plain = plain, _DRESS.sub(" ", _TEXT_COLOUR.sub(" ", plain))
        if before == plain:
            break
    return " ".join(plain.split())
