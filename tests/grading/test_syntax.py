r"""Formulas: one tree, its value where that is rational, and no reading where there are two."""

from __future__ import annotations

from fractions import Fraction

import pytest

from radmoe.grading.exact import exact
from radmoe.grading.syntax import UnreadableError, parse, variables
from radmoe.grading.tokens import atoms


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (r"2\cdot 35 - 4", 66),
        (r"-3^2", -9),
        (r"2^{3^{2}}", 512),
        (r"\frac{\frac{1}{2}}{3}", Fraction(1, 6)),
        (r"6/4/(1/2)", None),
        (r"6/4", Fraction(3, 2)),
        (r"-2\frac{1}{4} + 1", Fraction(-5, 4)),
        (r"3 1/5", Fraction(16, 5)),
        (r"\sqrt[3]{-\frac{8}{27}}", Fraction(-2, 3)),
        (r"27^{2/3}", 9),
        (r"(-8)^{1/3}", None),
        (r"5!!", 15),
        (r"3!4!", 144),
        (r"\binom{6}{3}", 20),
        (r"\lfloor -7/2 \rfloor", -4),
        (r"||-3|-5|", 2),
        (r"\sum_{i=1}^{4} i^2", 30),
        (r"\prod_{k=2}^{4} \frac{k}{k-1}", 4),
        (r"\gcd(12, 18) + \max(1, 2)", 8),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0^0", None),
        (r"\frac{1}{1-1}", None),
        (r"9^{9^{9}}", None),
        (r"x+1", None),
        (r"\sqrt{2}", None),
    ],
)
def test_a_rational_value_is_worked_out_exactly(formula: str, value: Fraction | int | None) -> None:
    try:
        assert exact(parse(atoms(formula))) == value
    except UnreadableError:
        assert value is None


@pytest.mark.parametrize(
    "formula",
    [
        "2 3", "1/2x", "a/b/c", r"2\frac{3}{4}\pi", r"3\frac{5}{4}", r"12_8", "2^3^4", r"\ln 3/2", r"\sin x(y+1)", "f(x+1)", "1F_{16}",
        r"\sin(x)^2", "5x3", "(1", "x+", r"\frac{1}{}", r"\sum k", "1.2.3", r"\unknown{3}", "|x", "3'",
    ],
)  # fmt: skip
def test_what_has_two_readings_or_none_is_refused(formula: str) -> None:
    with pytest.raises(UnreadableError):
        parse(atoms(formula))


def test_letters_are_variables_and_counters_are_not() -> None:
    assert variables(parse(atoms(r"\frac{x_1 + \alpha}{e^{i\pi}} + B'"))) == {"x_{1}", r"\alpha", "B'"}
    assert variables(parse(atoms(r"\sum_{i=1}^{n} i a"))) == {"n", "a"}


def test_functions_take_the_factors_that_follow_them() -> None:
    assert parse(atoms(r"\sin 2x\cos y")) == parse(atoms(r"(\sin(2x))\cdot(\cos(y))"))
    assert parse(atoms(r"\log_{2} 8 + 1")) == parse(atoms(r"(\log_{2}(8)) + 1"))
    assert parse(atoms(r"\tan^{-1} x")) == parse(atoms(r"\arctan(x)"))
    assert parse(atoms(r"\sin^2 x")) == parse(atoms(r"(\sin x)^2"))
