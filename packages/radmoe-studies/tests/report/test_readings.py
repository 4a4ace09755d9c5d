"""A file of readings is checked before studies run for half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe_studies.report.readings import read_readings


def test_readings_are_found_by_their_claims(tmp_path: Path) -> None:
    path = tmp_path / "readings.toml"
    path.write_text('"main.above-average" = "It helps."\n')
    assert read_readings(path, ["main.above-average", "other"]).texts == {"main.above-average": "It helps."}


def test_earlier_verdicts_may_be_of_claims_that_are_no_more(tmp_path: Path) -> None:
    path = tmp_path / "readings.toml"
    path.write_text(
        '"main.above-average" = "It helps."\n[before]\n"main.above-average" = "supports"\n"gone.claim" = "refutes"\n'
    )
    found = read_readings(path, ["main.above-average"])
    assert found.before == {"main.above-average": "supports", "gone.claim": "refutes"}
    assert found.texts == {"main.above-average": "It helps."}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"main.below" = "x"', "no study has a claim 'main.below'"),
        ('main.above-average = "x"', "main is no string"),
        ('"main.above-average" = 3', "main.above-average is no string"),
        ('[before]\n"main.above-average" = 3', "holds verdicts by claim"),
        ("= broken", "cannot be read as readings"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "readings.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_readings(path, ["main.above-average"])
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as readings"):
        read_readings(tmp_path / "none.toml", [])
