r"""Unicode symbols as the LaTeX that they stand for: full-width forms, Chinese punctuation, Greek, roots, exponents.

A full-width comma separates a list and never groups thousands, so it becomes a comma and a blank. Chinese words become
`\text{...}`, except for the conjunctions, which separate as `or` and `and` do.
"""

from __future__ import annotations

import re
import unicodedata

_WRITTEN = {
    "-": "\u2212\u2013\u2014\u2010\u2011\ufe63", "'": "\u2019\u2018\u2032\u02b9", '"': "\u201c\u201d\u2033\u300c\u300d",
    " ": "\u00a0\u202f\u2009\u2002\u2003\u2005\u200a\u3000", "": "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\ufeff\ufe0f",
    "/": "\u2044\u2215", ":": "\u2236\u2237", "*": "\u2217\u204e", "|": "\u2223\u2758", ", ": "\uff0c\u3001\uff64\u060c",
    "; ": "\uff1b", ".": "\u3002\uff61", "\\cdot ": "\u00d7\u00b7\u22c5\u2219\u2022\u30fb", "\\div ": "\u00f7",
    "\\sqrt ": "\u221a", "\\sqrt[3]": "\u221b", "\\sqrt[4]": "\u221c", "\\infty ": "\u221e", "^\\circ ": "\u00b0\u02da\u00ba",
    "^\\circ C": "\u2103", "^\\circ F": "\u2109", "\\leq ": "\u2264\u2a7d\u2266", "\\geq ": "\u2265\u2a7e\u2267",
    "\\neq ": "\u2260", "\\equiv ": "\u2261", "\\approx ": "\u2248\u2243\u2245\u2252", "\\cup ": "\u222a", "\\cap ": "\u2229",
    "\\in ": "\u2208", "\\setminus ": "\u2216\u29f5", "\\pm ": "\u00b1", "\\mp ": "\u2213", "\\emptyset ": "\u2205\u00d8",
    "\\to ": "\u2192", "\\Rightarrow ": "\u21d2", "\\land ": "\u2227", "\\lor ": "\u2228", "\\ldots ": "\u2026\u22ef",
    "\\lfloor ": "\u230a", "\\rfloor ": "\u230b", "\\lceil ": "\u2308", "\\rceil ": "\u2309", "(": "\u27e8\u3008\u2329",
    ")": "\u27e9\u3009\u232a", "[": "\u3010\u3014", "]": "\u3011\u3015", "\\sum ": "\u2211", "\\prod ": "\u220f",
    "\\angle ": "\u2220", "\\triangle ": "\u25b3\u2206", "\\mathbb{R}": "\u211d", "\\mathbb{Z}": "\u2124",
    "\\mathbb{Q}": "\u211a", "\\mathbb{N}": "\u2115", "\\mathbb{C}": "\u2102", "\\Omega ": "\u2126\u03a9", "\\mu ": "\u00b5",
    "\\therefore ": "\u2234", "\\text{ or }": "\u6216", "\\text{ and }": "\u548c\u4e14\u4e0e",
}  # fmt: skip
_GREEK = {
    unicodedata.lookup(f"GREEK SMALL LETTER {name.upper()}"): f"\\{name.replace('lamda', 'lambda')} "
    for name in "alpha beta gamma delta epsilon theta lamda mu pi rho sigma tau phi omega xi eta zeta kappa chi psi nu".split()
} | {"\u03d5": "\\phi ", "\u03d1": "\\theta ", "\u0394": "\\Delta ", "\u03a3": "\\Sigma ", "\u03a0": "\\Pi "}
_FULL_WIDTH = {chr(0xFF01 + i): chr(0x21 + i) for i in range(0x5E)}
_TABLE = _FULL_WIDTH | _GREEK | {sign: latex for latex, signs in _WRITTEN.items() for sign in signs}
_OUTSIDE = re.compile(r"[^\x00-\x7f]")
_RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207f\u2071"
_LOWERED = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089\u2090\u2099\u1d62"
_EXPONENT, _INDEX = re.compile(f"[{_RAISED}]+"), re.compile(f"[{_LOWERED}]+")
_FRACTION = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_CHINESE = re.compile(r"\s*[\u4e00-\u9fff]+")


def latex_of(text: str) -> str:
    """The text in ASCII where its signs have a LaTeX name. Letters of other scripts stay as they are."""
    if text.isascii():
        return text
    text = _FRACTION.sub(_fraction, text)
    for pattern, sign in ((_EXPONENT, "^"), (_INDEX, "_")):
        text = pattern.sub(lambda run, sign=sign: f"{sign}{{{_plain(run[0])}}}", text)  # type: ignore[misc]
    text = _OUTSIDE.sub(lambda sign: _TABLE[sign[0]] if sign[0] in _TABLE else _letter(sign[0]), text)
    return _CHINESE.sub(lambda words: f"\\text{{ {words[0].strip()}}}", text)


def _fraction(sign: re.Match[str]) -> str:
    top, _, bottom = _plain(sign[0]).partition("\u2044")
    return f"\\frac{{{top}}}{{{bottom}}} "


def _plain(signs: str) -> str:
    """Raised and lowered digits, and fractions, in plain digits."""
    return unicodedata.normalize("NFKC", signs).replace("\u2212", "-")


def _letter(sign: str) -> str:
    """A mathematical letter (an italic x, say) as the plain one; anything else as it is."""
    plain = unicodedata.normalize("NFKC", sign)
    return plain if len(plain) == 1 and plain.isascii() and plain.isalnum() else sign
