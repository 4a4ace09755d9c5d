"""The paper's tables as studies read them."""

from __future__ import annotations

import pytest

from radmoe_studies.paper_tables import percent, pool_of, printed

LABELS = (
    "dc",
    "dc-fusion",
    "diversity",
    "effort-decomp",
    "effort-trend",
    "main",
    "marker-only",
    "per-model",
    "wjja-main",
)


@pytest.mark.parametrize("label", LABELS)
def test_every_table_that_studies_print_is_there(label: str) -> None:
    assert printed(label)


def test_percentages_become_fractions_and_dashes_nothing() -> None:
    assert percent("+12.3") == 0.123
    assert percent("-0.0") == 0.0
    assert percent("") is None
    assert percent("--") is None
    assert {pool_of(row) for row in printed("per-model")} == {"math", "science", "well-posed", "code"}
