"""Units: which are the same, and how they convert."""

from __future__ import annotations

from fractions import Fraction

import pytest

from radmoe.grading.units import unit_of


@pytest.mark.parametrize(
    ("a", "b", "times"),
    [
        ("km", "m", 1000),
        ("kilometres", "meter", 1000),
        ("cm^3", "mL", 1),
        ("hours", "min", 60),
        ("km/h", "m s^{-1}", Fraction(5, 18)),
        ("miles per hour", "mph", 1),
        (r"\mu m", "m", Fraction(1, 10**6)),
        ("square feet", "ft^2", 1),
        (r"N\cdot m", "J", 1),
        (r"k\Omega", "ohms", 1000),
        ("dollars", "cents", 100),
        ("kWh", "J", 3_600_000),
        (r"^\circ C", "degrees Celsius", 1),
        ("years", "months", 12),
    ],
)
def test_units_of_one_dimension_convert(a: str, b: str, times: Fraction) -> None:
    left, right = unit_of(a), unit_of(b)
    assert left is not None
    assert right is not None
    assert left.dimension == right.dimension
    assert left.factor / right.factor == times


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("m", "m^2"), ("m", "s"), ("kg", "N"), ("degC", "degF"), ("rad", "degrees"), ("dollars", "euros"), ("years", "days"),
        ("m/s", "m/s^2"), ("mol", "m"),
    ],
)  # fmt: skip
def test_units_of_different_dimensions_do_not(a: str, b: str) -> None:
    left, right = unit_of(a), unit_of(b)
    assert left is not None
    assert right is not None
    assert left.dimension != right.dimension


@pytest.mark.parametrize("text", ["apples", "ways", "", "per", "m per s per s", "cm of rope", "x/y", "m^{99}"])
def test_what_is_no_unit_is_none(text: str) -> None:
    assert unit_of(text) is None


def test_case_tells_milli_from_mega() -> None:
    milli, mega = unit_of("mW"), unit_of("MW")
    assert milli is not None
    assert mega is not None
    assert mega.factor / milli.factor == 10**9
