"""Dates and times of day are no quotients, differences or ratios."""

from __future__ import annotations

import pytest

from radmoe.grading.dates import date_or_time


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("January 2, 1900", "1900-01-02"),
        ("2nd of Jan. 1900", "1900-01-02"),
        ("Monday, January 2, 1900", "1900-01-02"),
        (r"\text{2 January 1900}", "1900-01-02"),
        ("1900-01-02", "1900-01-02"),
        ("02/01/1900", "2/1/1900"),
        ("2.1.1900", "2.1.1900"),
        ("June 5", r"\text{5 june}"),
        ("7 p.m.", r"7:00\text{ pm}"),
        (r"7:45\text{ AM}", r"7:45\text{ am}"),
    ],
)
def test_a_date_is_written_in_one_way(written: str, moment: str) -> None:
    assert date_or_time(written) == moment
    assert date_or_time(moment) == moment


@pytest.mark.parametrize(
    "text", ["1900", "3/4", "10-3-2", "1900-13-02", "July", "2.5", "1.2.3", "3:45", "June 41", "5 apples"]
)
def test_anything_else_is_none(text: str) -> None:
    assert date_or_time(text) is None
