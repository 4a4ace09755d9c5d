"""What rounding allows: spans must hold every number they stand for."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from radmoe_studies.audit.check import compare
from radmoe_studies.audit.spans import Span, count, counts, read, unit, weighted

numbers = st.floats(-100, 100).filter(lambda x: abs(x) > 1e-3)
places = st.integers(0, 3)
NOISE = 1e-9


def printed(x: float, digits: int) -> str:
    return f"{x:.{digits}f}"


@given(numbers, places)
def test_a_printed_figure_stands_for_what_was_rounded(x: float, digits: int) -> None:
    span = read(printed(x, digits))
    assert span.low - NOISE <= x <= span.high + NOISE
    assert span.high - span.low == pytest.approx(10.0**-digits)


@given(numbers, numbers, places, places)
def test_arithmetic_on_rounded_figures_covers_the_true_result(x: float, y: float, dx: int, dy: int) -> None:
    a, b = read(printed(x, dx)), read(printed(y, dy))
    results = [(a + b, x + y), (a - b, x - y), (a * b, x * y), (1.5 - a, 1.5 - x), (abs(a), abs(x))]
    if not b.low <= 0 <= b.high:
        results.append((a / b, x / y))
    for span, true in results:
        reach = 1e-7 * max(1.0, abs(true))
        assert span.low - reach <= true <= span.high + reach
        assert span.low - reach <= span.value <= span.high + reach


@given(st.lists(st.tuples(numbers, st.integers(1, 500)), min_size=1, max_size=6), places)
def test_weighted_means_cover_the_true_mean(parts: list[tuple[float, int]], digits: int) -> None:
    values, weights = zip(*parts, strict=True)
    true = sum(v * w for v, w in parts) / sum(weights)
    span = weighted([read(printed(v, digits)) for v in values], weights)
    assert span.low - 1e-7 <= true <= span.high + 1e-7
    assert span.high - span.low == pytest.approx(10.0**-digits)


@given(st.integers(1, 4000), st.data(), st.integers(0, 2))
def test_a_percentage_of_n_problems_gives_its_count_back(n: int, data: st.DataObject, digits: int) -> None:
    k = data.draw(st.integers(0, n))
    text = printed(100 * k / n, digits)
    assert k in counts(text, n)
    got = count(text, n)
    assert got.low <= k <= got.high
    if 100 / n > 10.0**-digits * (1 + 1e-9):  # steps wider than the last place: only one count fits
        assert got == Span.exact(k)


def test_a_percentage_no_count_gives_stays_as_printed() -> None:
    assert not counts("50.1", 30)
    assert count("50.1", 30).value == pytest.approx(15.03)


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError, match="may be zero"):
        read("1.0") / read("0.0")


def test_signs_ranges_and_powers_of_ten_are_read() -> None:
    assert read("+0.8") == read("0.8")
    assert (read("14..17").low, read("14..17").high) == (13.5, 17.5)
    assert read("1.3e-27").high == pytest.approx(1.35e-27, rel=1e-12)
    assert unit("6e5") == 1e5


@given(st.lists(numbers, min_size=2, max_size=5), places, places)
def test_honestly_rounded_figures_never_differ(values: list[float], inside: int, outside: int) -> None:
    """Round the inputs and the result of a true computation in any way: no difference may be reported."""
    true = sum(values) / len(values)
    got = weighted([read(printed(v, inside)) for v in values], [1] * len(values))
    assert compare("t", "r", "f", printed(true, outside), got, "mean").verdict != "differs"


@given(st.lists(numbers, min_size=2, max_size=5), places, st.sampled_from([-1, 1]))
def test_a_figure_beyond_all_rounding_differs(values: list[float], digits: int, sign: int) -> None:
    got = weighted([read(printed(v, digits)) for v in values], [1] * len(values))
    wrong = got.value + sign * 1.6 * 10.0**-digits
    text = printed(wrong, digits)
    assume(abs(float(text) - got.value) > 1.05 * 10.0**-digits)
    assert compare("t", "r", "f", text, got, "mean").verdict == "differs"
