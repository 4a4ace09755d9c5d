r"""Multiple choice: the letter that an answer names, however it is dressed.

`(B)`, `\text{B. the second}`, `The answer is B`, `B (10 GeV)` and a full-width B are B. Several letters are an answer of their
own (`(A) and (B)` is `AB`), and what names no letter stays as it is: in "A proton" the A is a word.
"""

from __future__ import annotations

import re
import unicodedata

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
    r"[(\[]\s*([A-Za-z])\s*[)\]]|"  # in brackets; or with a sign, a number, a bracket or nothing behind it
    r"([A-Za-z])(?=\s*(?:\Z|[.,;:!)\]=/&(]|-+\s|and\b|or\b|are\b|is\s+(?:correct|right|the)\b)|\s+[-+\\\d])"
)
_ARTICLE = re.compile(r"[AIai]\s+[-+\\\d]")  # "A 10 GeV photon" names no option
_NEXT = re.compile(r"\s*[.)\]]?\s*(?:(?:[,;/&]|and\b|or\b)\s*)*(?:(?:options?|choices?)\s+)?", re.I)
_SEPARATE = re.compile(r"[A-Za-z]\s*(?:\Z|[.,;:!)\]/&]|and\b|or\b|is\b|are\b)")  # "B", "B." and "B and C", not "B = 3"
_IN_BRACKETS = re.compile(r"\s*[(\[]\s*[A-Za-z]\s*[)\]]")
_SET = re.compile(r"[A-J]{2,6}")
_STATED = re.compile(r"\b(?:answer|option|choice)\s*(?:is|:|=)\s*", re.I)


def letter_of(answer: str) -> str | None:
    """The letter that an answer names, or its letters in alphabetical order; else the answer without blanks and dress."""
    plain = _undressed(answer)
    return _letters(plain) or plain.replace(" ", "") or None


def stated_letter(response: str) -> str | None:
    """The letter of a response without a box: what its last "the answer is" names, or the whole response; None without."""
    plain = _undressed(response)
    for stated in reversed(list(_STATED.finditer(plain))):
        if letters := _letters(plain[stated.end() :]):
            return letters
    return _letters(plain) or None if len(response.strip().splitlines()) == 1 else None


def _letters(plain: str) -> str:
    """The letters that a text begins with, behind words such as "The answer is"; empty if it begins with none."""
    rest = plain[match.end() :] if (match := _LEAD.match(plain)) else plain
    rest = re.sub(r"\A(?:both|either)\s+", "", rest, flags=re.I)
    together = rest.rstrip(" .")
    if _SET.fullmatch(together) and len(set(together)) == len(together):
        return "".join(sorted(together))
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
    return "".join(sorted(letters))


def _undressed(answer: str) -> str:
    before, plain = None, unicodedata.normalize("NFKC", answer)
    while before != plain:
        before, plain = plain, _DRESS.sub(" ", _TEXT_COLOUR.sub(" ", plain))
    return " ".join(plain.split())
