r"""LaTeX as models write it, read into atoms: without spacing, fonts and colours, with braced arguments, one name per sign.

An atom is a sign, a letter, a number, a command with its arguments (`\frac{1}{2}`, `^{2}`, `\text{cm}`) or a matrix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import accumulate

from radmoe.grading.numerals import joined_numbers
from radmoe.grading.prose import ABOUT, PERCENT, prose
from radmoe.grading.unicode_symbols import latex_of
from radmoe.grading.units import BARE, plain_unit, unit_of

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|[A-Za-z]{2,}|\d*\.\d+|\d+|\s+|.", re.DOTALL)
_MATH = re.compile(r"(\\\\)|\\[()\[\]]")
_SWITCHES = (
    "displaystyle textstyle scriptstyle scriptscriptstyle tiny scriptsize footnotesize small normalsize large Large LARGE huge "
    "Huge bf it rm sf tt bfseries itshape mdseries boldmath normalfont centering limits nolimits displaylimits hfill hfil null "
    "relax noindent par strut mathstrut quad qquad thinspace medspace thickspace enspace enskip negthinspace negmedspace "
    "negthickspace allowbreak nobreak nonumber notag qed left right middle big Big bigg Bigg bigl bigr bigm Bigl Bigr Bigm biggl "
    "biggr Biggl Biggr hline"
)
_SILENT = {
    "\\ ",
    "\\\n",
    "\\,",
    "\\;",
    "\\:",
    "\\!",
    "\\>",
    "\\/",
    "$",
    "~",
    *(f"\\{name}" for name in _SWITCHES.split()),
}
_AROUND = re.compile(
    r"\A(?:\\[,;:! ]|\\(?:quad|qquad|displaystyle|textstyle)(?![A-Za-z])|[=\s])+|(?:\\[,;:! ]|\\\\|\\q?quad|[.\s]|\\\Z)+\Z"
)
_SAME = {
    "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom",
    "\\le": "\\leq", "\\leqslant": "\\leq", "\\leqq": "\\leq", "\\lt": "<", "\\ge": "\\geq", "\\geqslant": "\\geq",
    "\\geqq": "\\geq", "\\gt": ">", "\\ne": "\\neq", "\\times": "\\cdot", "\\ast": "\\cdot", "*": "\\cdot", "\\div": "/",
    "\\lbrace": "\\{", "\\rbrace": "\\}", "\\lparen": "(", "\\rparen": ")", "\\lbrack": "[", "\\rbrack": "]",
    "\\langle": "(", "\\rangle": ")", "\\lvert": "|", "\\rvert": "|", "\\vert": "|", "\\varnothing": "\\emptyset",
    "\\wedge": "\\land", "\\vee": "\\lor", "\\colon": ":", "%": "\\%", "\\union": "\\cup", "\\rightarrow": "\\to",
    "\\dots": "\\ldots", "\\cdots": "\\ldots", "\\dotsc": "\\ldots", "\\dotsb": "\\ldots", "\\bar": "\\overline",
    "\\backslash": "\\setminus", "\\bmod": "\\mod", "\\prime": "'", "\\R": "\\mathbb{R}", "\\Z": "\\mathbb{Z}",
    "\\N": "\\mathbb{N}", "\\Q": "\\mathbb{Q}", "\\widehat": "\\hat", "\\overrightarrow": "\\vec", "\\given": "\\mid",
}  # fmt: skip
_ARGUMENTS = {
    "\\frac": 2, "\\binom": 2, "\\sqrt": 1, "\\overline": 1, "\\mathbb": 1, "\\pmod": 1, "\\vec": 1, "\\hat": 1, "\\tilde": 1,
    "\\mathcal": 1, "\\cancel": 1, "^": 1, "_": 1,
}  # fmt: skip
_FONTS = {
    f"\\{name}"
    for name in (
        "mathrm mathbf mathit mathsf mathtt mathnormal boldsymbol bm pmb operatorname boxed fbox framebox underline "
        "uline underbar ensuremath mathord mathop mathbin mathrel smash tcboxmath"
    ).split()
}
_PROSE = {
    f"\\{name}"
    for name in "text textbf textit textrm textnormal textsf texttt textsc textup textsl mbox hbox emph".split()
}
_DROPPED = {
    "\\hspace": 1, "\\vspace": 1, "\\phantom": 1, "\\hphantom": 1, "\\vphantom": 1, "\\tag": 1, "\\label": 1, "\\color": 1,
}  # fmt: skip
_UNWRAPPED = {
    "\\textcolor": 1, "\\colorbox": 1, "\\fcolorbox": 2, "\\style": 1, "\\class": 1, "\\href": 1, "\\htmlStyle": 1,
    "\\bbox": 0,
}  # fmt: skip
_BRACED = {"\\underbrace", "\\overbrace"}
_SKIPS = {"\\kern", "\\mkern", "\\hskip", "\\mskip"}
_NAMED = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp sqrt pi infty lcm gcd max min det"
_FUNCTIONS = set(_NAMED.split())
_STOP = {"the", "is", "of", "as", "an"}
_CONJUNCTIONS = {"and": "\\land", "or": "\\lor", ", and": "\\land", ", or": "\\lor", ",": ",", ";": ";", "mod": "\\mod"}
_CONDITIONS = {"for", "where", "with", "for all", "for any", "for every", "for some", "for integer", "for integers"}
_ALONE = re.compile(r"[A-Za-z\"'][A-Za-z'\- ,.!\"]*")
_LONG_WORD = re.compile(r"[A-Za-z]{3,}|[Nn][Oo]")
_COUNTED = re.compile(r"\s*([-+]?[\d.,]*\d)\s*([A-Za-z\u4e00-\u9fff].*)", re.DOTALL)
_PER_CENT = re.compile(r"(?<![A-Za-z\\])per\s+cent(?![A-Za-z])", re.I)
_MODULO = re.compile(r"\s*\(?\s*mod(?:ulo)?\s+(\S+?)\s*\)?\s*")
_ENVIRONMENT = re.compile(r"(\\begin\{[a-z]+\})(.*)(\\end\{[a-z]+\})", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DIGITS = re.compile(r"\.?\d")
_MATRIX = {"bmatrix": "pmatrix", "matrix": "pmatrix", "smallmatrix": "pmatrix", "array": "array", "aligned": "cases"}
_BARE_UNIT = re.compile(
    r"(.*[\d}])\s+((?:[A-Za-z\u03bc]+|\\mu )[A-Za-z]*(?:\s?/\s?[A-Za-z]+(?:\^?\{?-?\d\}?)?)+)", re.DOTALL
)


def atoms(text: str) -> list[str]:
    """An answer's atoms, in order. Joining them and reading that again gives the same atoms."""
    text = _PER_CENT.sub("percent", undressed(text))
    words = set(re.findall(r"[A-Za-z]+", text.lower()))
    if _ALONE.fullmatch(text) and _LONG_WORD.search(text) and not words & (_FUNCTIONS | {"infinity"}):
        return [prose(text)]
    if (bare := _BARE_UNIT.fullmatch(text)) and unit_of(bare[2]):
        text = f"{bare[1]}\\text{{{bare[2]}}}"
    return _Reader(_TOKEN.findall(joined_numbers(text))).read()


def join(expression: Iterable[str]) -> str:
    """Atoms as LaTeX, with a space only where two would run together."""
    out = ""
    for atom in expression:
        run = (out[-1:].isalpha() and atom[:1].isalpha()) or (out[-1:].isdigit() and _DIGITS.match(atom))
        out += (" " if run else "") + atom
    return out


def arguments_of(atom: str) -> tuple[str, str, list[str]]:
    r"""An atom's command, its argument in square brackets, and those in braces: `\sqrt`, `3`, [`x`] of `\sqrt[3]{x}`."""
    name, _, index = atom.partition("{")[0].partition("[")
    arguments, depth, start = list[str](), 0, 0
    for sign in _BRACE.finditer(atom):
        if sign[0] == "{":
            depth += 1
            start = start if depth > 1 else sign.end()
        elif sign[0] == "}":
            depth -= 1
            if depth == 0:
                arguments.append(atom[start : sign.start()])
    return name, index.removesuffix("]"), arguments


def rewrite(atom: str, change: Callable[[list[str]], list[str]]) -> str:
    """An atom with its arguments, or the inside of a matrix, changed."""
    if matrix := _ENVIRONMENT.fullmatch(atom):
        return f"{matrix[1]}{join(change(atoms(matrix[2])))}{matrix[3]}"
    name, _, arguments = arguments_of(atom)
    if name not in _ARGUMENTS:
        return atom
    return atom.partition("{")[0] + "".join(f"{{{join(change(atoms(argument)))}}}" for argument in arguments)


def undressed(text: str) -> str:
    """The text in ASCII without formatting that encloses all of it: spaces, dollars, stars, a full stop, braces, a box."""
    text = _MATH.sub(lambda sign: sign[1] or " ", latex_of(text))
    before = None
    while before != text:
        before = text
        text = _AROUND.sub("", text.strip(" $*\n\t~`"))
        opened = re.match(r"\\(?:boxed|fbox)\s*\{|\{", text)
        inside = text[opened.end() : -1] if opened and text[-1] == "}" else ""
        depths = accumulate((sign == "{") - (sign == "}") for sign in inside)
        if inside and min(depths) >= 0 and inside.count("{") == inside.count("}"):
            text = inside
    return text


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
            is_prose = apart and token.isalpha() and token.isascii() and (len(token) > 3 or token.lower() in _STOP)
            expression += self._word(token, expression, is_prose) if is_prose else self._atom(token, expression)
            if len(expression) > 1 and expression[-1].startswith("\\text{") and expression[-2].startswith("\\text{"):
                expression[-2:] = [prose(f"{expression[-2][6:-1]} {expression[-1][6:-1]}")]
        return _with_residue(_with_infix(expression))

    def _atom(self, token: str, before: list[str]) -> list[str]:
        token = _SAME.get(token, token)
        if token.isspace() or token in _SILENT:
            if token in ("\\left", "\\right") and self.left and self.left[-1] == ".":
                self.left.pop()
            return []
        if token in _DROPPED or token in _UNWRAPPED or token in _SKIPS or token in _BRACED:
            return self._dressed(token)
        if token == "{":
            return self.read("}")
        if token == "\\not":
            return [{"=": "\\neq", "\\in": "\\notin"}.get(sign, f"\\not{sign}")] if (sign := self._pop()) else []
        if token in ("\\degree", "\\deg"):
            return ["^{\\circ}"]
        if token in _FONTS or token in _PROSE:
            return self._font(token, self._raw(), before)
        if token == "\\begin":
            return [self._environment()]
        if token in _ARGUMENTS:
            return [self._command(token)]
        if token[0].isalpha() and len(token) > 1 and token.isascii():
            return self._word(token, before)
        return [token]

    def _pop(self) -> str:
        return _SAME.get(sign := self._next(), sign) and _SAME.get(token := self.left.pop(), token)

    def _dressed(self, token: str) -> list[str]:
        """Reads a formatting command: nothing for spacing and invisible things, the content of a coloured one."""
        if token in _SKIPS:
            while self.left and re.fullmatch(r"\s+|-|[\d.]+", self.left[-1]):
                self.left.pop()
            if self.left and self.left[-1] in ("em", "ex", "pt", "mu", "cm", "mm", "in"):
                self.left.pop()
            return []
        if token in _BRACED:
            inside = self._raw()
            if self._next() in ("_", "^"):
                self.left.pop()
                self._raw()
            return _Reader(_TOKEN.findall(inside)).read()
        if self._next() == "[":
            while self.left and self.left.pop() != "]":
                pass
        for _ in range(_DROPPED.get(token) or _UNWRAPPED[token]):
            self._raw()
        return _Reader(_TOKEN.findall(self._raw())).read() if token in _UNWRAPPED else []

    def _word(self, word: str, before: list[str], is_prose: bool = False) -> list[str]:
        """A word without a backslash: a function, a unit, a conjunction, prose, or a product of letters."""
        low, counted = word.lower(), bool(before) and before[-1][-1:].isdigit()
        if low == "min" and counted:
            return ["\\text{min}"]
        if low in _FUNCTIONS:
            return self._atom(f"\\{low}", before)
        if low in ("infinity", "inf"):
            return ["\\infty"]
        if low in _CONJUNCTIONS:
            return [_CONJUNCTIONS[low]]
        if low in PERCENT:
            return ["\\%"]
        if is_prose and ABOUT.fullmatch(word):
            return ["\\approx"]
        return [prose(word)] if is_prose or word in BARE or low in BARE else list(word)

    def _font(self, command: str, inside: str, before: list[str]) -> list[str]:
        """Reads a font command: prose stays prose, and other content is read as mathematics."""
        words, plain = re.findall(r"[A-Za-z]+", inside), inside.strip()
        if plain.lower() in PERCENT:
            return ["\\%"]
        if before and unit_of(plain):
            return [f"\\text{{{plain_unit(plain)}}}"]
        if about := ABOUT.fullmatch(inside):
            return [*about[1], "\\approx", *_Reader(_TOKEN.findall(about[2])).read()]
        if modulo := _MODULO.fullmatch(inside):
            return [f"\\pmod{{{join(atoms(modulo[1]))}}}"]
        if plain in _CONJUNCTIONS:
            return [_CONJUNCTIONS[plain]]
        if before and plain.lower() in _CONDITIONS:
            return ["\\for"]
        if (command in _FONTS and not (plain.isalpha() and len(plain) > 1)) or all(len(word) == 1 for word in words):
            return _Reader(_TOKEN.findall(inside)).read() if plain.isascii() else [prose(inside)]
        if len(words) == 1 and plain == words[0] and plain.lower() in _FUNCTIONS:
            return self._word(plain, before)
        if counted := _COUNTED.fullmatch(inside):
            return [*atoms(counted[1]), *self._font("\\text", counted[2], [counted[1]])]
        return [prose(re.sub(r"[\\${}]", " ", inside))]

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
        return join(self._atom(token, []))

    def _environment(self) -> str:
        name = self._raw()
        if name == "array" and self._next() == "{":
            self._raw()
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


def _with_infix(expression: list[str]) -> list[str]:
    r"""`a \over b` and `n \choose k`, between the nearest brackets, as `\frac{a}{b}` and `\binom{n}{k}`."""
    names = {"\\over": "\\frac", "\\choose": "\\binom"}
    at = next((i for i, atom in enumerate(expression) if atom in names), None)
    if at is None:
        return expression
    start, stop, depth = at, at + 1, 0
    while start > 0 and (depth or expression[start - 1] not in ("(", "[", "\\{")):
        start -= 1
        depth += (expression[start] in (")", "]", "\\}")) - (expression[start] in ("(", "[", "\\{"))
    while stop < len(expression) and (depth or expression[stop] not in (")", "]", "\\}")):
        depth += (expression[stop] in ("(", "[", "\\{")) - (expression[stop] in (")", "]", "\\}"))
        stop += 1
    top, bottom = join(expression[start:at]), join(expression[at + 1 : stop])
    return [*expression[:start], f"{names[expression[at]]}{{{top}}}{{{bottom}}}", *_with_infix(expression[stop:])]


def _with_residue(expression: list[str]) -> list[str]:
    r"""`a \mod m` and `a (\mod m)` as `a \pmod{m}`."""
    if "\\mod" not in expression:
        return expression
    at = expression.index("\\mod")
    rest = expression[at + 1 :]
    if at and expression[at - 1] == "(" and ")" in rest:
        stop = rest.index(")")
        return [*expression[: at - 1], f"\\pmod{{{join(rest[:stop])}}}", *_with_residue(rest[stop + 1 :])]
    stop = next(
        (i for i, atom in enumerate(rest) if atom in (",", ";", ")", "]", "\\}", "\\land", "\\lor", "=")), len(rest)
    )
    return [*expression[:at], f"\\pmod{{{join(rest[:stop])}}}", *_with_residue(rest[stop:])]
