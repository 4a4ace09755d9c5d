r"""Atoms of a formula read into a tree, which `exact.py` and the algebra process (`verifier.py`) evaluate.

A tree is a tuple: a name, then texts and trees. ("n", "3/2") is a number, ("v", "x_{1}") a variable, ("+", a, b, ...)
and ("*", a, b, ...) sums and products, ("/", a, b), ("^", a, b) and ("-", a) what they look like, ("e",), ("i",) and
("pi",) constants, and everything else a function of its arguments. What can be read in two ways, such as `2 3`, `12_8`,
`1/2x`, `2\frac{3}{4}\pi` or `\ln 3/2`, is refused, and so is any other notation that is not known here.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from radmoe.grading.tokens import arguments_of, atoms

Tree = tuple[Any, ...]

TRIG = {f"\\{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
_ONE_ARGUMENT = TRIG | {
    f"\\{name}"
    for name in ["arcsin", "arccos", "arctan", "arccot", "sinh", "cosh", "tanh", "coth", "ln", "lg", "log", "exp"]
}
_MANY_ARGUMENTS = {"\\gcd", "\\lcm", "\\max", "\\min"}
_GREEK_NAMES = "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega"
_GREEK = {
    f"\\{name}" for name in (*_GREEK_NAMES.split(), "Delta", "Gamma", "Theta", "Lambda", "Sigma", "Phi", "Psi", "Omega")
}
_CONSTANTS = {"\\pi": ("pi",), "e": ("e",), "i": ("i",)}
_CLOSING = {"(": ")", "[": "]", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_FUNCTION_NAMES = {"f", "g", "h"}
_NUMBER = re.compile(r"\d+|\d*\.\d+")
_PERIOD = re.compile(r"\\overline\{(\d+)\}")
_COUNTER = re.compile(r"([A-Za-z])=(.+)", re.DOTALL)
_ARITY = {"\\frac": 2, "\\binom": 2, "\\sqrt": 1}
_DEEPEST = 60


class UnreadableError(Exception):
    """A formula that has two readings, or none."""


def parse(expression: list[str], depth: int = 0, bound: frozenset[str] = frozenset()) -> Tree:
    """The tree of a formula; UnreadableError where there is not exactly one.

    `bound` are letters that a sum counts with, so that `i` is one of them there and not the imaginary unit.
    """
    if depth > _DEEPEST:
        raise UnreadableError
    reader = _Parser(expression, depth, bound)
    tree = reader.sum()
    if reader.at < len(expression):
        raise UnreadableError
    return tree


def variables(tree: Tree) -> set[str]:
    """The names of the variables in a tree, those that a sum or product counts with left out."""
    if tree[0] == "v":
        return {tree[1]}
    inner = [variables(part) for part in tree[1:] if isinstance(part, tuple)]
    names: set[str] = set().union(*inner)
    return names - {tree[1]} if tree[0] in ("sum", "prod") else names


def _script(atom: str) -> str:
    """The content of an exponent or an index."""
    arguments = arguments_of(atom)[2]
    if len(arguments) != 1:
        raise UnreadableError
    return arguments[0]


class _Parser:
    """A cursor over the atoms of one formula. `bars` says how many absolute values are open around it."""

    def __init__(self, expression: list[str], depth: int, bound: frozenset[str]) -> None:
        self.atoms, self.at, self.depth, self.bars, self.bound = expression, 0, depth, 0, bound

    def peek(self) -> str:
        return self.atoms[self.at] if self.at < len(self.atoms) else ""

    def take(self) -> str:
        self.at += 1
        return self.atoms[self.at - 1]

    def inner(self, text: str) -> Tree:
        """The tree of an argument in braces."""
        return parse(atoms(text), self.depth + 1, self.bound)

    def sum(self) -> Tree:
        terms: list[Tree] = []
        while True:
            negative = False
            while self.peek() in ("+", "-"):
                negative ^= self.take() == "-"
            term = self.product()
            terms.append(("-", term) if negative else term)
            if self.peek() not in ("+", "-"):
                break
        return terms[0] if len(terms) == 1 else ("+", *terms)

    def product(self) -> Tree:
        """Factors side by side or joined by dots and strokes. A factor that follows `a/b` without a dot is refused."""
        start = self.at
        tree = self.factor()
        divided = False
        while True:
            sign = self.peek()
            if sign == "\\cdot":
                self.take()
                negative, divided = self.peek() == "-", False
                self.at += negative
                factor = self.factor()
                tree = ("*", tree, ("-", factor) if negative else factor)
            elif sign == "/":
                if divided or (self.applied and not self.atoms[self.at - 1].startswith(")")):
                    raise UnreadableError
                self.take()
                tree, divided = ("/", tree, self.factor()), not self.applied and self.atoms[self.at - 1] != ")"
            elif not self.starts_factor(sign):
                return tree
            else:
                if divided:
                    raise UnreadableError
                tree = self.beside(tree, start)

    def beside(self, tree: Tree, start: int) -> Tree:
        """A product of two neighbours, or a mixed number; UnreadableError for a number that stands behind something."""
        before, sign = self.atoms[self.at - 1], self.peek()
        if _NUMBER.fullmatch(sign) and before not in (")", "]", "!"):
            if not (_NUMBER.fullmatch(before) and self.at - start == 1):
                raise UnreadableError
            return self.mixed(tree, [sign, *self.atoms[self.at + 1 : self.at + 3]])
        if _NUMBER.fullmatch(before) and re.fullmatch(r"\\frac\{\d+\}\{\d+\}", sign):
            if self.at - start != 1:
                raise UnreadableError
            return self.mixed(tree, [sign])
        if before in _FUNCTION_NAMES and sign == "(":
            raise UnreadableError
        if self.applied and before not in (")", "}") and sign in ("(", "[", "|"):
            raise UnreadableError
        return ("*", tree, self.factor())

    def mixed(self, whole: Tree, part: list[str]) -> Tree:
        """`2\\frac{1}{3}` or `2 1/3`, if a proper fraction follows and the term ends behind it."""
        match = re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+)", "".join(part))
        self.at += len(part)
        ended = self.peek() in ("", "+", "-", ")", "\\%")
        if match is None or whole[0] != "n" or "." in self.atoms[self.at - len(part) - 1] or not ended:
            raise UnreadableError
        top, bottom = match[1] or match[3], match[2] or match[4]
        if int(top) >= int(bottom):
            raise UnreadableError
        return ("+", whole, ("n", f"{top}/{bottom}"))

    applied = False  # whether the last factor was a function without brackets around its argument

    def starts_factor(self, sign: str) -> bool:
        if sign == "|":
            return not self.bars
        return bool(sign) and (sign[0].isalnum() or sign[0] == "." or sign in _CLOSING or sign[0] == "\\") and sign not in (
            "\\cdot", "\\rfloor", "\\rceil", "\\%", "\\\\"
        )  # fmt: skip

    def factor(self) -> Tree:
        self.applied = False
        atom = self.peek()
        if not self.starts_factor(atom) and atom != "|":
            raise UnreadableError
        self.take()
        if atom in _ONE_ARGUMENT:
            return self.function(atom)
        return self.behind(self.primary(atom), atom)

    def primary(self, atom: str) -> Tree:
        if _NUMBER.fullmatch(atom) or atom == ".":
            return self.number(atom)
        if atom in _CONSTANTS and atom not in self.bound:
            return _CONSTANTS[atom]
        if atom in _CLOSING:
            tree = self.group(_CLOSING[atom])
            return ("floor", tree) if atom == "\\lfloor" else ("ceil", tree) if atom == "\\lceil" else tree
        if atom == "|":
            self.bars += 1
            tree = self.sum()
            self.bars -= 1
            if self.peek() != "|":
                raise UnreadableError
            self.take()
            return ("abs", tree)
        if (len(atom) == 1 and atom.isalpha() and atom.isascii()) or atom in _GREEK:
            return self.variable(atom)
        if atom in ("\\sum", "\\prod"):
            return self.counted(atom)
        if atom in _MANY_ARGUMENTS:
            return self.listed(atom)
        return self.command(atom)

    def number(self, atom: str) -> Tree:
        r"""A number, which may end in a period: `0.1\overline{6}`."""
        if self.peek() == "." and "." not in atom and self.atoms[self.at + 1 : self.at + 2]:
            atom += self.take()
        period = _PERIOD.fullmatch(self.peek())
        if period is None or "." not in atom:
            if not _NUMBER.fullmatch(atom):
                raise UnreadableError
            return ("n", atom)
        self.take()
        fixed = len(atom.partition(".")[2])
        digits = Fraction(int(period[1]), (10 ** len(period[1]) - 1) * 10**fixed)
        return ("n", str(Fraction(f"0{atom}0") + digits))

    def group(self, closing: str) -> Tree:
        """The tree between two brackets. A bar inside them does not close an absolute value that was opened outside."""
        bars, self.bars = self.bars, 0
        tree = self.sum()
        self.bars = bars
        if self.peek() != closing:
            raise UnreadableError
        self.take()
        return tree

    def variable(self, atom: str) -> Tree:
        name = atom
        if self.peek().startswith("_{"):
            if self.at > 1 and _NUMBER.fullmatch(self.atoms[self.at - 2]) and self.peek() == "_{16}":
                raise UnreadableError  # a hexadecimal number
            name += self.take()
        while self.peek() == "'":
            name += self.take()
        return ("v", name)

    def command(self, atom: str) -> Tree:
        name, index, arguments = arguments_of(atom)
        if name == "\\begin":
            return self.determinant(atom)
        if name == "\\overline" and len(arguments) == 1 and re.fullmatch(r"[A-Za-z ]+", arguments[0]):
            return ("v", atom)
        if name in ("\\vec", "\\hat", "\\tilde") and len(arguments) == 1:
            return ("v", atom)
        if not all(arguments) or len(arguments) != _ARITY.get(name):
            raise UnreadableError
        trees = [self.inner(argument) for argument in arguments]
        if name == "\\frac":
            return ("/", *trees)
        if name == "\\binom":
            return ("binom", *trees)
        return ("root", trees[0], self.inner(index) if index else ("n", "2"))

    def determinant(self, atom: str) -> Tree:
        if not atom.startswith("\\begin{vmatrix}"):
            raise UnreadableError
        rows = [row.split("&") for row in atom[15:-13].split("\\\\")]
        if not all(len(row) == len(rows) <= 4 for row in rows):
            raise UnreadableError
        return ("det", *(("row", *(self.inner(cell) for cell in row)) for row in rows))

    def behind(self, tree: Tree, atom: str) -> Tree:
        """The factor with what follows it: powers, factorials, degrees or a percent sign."""
        powers = 0
        while True:
            sign = self.peek()
            if sign == "^{\\circ}":
                tree = ("*", tree, ("/", ("pi",), ("n", "180")))
            elif sign[:2] == "^{":
                powers += 1
                if powers > 1:
                    raise UnreadableError
                tree = ("^", tree, self.inner(_script(sign)))
            elif sign == "!":
                self.take()
                tree = ("factorial2" if self.peek() == "!" else "factorial", tree)
                if self.peek() != "!":
                    continue
            elif sign == "\\%":
                tree = ("/", tree, ("n", "100"))
            elif sign[:1] in ("_", "^") or (sign == "'" and atom != "'"):
                raise UnreadableError
            else:
                return tree
            self.take()

    def function(self, name: str) -> Tree:
        """A function of one argument, which may be raised to a power and, without brackets, ends before a sign."""
        power: Tree | None = None
        base: Tree | None = None
        while self.peek()[:2] in ("^{", "_{"):
            script = self.take()
            inside = self.inner(_script(script))
            if script[0] == "_" and name == "\\log" and base is None:
                base = inside
            elif script[0] == "^" and power is None:
                power = inside
            else:
                raise UnreadableError
        if power == ("-", ("n", "1")) and name in ("\\sin", "\\cos", "\\tan", "\\cot"):
            name, power = f"\\arc{name[1:]}", None
        elif power is not None and power[0] != "n":
            raise UnreadableError
        argument = self.argument()
        if name == "\\exp":
            tree: Tree = ("^", ("e",), argument)
        elif name == "\\lg":
            tree = ("log", argument, ("n", "10"))
        elif base is not None:
            tree = ("log", argument, base)
        else:
            tree = ("ln" if name == "\\log" else name[1:], argument)
        return tree if power is None else ("^", tree, power)

    def argument(self) -> Tree:
        if self.peek() in ("(", "["):
            tree = self.group(_CLOSING[self.take()])
            if self.peek()[:1] in ("^", "!"):
                raise UnreadableError
            self.applied = False
            return tree
        if self.peek() == "|":
            tree, self.applied = self.factor(), False
            return tree
        start = self.at
        product: Tree | None = None
        while (sign := self.peek()) and self.starts_factor(sign) and sign not in ("(", "[", "|", "\\sum", "\\prod"):
            if sign in _ONE_ARGUMENT:
                if product is None:
                    product = self.factor()
                break
            product = self.factor() if product is None else self.beside(product, start)
        if product is None:
            raise UnreadableError
        self.applied = True
        return product

    def counted(self, name: str) -> Tree:
        """`\\sum_{k=1}^{n}` and `\\prod_{k=1}^{n}` of the product that follows."""
        scripts = {}
        while self.peek()[:2] in ("^{", "_{"):
            script = self.take()
            scripts[script[0]] = _script(script)
        counter = _COUNTER.fullmatch(scripts.get("_", ""))
        if counter is None or "^" not in scripts:
            raise UnreadableError
        low, high = self.inner(counter[2]), self.inner(scripts["^"])
        around, self.bound = self.bound, self.bound | {counter[1]}
        body = self.product()
        self.bound = around
        return ("sum" if name == "\\sum" else "prod", counter[1], low, high, body)

    def listed(self, name: str) -> Tree:
        if self.peek() != "(":
            raise UnreadableError
        trees: list[Tree] = []
        while self.peek() in ("(", ","):
            self.take()
            trees.append(self.sum())
        if self.peek() != ")":
            raise UnreadableError
        self.take()
        return (name[1:], *trees)
