r"""Normal forms: ornament goes, structure shows, and what may be read in two ways stays as it is."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messy import CLASSES
from radmoe.grading.latex import LONGEST, normal_form, shape_of

WRITTEN = [answer for row in CLASSES for answer in row]
PIECES = [
    r"\frac", r"\sqrt", r"\text", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "1", "2", "12", "0.5", ".", "x", "y", "sin",
    "pi", "cm", "and", "=", "<", r"\le", "+", "-", "*", "/", "^", "_", ",", ";", " ", r"\,", r"\ ", "$", r"\left", r"\right",
    r"\pm", r"\mp", r"\cup", r"\in", r"\circ", r"\%", "%", r"\infty", "|", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", "&",
    "\\", r"\mathrm", r"\text{ cm}", r"\text{8}", r"\overline", "1,234", "word", "The", "is", ":", "!", "'", "\n", r"\approx",
    r"\pmod", r"\operatorname", "e", "000", "\u03c0", r"\degree", r"\begin", r"\end", r"\boxed", "\ud800", "\0",
    r"\pmod{7}", r"\setminus", r"\mathbb{R}", r"\color{red}", "{,}", "0,125", "per cent", "\uff08", "\uff0c", r"\choose", r"\neq",
    r"\underline{", r"\hspace{1em}", r"\ldots", r"\sum_{k=1}^{3}", r"\text{ or }", r"\text{ for }", r"\text{ m/s}", r"\mu", r"\$",
    "(x,y)", "x_1", "\u6216", "\u00bd", "July 4", "2021-03-03", "pm", r"\overline{3}", "!", r"\lg", r"\mid", r"\mod", r"\begin{cases}",
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "kind", "normal"),
    [
        (r"\dfrac12", "number", r"\frac{1}{2}"),
        ("1,234.5", "number", r"\frac{2469}{2}"),
        (r"2\sqrt3", "algebra", r"2\sqrt{3}"),
        ("x^{1.5}", "algebra", r"x^{\frac{3}{2}}"),
        ("3, 2", "list", "2, 3"),
        ("(3, 2)", "()", "(3, 2)"),
        (r"3 \ge x > 2", "(]", "(2, 3]"),
        (r"(3,4)\cup(1,2)", "union", r"(1, 2) \cup (3, 4)"),
        ("x+y=5", "=", "5 = x+y"),
        ("x+y<5", "<", "x+y < 5"),
        ("x=1, y=2", "list", "x=1, y=2"),
        ("No solution.", "text", r"\text{no solution}"),
        ("2 3", "text", "2 3"),
        (r"12_8", "text", "12_{8}"),
        (r"1/2x", "text", "1/2x"),
        (r"2\frac{1}{2}\pi", "text", r"2\frac{1}{2}\pi"),
        ("2^3^4", "text", "2^{3}^{4}"),
        ("1.2.3", "text", "1.2 .3"),
        ("3:2", ":", "3:2"),
        (r"\frac{1}{0}", "algebra", r"\frac{1}{0}"),
        (r"8 \text{ or more}", "text", r"8\text{or more}"),
        ("(1", "text", "(1"),
        (r"\{x : x > 2\}", "()", r"(2, \infty)"),
        (r"\{n \in \mathbb{Z} : n > 2\}", "text", r"\{n\in\mathbb{Z}:n>2\}"),
        ("5 < x < 6", "interval", r"x\in(5, 6)"),
        (r"x \ne 7", r"\setminus", r"\mathbb{R} \setminus \{7\}"),
        (r"\{6, \{4, 5\}\}", "list", r"6, \{4, 5\}"),
        (r"\{\{4, 5\}\}", "set", r"\{\{4, 5\}\}"),
        (r"\{3, 2 \pm \sqrt{5}\}", "list", r"2+\sqrt{5}, 2-\sqrt{5}, 3"),
        (r"\pm 1 \pm \sqrt{2}", "text", r"\pm1\pm\sqrt{2}"),
        (r"17 \pmod 5", "mod", r"2\pmod{5}"),
        (r"n\pi,\ n \in \mathbb{Z}", "family", r"k\pi, k\in\mathbb{Z}"),
        (r"12\text{ cm}", "number", r"12\text{cm}"),
        (r"12\text{ apples}", "number", "12"),
        ("2024-12-31", "text", "2024-12-31"),
        ("6/7/8", "text", "6/7/8"),
        (r"(1,2,\ldots)", "()", r"(1, 2, \ldots)"),
        (r"\begin{bmatrix} 1 & 2 \end{bmatrix}", "matrix 1 2", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\text{Aa}", "text", r"\text{Aa}"),
    ],
)
def test_structure_and_normal_form(answer: str, kind: str, normal: str) -> None:
    shape = shape_of(answer)
    assert shape is not None
    assert (shape.kind, shape.normal) == (kind, normal)


@pytest.mark.parametrize("nothing", ["", " ", "$$", "{}", r"\,", ".", "=", r"\text{}", r"\left.\right."])
def test_ornament_alone_is_nothing(nothing: str) -> None:
    assert normal_form(nothing) is None


def test_of_an_integer_the_last_side_counts() -> None:
    assert normal_form("m + n = 25", integer=True) == "25"
    assert normal_form("m + n = 25") == "25 = m+n"
    assert normal_form(r"p \cdot q = 3 \cdot 7 = 21", integer=True) == "21"
    assert normal_form("25 = m + n", integer=True) == "25"


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (r"3 \cdot 39", "117"),
        (r"\frac{\sqrt{169}}{1}", "13"),
        (r"\binom{9}{2} - 5", "31"),
        (r"117 \pmod{1000}", "117"),
        (r"2117 \bmod 1000", "117"),
        (r"N \equiv 117 \pmod{1000}", "117"),
        (r"117\text{ (mod 1000)}", "117"),
        (r"117\text{ cm}^2", "117"),
        (r"2^{5} + 85", "117"),
    ],
)
def test_arithmetic_residues_and_units_are_the_whole_number_they_give(answer: str, whole: str) -> None:
    assert normal_form(answer, integer=True) == whole


def test_an_answer_without_end_is_a_text() -> None:
    started = time.monotonic()
    for answer in ("9" * 100_000, "{" * 100_000, "(" * LONGEST, "x+" * 50_000, r"\frac" * 80, "(" * 150 + ")" * 150):
        shape = shape_of(answer)
        assert shape is not None
        assert shape.kind == "text"
    assert normal_form("{" * LONGEST) is None
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("answer", WRITTEN)
def test_a_normal_form_is_its_own(answer: str) -> None:
    normal = normal_form(answer)
    assert normal is not None
    assert normal_form(normal) == normal


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.booleans())
@settings(max_examples=1000, deadline=None)
def test_any_text_has_a_normal_form_that_is_its_own(text: str, integer: bool) -> None:
    normal = normal_form(text, integer=integer)
    assert normal is None or normal_form(normal, integer=integer) == normal


ORNAMENT = [
    "{{{}}}", "${}$", " {} ", "{}.", r"\displaystyle {}", r"\({}\)", r"\boxed{{{}}}", "\n{}\n", r"\,{}\;", r"{}\\", "**{}**",
    r"\quad {}", "= {}",
]  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(WRITTEN), st.lists(st.sampled_from(ORNAMENT), max_size=3))
@settings(max_examples=300, deadline=None)
def test_ornament_never_changes_the_normal_form(answer: str, ornament: list[str]) -> None:
    dressed = answer
    for around in ornament:
        dressed = around.replace("{{{}}}", "{" + dressed + "}") if "{{{}}}" in around else around.replace("{}", dressed)
    assert normal_form(dressed) == normal_form(answer)


@pytest.mark.parametrize(
    "answer", ["50 percent", "50 per cent", "50 Per  cent", r"50\text{ per cent}", r"50\%", "50 pct"]
)
def test_percent_is_percent_however_it_is_written(answer: str) -> None:
    shape = shape_of(answer)
    assert shape is not None
    assert (shape.normal, shape.value) == (r"50\%", Fraction(1, 2))
