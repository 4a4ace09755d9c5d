"""What routing gives instead of its rivals and in addition to them, by kind and regime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pools import evaluated
from radmoe.errors import InputError
from radmoe.evaluation import GradedPool, Report
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.render import beside_text
from radmoe.evaluation.rivals import ADDED, INSTEAD, PRESETS, STRICT, rivals_report
from radmoe.evaluation.scores import Draws
from radmoe.evaluation.stats import cluster_bootstrap, mcnemar_exact, sign_flip_exact
from radmoe.evaluation.table import Cell

FEW = Draws(resamples=200)


def cells(shown: Report, key: str) -> dict[tuple[str, Any], dict[str, Cell]]:
    """(kind, regime) -> column -> cell."""
    table = next(table for table in shown.tables if table.key == key)
    titles = [column.title for column in table.columns[1:]]
    return {(row.section, row.cells[0].value): dict(zip(titles, row.cells[1:], strict=True)) for row in table.rows}


def made(routing: list[int], likelihood: list[int], **options: Any) -> GradedPool:
    """GradedPool in which routing and likelihood did as given, and every other method as routing did."""
    n = len(routing)
    return evaluated({"rad": routing, "likelihood": likelihood}, **{"right": [4] * n, "kind": "code"} | options)


def test_every_comparison_is_of_two_methods_that_there_are() -> None:
    pairs = {(c.first, c.second) for c in (*INSTEAD, *ADDED, *STRICT)}
    assert {name for pair in pairs for name in pair} <= set(METHODS)
    for first, second in pairs:
        assert "routing" in METHODS[first].reads
        assert "routing" not in METHODS[second].reads
    assert {name for c in PRESETS for name in (c.first, c.second)} <= set(METHODS)
    assert all(METHODS[c.first].parts == ("best-routing", *c.second.split("+")) for c in ADDED)


def test_a_difference_is_over_problems_that_are_resampled_with_all_their_configurations() -> None:
    one = made([1, 1, 1, 0, 1, 0], [0, 1, 0, 0, 0, 1], model="a")
    other = made([1, 1, 0, 0, 1, 1], [0, 1, 0, 0, 1, 1], model="b")
    row = cells(rivals_report([one, other], draws=FEW), "instead")["code", "all code"]
    gaps = np.array([1, 0, 1, 0, 1, -1, 1, 0, 0, 0, 0, 0])
    interval = cluster_bootstrap(gaps, np.tile(np.arange(6), 2), resamples=200)
    cell = row["likelihood"]
    assert (row["problems"].value, cell.value, cell.n) == (6, pytest.approx(0.25), 12)
    assert (cell.low, cell.high) == (interval.low, interval.high)
    assert cell.pair is not None
    by_problem = gaps[:6] + gaps[6:]
    assert (cell.pair.first, cell.pair.second, cell.pair.test) == (4, 1, "sign-flip")
    assert cell.pair.p == sign_flip_exact(by_problem)


def test_problems_of_one_configuration_are_tested_exactly() -> None:
    pool = made([1, 1, 1, 0, 1, 0], [0, 1, 0, 0, 0, 1])
    pair = cells(rivals_report([pool], draws=FEW), "instead")["code", "all code"]["likelihood"].pair
    assert pair is not None
    assert (pair.first, pair.second, pair.p) == (3, 1, mcnemar_exact(3, 1))


def test_presets_are_compared_with_the_paper_and_with_what_reads_no_routing() -> None:
    pool = made([1, 0, 1, 1], [0, 0, 1, 0])
    pool.outcomes.hits["preset:paper"][:] = [0, 0, 0, 1]
    row = cells(rivals_report([pool], draws=FEW), "presets")["code", "all code"]
    assert (row["best - paper"].value, row["best - likelihood"].value) == (0.5, 0.5)
    assert row["best+text - best"].value == 0.0
    assert row["best - majority"].value is None


def test_problems_are_cut_at_exact_thirds() -> None:
    """Of nine rollouts 2, 3, 6 and 7 are right: a third belongs to the middle, and so do two thirds."""
    pool = made([1, 1, 0, 0], [0, 1, 1, 1], right=[2, 3, 6, 7], rollouts=9, basin=[9, 6, 3, 2])
    table = cells(rivals_report([pool], draws=FEW), "instead")
    values = {name: (row["problems"].value, row["likelihood"].value) for (_, name), row in table.items()}
    assert values == {
        "all code": (4, -0.25),
        "under 1/3 right": (1, 1.0),
        "1/3 to 2/3 right": (2, -0.5),
        "over 2/3 right": (1, -1.0),
        "under 1/3 in the basin": (1, -1.0),
        "1/3 to 2/3 in the basin": (2, -0.5),
        "over 2/3 in the basin": (1, 1.0),
    }


def test_data_sets_configurations_and_numbers_of_rollouts_are_regimes() -> None:
    pools = [
        made([1] * 3, [0] * 3, dataset=dataset, model=model)
        for dataset in ("code", "code-wide")
        for model in ("lab-oss low", "lab-oss high")
    ]
    less = [made([0] * 3, [1] * 3, rollouts=4, right=[2] * 3)]
    table = cells(rivals_report(pools, {4: less}, FEW), "instead")
    names = [name for _, name in table]
    assert names[:5] == ["all code", "code", "code-wide", "lab-oss low", "lab-oss high"]
    assert (names[-1], table["code", "N = 4"]["likelihood"].value) == ("N = 4", -1.0)
    assert table["code", "code-wide"]["problems"].value == 3


def test_pools_that_lack_a_method_are_left_out_of_its_cells() -> None:
    whole = made([1, 0], [0, 0], model="a")
    lacking = made([1, 1], [0, 0], model="b", missing={"best-routing": "no marker"})
    table = cells(rivals_report([whole, lacking], draws=FEW), "instead")
    assert table["code", "all code"]["likelihood"].value == 0.5
    assert table["code", "b"]["likelihood"].value is None
    assert table["code", "b"]["likelihood"].note == "no marker"
    assert (
        table["code", "all code"]["majority"].note
        == "exact strings of code are near-unique: a vote has nothing to count"
    )


def test_the_verdict_says_to_what_routing_adds_and_to_what_not() -> None:
    better, level = [1] * 40, [1, 0] * 20
    pool = made(better, level, right=[2] * 40)
    pool.outcomes.hits["text-overlap"][:] = better  # as good without routing as with it
    verdict = rivals_report([pool], draws=FEW).verdict
    assert verdict.startswith("Routing adds to likelihood on code (+50.0 points, p < 0.001).")
    assert (
        "Routing adds nothing that is shown to self-certainty on code (+0.0 points, p = 1.00); text overlap on"
        in verdict
    )
    worse = made(level, better, right=[2] * 40)
    assert (
        "Routing takes from likelihood on code (-50.0 points, p < 0.001)." in rivals_report([worse], draws=FEW).verdict
    )


def test_only_whole_kinds_are_corrected_for_one_another() -> None:
    """Regimes are looked at, not tested: with hundreds of them nothing would be left."""
    pools = [made([1] * 8, [0] * 8, model=model) for model in ("a", "b")]
    table = cells(rivals_report(pools, draws=FEW), "instead")
    whole, part = table["code", "all code"]["likelihood"].pair, table["code", "a"]["likelihood"].pair
    assert whole is not None
    assert part is not None
    tested = sum(cell.pair is not None for cell in table["code", "all code"].values())
    assert whole.adjusted == pytest.approx(min(1.0, tested * whole.p))
    assert part.adjusted is None
    assert beside_text(table["code", "a"]["likelihood"]) == "8:0"  # no p is shown that is not corrected
    verdict = rivals_report(pools, draws=FEW).verdict
    assert "p: exact sign flips of problems, each with all its configurations; corrected for all" in verdict


def test_no_pool_is_refused() -> None:
    with pytest.raises(InputError, match="give at least one"):
        rivals_report([])
