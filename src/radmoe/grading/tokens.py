r"""LaTeX as models write it, read into atoms: without spacing and fonts, with braced arguments and one name per sign.

An atom is a sign, a letter, a number, a command with its arguments (`\frac{1}{2}`, `^{2}`, `\text{cm}`) or a matrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import accumulate

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|[A-Za-z]{2,}|\d*\.\d+|\d+|\s+|.", re.DOTALL)
_UNICODE = {
    "\u2212": "-", "\u2013": "-", "\u00d7": "\\cdot ", "\u00b7": "\\cdot ", "\u22c5": "\\cdot ", "\u03c0": "\\pi ",
    "\u221a": "\\sqrt ", "\u221e": "\\infty ", "\u00b0": "^\\circ ", "\u2264": "\\leq ", "\u2265": "\\geq ",
    "\u222a": "\\cup ", "\u2208": "\\in ", "\u00b1": "\\pm ", "\u2248": "\\approx ", "\u00b2": "^2 ", "\u00b3": "^3 ",
    "\u00bd": "\\frac12 ", "\u2205": "\\emptyset ", "\u00a0": " ", "\u202f": " ", "\u2009": " ",
}  # fmt: skip
_MATH = re.compile(r"(\\\\)|\\[()\[\]]")
_AROUND = re.compile(
    r"\A(?:\\[,;:! ]|\\(?:quad|qquad|displaystyle|textstyle)(?![A-Za-z])|[=\s])+|(?:\\[,;:! ]|\\\\|\\q?quad|[.\s])+\Z"
)
_GAP = r"(?:\{,\}|\\[,! ],?|,\\!|,| )"
_GROUPED = re.compile(rf"(?<![\d._^])(?<!(?<!\\),)(?<!\d[, ])\d{{1,3}}(?:{_GAP}\d{{3}})+(?!\d|{_GAP}\d|,\S)")
_GAPS = re.compile(r"[^\d]+")
_SPACING = (
    "\\, \\; \\: \\! \\quad \\qquad \\thinspace \\displaystyle \\textstyle \\left \\right \\middle "
    "\\big \\Big \\bigg \\Bigg \\bigl \\bigr \\Bigl \\Bigr \\limits \\rm \\bf $ ~"
)
_SILENT = {"\\ ", "\\\n", *_SPACING.split()}
_SAME = {
    "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom",
    "\\le": "\\leq", "\\leqslant": "\\leq", "\\lt": "<", "\\ge": "\\geq", "\\geqslant": "\\geq", "\\gt": ">",
    "\\ne": "\\neq", "\\times": "\\cdot", "\\ast": "\\cdot", "*": "\\cdot", "\\div": "/", "\\lbrace": "\\{",
    "\\rbrace": "\\}", "\\lparen": "(", "\\rparen": ")", "\\lbrack": "[", "\\rbrack": "]", "\\langle": "(",
    "\\rangle": ")", "\\lvert": "|", "\\rvert": "|", "\\vert": "|", "\\varnothing": "\\emptyset", "\\land": ",",
    "\\lor": ",", "\\colon": ":", "\\mathbin": "\\cdot", "%": "\\%", "\\union": "\\cup", "\\rightarrow": "\\to",
}  # fmt: skip
_ARGUMENTS = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1, "\\overline": 1, "\\mathbb": 1, "\\pmod": 1, "^": 1, "_": 1}
_FONTS = {"\\mathrm", "\\mathbf", "\\mathit", "\\mathsf", "\\boldsymbol", "\\bm", "\\operatorname", "\\boxed", "\\fbox"}
_PROSE = {"\\text", "\\textbf", "\\textit", "\\textrm", "\\textnormal", "\\mbox", "\\hbox", "\\emph"}
_NAMED = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp sqrt pi infty lcm gcd max min det"
_FUNCTIONS = set(_NAMED.split())
_MEASURES = (
    "cm mm km kg ft ml mi lb meter meters metre metres inch inches foot feet mile miles yard yards second seconds minute "
    "minutes hour hours day days week weeks year years degree degrees radian radians unit units dollar dollars cent cents "
    "gram grams liter liters litre litres mph rad square cubic sq cu hr hrs"
)
_UNITS = set(_MEASURES.split())
_STOP = {"the", "is", "of", "as", "an"}
_SHORT_UNITS = set("mshgLNJWVKCF")
_ALONE = re.compile(r"[A-Za-z][A-Za-z'\- ,.!]*")
_LONG_WORD = re.compile(r"[A-Za-z]{3,}|[Nn][Oo]")
_COUNTED = re.compile(r"\s*([-+]?[\d.,]*\d)\s*([A-Za-z].*)", re.DOTALL)
_ENVIRONMENT = re.compile(r"(\\begin\{[a-z]+\})(.*)(\\end\{[a-z]+\})", re.DOTALL)
_DIGITS = re.compile(r"\.?\d")
_MATRIX = {"bmatrix": "pmatrix", "matrix": "pmatrix", "smallmatrix": "pmatrix"}

TRIG = {f"\\{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
WORKABLE = re.compile(
    r"(?:\\(?:frac|sqrt|binom|cdot|pi|infty|circ|(?:sin|cos|tan|cot|sec|csc)h?|arc(?:sin|cos|tan)|log|ln|exp|[lr]floor|"
    r"[lr]ceil|sum|prod|(?:begin|end)\{[pv]matrix\}|alpha|beta|gamma|delta|epsilon|theta|lambda|mu|phi|varphi|rho|sigma|"
    r"tau|omega|\\)(?![A-Za-z])|[0-9A-Za-z+\-/()\[\]|!^_{}&= .])+"
)
NUMERIC = re.compile(r"(?:\\(?:frac|sqrt|binom|cdot|pi)(?![A-Za-z])|[0-9+\-/()!^{} .])+")


def atoms(text: str) -> list[str]:
    """An answer's atoms, in order. Joining them and reading that again gives the same atoms."""
    text = _MATH.sub(lambda sign: sign[1] or " ", text)
    for sign, name in _UNICODE.items():
        text = text.replace(sign, name)
    text = _undressed(text)
    words = set(re.findall(r"[A-Za-z]+", text))
    if _ALONE.fullmatch(text) and _LONG_WORD.search(text) and not words & (_FUNCTIONS | {"infinity"}):
        return [_prose(text)]
    text = _GROUPED.sub(lambda number: number[0] if _depth(text, number.start()) else _GAPS.sub("", number[0]), text)
    return _Reader(_TOKEN.findall(text)).read()


def join(expression: Iterable[str]) -> str:
    """Atoms as LaTeX, with a space only where two would run together."""
    out = ""
    for atom in expression:
        run = (out[-1:].isalpha() and atom[:1].isalpha()) or (out[-1:].isdigit() and _DIGITS.match(atom))
        out += (" " if run else "") + atom
    return out


def rewrite(atom: str, change: Callable[[list[str]], list[str]]) -> str:
    """An atom with its arguments, or the inside of a matrix, changed."""
    if matrix := _ENVIRONMENT.fullmatch(atom):
        return f"{matrix[1]}{join(change(atoms(matrix[2])))}{matrix[3]}"
    head = atom.partition("{")[0]
    if head.partition("[")[0] not in _ARGUMENTS:
        return atom
    out, depth, start = head, 0, 0
    for at, sign in enumerate(atom):
        if sign == "{":
            depth += 1
            start = start if depth > 1 else at + 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                out += f"{{{join(change(atoms(atom[start:at])))}}}"
    return out


def _undressed(text: str) -> str:
    """The text without what encloses all of it: spacing, dollars, stars, a full stop, braces, a box."""
    before = None
    while before != text:
        before = text
        text = _AROUND.sub("", text.strip(" $*\n\t~"))
        inside = (
            text[text.find("{") + 1 : -1] if text.startswith(("{", "\\boxed{", "\\fbox{")) and text[-1] == "}" else ""
        )
        depths = accumulate((sign == "{") - (sign == "}") for sign in inside)
        if inside and min(depths) >= 0 and inside.count("{") == inside.count("}"):
            text = inside
    return text


def _prose(text: str) -> str:
    return f"\\text{{{' '.join(text.casefold().split()).strip(' .')}}}"


def _depth(text: str, stop: int) -> int:
    """How many brackets of a tuple or set are open at a place. Inside them a comma separates."""
    before = text[:stop]
    return sum(map(before.count, ("(", "[", "\\{"))) - sum(map(before.count, (")", "]", "\\}")))


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.left = tokens[::-1]

    def read(self, until: str | None = None) -> list[str]:
        """Atoms up to a token, which is consumed too, or to the end."""
        expression: list[str] = []
        token, apart = " ", True
        while self.left:
            token, apart = self.left.pop(), token.isspace()
            if token == until:
                break
            is_prose = apart and token.isalpha() and (len(token) > 3 or token.lower() in _STOP)
            expression += self._word(token, is_prose) if is_prose else self._atom(token, bool(expression))
            if len(expression) > 1 and expression[-1].startswith("\\text{") and expression[-2].startswith("\\text{"):
                expression[-2:] = [_prose(f"{expression[-2][6:-1]} {expression[-1][6:-1]}")]
        return expression

    def _atom(self, token: str, follows: bool) -> list[str]:
        token = _SAME.get(token, token)
        if token.isspace() or token in _SILENT:
            if token in ("\\left", "\\right") and self.left and self.left[-1] == ".":
                self.left.pop()
            return []
        if token == "{":
            return self.read("}")
        if token in ("\\degree", "\\deg"):
            return ["^{\\circ}"]
        if token in _FONTS or token in _PROSE:
            return self._font(token, self._raw(), follows)
        if token == "\\begin":
            return [self._environment()]
        if token in _ARGUMENTS:
            return [self._command(token)]
        if token[0].isalpha() and len(token) > 1:
            return self._word(token)
        return [token]

    def _word(self, word: str, is_prose: bool = False) -> list[str]:
        """A word without a backslash: a function, a unit, a conjunction, prose, or a product of letters."""
        low = word.lower()
        if low in _FUNCTIONS:
            return self._atom(f"\\{low}", True)
        if low in ("infinity", "inf"):
            return ["\\infty"]
        if low in ("and", "or"):
            return [","]
        return [_prose(word)] if is_prose or low in _UNITS else list(word)

    def _font(self, command: str, inside: str, follows: bool) -> list[str]:
        """Prose stays prose; what is set in another font only for looks is read as mathematics."""
        words, plain = re.findall(r"[A-Za-z]+", inside), inside.strip()
        if follows and plain in _SHORT_UNITS:
            return [_prose(plain)]
        if (command in _FONTS and not (plain.isalpha() and len(plain) > 1)) or all(len(word) == 1 for word in words):
            return _Reader(_TOKEN.findall(inside)).read()
        if len(words) == 1 and plain == words[0] and (plain.lower() in _FUNCTIONS or plain.lower() in ("and", "or")):
            return self._word(plain)
        if counted := _COUNTED.fullmatch(inside):
            return [*atoms(counted[1]), _prose(counted[2])]
        return [_prose(re.sub(r"[\\${}]", " ", inside))]

    def _command(self, name: str) -> str:
        index = ""
        if name == "\\sqrt" and self._next() == "[" and "]" in self.left:
            self.left.pop()
            index = join(self.read("]"))
            index = "" if index == "2" else f"[{index}]"
        arguments = [self._argument(name) for _ in range(_ARGUMENTS[name])]
        return name + index + "".join(f"{{{argument}}}" for argument in arguments)

    def _argument(self, name: str) -> str:
        """The next argument: a group, or a digit of `\\frac12`, the number of `^10`, the brackets of `\\sqrt(3)`."""
        if not (token := self._next()):
            return ""
        self.left.pop()
        if token == "{":
            return join(self.read("}"))
        if token == "(" and name == "\\sqrt":
            return join(self.read(")"))
        if token == "-" and name == "^":
            return "-" + self._argument(name)
        if len(token) > 1 and (token[0].isalpha() or (token.isdigit() and name in ("\\frac", "\\binom"))):
            self.left.append(token[1:])
            return token[0]
        return join(self._atom(token, False))

    def _environment(self) -> str:
        name = self._raw()
        inside = self.read("\\end")
        self._raw()
        while inside and inside[-1] == "\\\\":
            inside.pop()
        name = _MATRIX.get(name, name)
        return f"\\begin{{{name}}}{join(inside)}\\end{{{name}}}"

    def _next(self) -> str:
        """The next token that is not spacing, without consuming it; empty at the end."""
        while self.left and (self.left[-1].isspace() or self.left[-1] in _SILENT):
            self.left.pop()
        return self.left[-1] if self.left else ""

    def _raw(self) -> str:
        """The next group as written, without its braces."""
        if self._next() != "{":
            return self.left.pop() if self.left else ""
        depth, inside = 0, []
        while self.left:
            token = self.left.pop()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                break
            inside.append(token)
        return "".join(inside[1:])
