"""Study 31 on panels where one readout is known to be the best, because it was planted so."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from planted_panels import evidence, panel
from radmoe.evaluation.table import Cell
from radmoe.types import Kind
from radmoe_studies.base import Findings, Options
from radmoe_studies.basins import densest
from radmoe_studies.beyond.recipes import READOUTS, SHARES, TEXT, Recipe, first, picks, recipes, requests
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.report.charts import draw

OPTIONS = Options(resamples=200)


def planted(kind: Kind = "code", **options: object) -> Panel:
    """Routing tells answers apart before the answer closes, and nowhere else."""
    names = TEXT if kind == "text" else READOUTS
    signal = {Request(name): 0.3 * (name == "closing@-16") for name in names}
    recipe = {"problems": 40, "n": 32, "requests": list(signal), "signal": signal, "kind": kind}
    return panel(**(recipe | options))  # type: ignore[arg-type]


def cells(found: Findings, section: str) -> dict[tuple[str, str], tuple[Cell, ...]]:
    table = found.tables[0]
    rows = (row.cells for row in table.rows if row.section == section)
    return {(str(row[0].value), str(row[1].value)): row[3:] for row in rows}


@pytest.mark.parametrize("kind", ["code", "text"])
def test_the_readout_that_knows_the_answer_gains_most(kind: Kind) -> None:
    own = cells(recipes(evidence(planted(kind)), OPTIONS), kind)
    alone = {key: row[0].value for key, row in own.items() if key[1]}
    assert max(alone, key=lambda key: alone[key])[0] == "closing@-16"
    assert len(alone) == len(SHARES) * len(TEXT if kind == "text" else READOUTS)


def test_likelihood_that_knows_more_than_routing_helps_every_readout() -> None:
    own = cells(recipes(evidence(planted(likelihood=4.0, signal=0.0)), OPTIONS), "code")
    for (readout, neighbours), (alone, fused, _) in own.items():
        if neighbours:
            assert fused.value > alone.value, readout  # type: ignore[operator]
    assert own["likelihood alone", ""][1].value == pytest.approx(1 - planted(likelihood=4.0).correct.mean(), abs=0.02)


def test_a_majority_stands_beside_kinds_that_have_one() -> None:
    found = recipes(evidence(planted("math"), planted("code")), OPTIONS)
    assert cells(found, "math")["majority", ""][0].value > 0.1  # type: ignore[operator]
    assert ("majority", "") not in cells(found, "code")


def test_neighbours_are_a_share_of_the_rollouts() -> None:
    own = planted("code", problems=10, n=16)
    read = own.read(Request("closing@-16"))
    chosen = picks(own, Recipe("closing@-16", Fraction(20, 64), "none"))
    assert chosen.tolist() == densest(read.values, read.located, 5).tolist()


def test_fewer_rollouts_are_the_first_ones() -> None:
    own = planted("code", problems=10, n=32)
    some = first(own, 8)
    assert (some.n, len(some)) == (8, 10)
    assert picks(some, Recipe("closing@-16", Fraction(20, 64), "ranksum")).max() < 8
    found = recipes(evidence(own), OPTIONS).tables[1]
    rows = {str(row.cells[0].value): row.cells[2:] for row in found.rows}
    whole = cells(recipes(evidence(own), OPTIONS), "code")
    assert rows["closing@-16"][2] == whole["closing@-16", "20 of 64"][1]
    assert rows["likelihood alone"][2] == whole["likelihood alone", ""][1]
    assert (rows["all"][3].value, rows["all"][3].note) == (None, "no problem has 64 rollouts")


def test_where_nothing_is_located_a_random_rollout_gains_nothing() -> None:
    own = cells(recipes(evidence(planted(located=0.0)), OPTIONS), "code")
    assert {row[0].value for key, row in own.items() if key[1]} == {0.0}


def test_without_log_probabilities_nothing_is_asked_for() -> None:
    own = planted()
    assert len(requests(own)) == len(READOUTS)
    object.__setattr__(own, "scalars", {})
    assert requests(own) == []


def test_figures_are_drawn(tmp_path: Path) -> None:
    charts = recipes(evidence(planted("math"), planted("text")), OPTIONS).charts
    assert [chart.key for chart in charts] == ["recipes-math", "recipes-text"]
    svg, _ = draw(charts[0], tmp_path)
    assert "likelihood alone" in svg.read_text()
    assert "10 of 64" in svg.read_text()
