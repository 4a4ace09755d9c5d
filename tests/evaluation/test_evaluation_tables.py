"""The tables, on records whose numbers can be worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools import evaluated
from radmoe.errors import InputError
from radmoe.evaluation import GradedPool, Report, build_report
from radmoe.evaluation.kinds import BASELINES
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.render import markdown
from radmoe.evaluation.scores import Collection, Draws, degenerate
from radmoe.evaluation.stats import cluster_bootstrap, holm, mcnemar_exact, poisson_binomial_test
from radmoe.evaluation.table import Cell, p_text
from radmoe.evaluation.tables import lift_table

FEW = Draws(resamples=200)


def rows(shown: Report, table: str) -> dict[tuple[str, Any], dict[str, Cell]]:
    """(section, row) -> column -> cell."""
    found = next(t for t in shown.tables if t.key == table)
    titles = [c.title for c in found.columns]
    return {(row.section, row.cells[0].value): dict(zip(titles[1:], row.cells[1:], strict=True)) for row in found.rows}


MATH = evaluated(
    {"rad": [1, 1, 0, 1], "majority": [1, 0, 0, 1], "rad+dc": [1, 1, 1, 1]}, right=[8, 4, 2, 6], dataset="aime"
)
QUIZ = evaluated({"rad": [1, 0], "majority": [1, 1]}, right=[4, 4], kind="choice", dataset="gpqa")
CODE = evaluated({"rad": [1, 0, 1]}, right=[4, 0, 4], kind="code", dataset="lcb")


def test_the_average_weighs_problems_and_leaves_out_what_cannot_be_voted_on() -> None:
    table = rows(build_report([MATH, CODE, QUIZ], FEW), "accuracy")
    assert table["m", "RAD"]["aime"].value == 0.75
    assert table["m", "RAD"]["lcb"].value == pytest.approx(2 / 3)
    assert table["m", "RAD"]["Avg."].value == pytest.approx(4 / 6)
    assert table["m", "Avg@8"]["Avg."].value == pytest.approx((8 + 4 + 2 + 6 + 4 + 4) / 48)
    assert table["m", "RAD"]["aime"].gain == pytest.approx(0.75 - 20 / 32)
    assert table["m", "Avg@8"]["aime"].gain is None
    for method in ("Cons@8", "DeepConf"):
        empty = table["m", method]["lcb"]
        assert empty.value is None
        assert "exact strings of code are near-unique" in empty.note
    assert list(table["m", "RAD"]) == ["reads", "aime", "gpqa", "Avg.", "lcb"]


def test_the_best_method_of_a_column_is_marked_and_ties_are_not() -> None:
    table = rows(build_report([MATH, CODE], FEW), "accuracy")
    assert {m for (_, m), cells in table.items() if cells["aime"].best} == {"RAD+DC"}
    assert not any(cells["lcb"].best for cells in table.values())


def test_several_configurations_stand_apart_and_together() -> None:
    other = evaluated({"rad": [0, 0, 0, 0]}, right=[8, 4, 2, 6], dataset="aime", model="n")
    table = rows(build_report([MATH, other], FEW), "accuracy")
    assert [table[model, "RAD"]["aime"].value for model in ("m", "n", "all")] == [0.75, 0.0, 0.375]
    assert table["all", "RAD"]["aime"].n == 8


def test_families_pool_the_configurations_of_a_model_in_every_table() -> None:
    pools = [
        evaluated({"rad": hits}, right=[8, 4, 2, 6], dataset="aime", model=model)
        for model, hits in (("lab-oss low", [1, 0, 0, 0]), ("lab-oss high", [1, 1, 1, 0]), ("lab-qwen", [1, 1, 1, 1]))
    ]
    report = build_report(pools, FEW, by="family")
    table = rows(report, "accuracy")
    assert [table[family, "RAD"]["aime"].value for family in ("lab-oss", "lab-qwen", "all")] == [0.5, 1.0, 8 / 12]
    assert table["lab-oss", "RAD"]["aime"].n == 8
    assert {t.sections for t in report.tables} == {"family", "comparison"}
    assert ("lab-oss", "aime") in rows(report, "coverage")
    with pytest.raises(InputError, match="unknown grouping 'size': use one of configuration, family"):
        build_report(pools, FEW, by="size")


def test_a_domain_has_a_row_of_its_own_where_it_puts_several_sets_together() -> None:
    more = evaluated({"rad": [1, 1]}, right=[4, 4], dataset="hmmt")
    table = rows(build_report([MATH, more, QUIZ, CODE], FEW), "coverage")
    names = [name for _, name in table]
    assert names == ["aime", "hmmt", "gpqa", "lcb", "all math", "well-posed"]
    assert [table["m", name]["n"].value for name in names] == [4, 2, 2, 3, 6, 8]


def test_text_is_no_part_of_the_average_but_may_be_voted_on() -> None:
    prose = evaluated({"rad": [1, 0], "majority": [0, 0]}, right=[4, 4], kind="text", dataset="essays")
    table = rows(build_report([MATH, QUIZ, prose], FEW), "accuracy")
    assert list(table["m", "RAD"]) == ["reads", "aime", "gpqa", "Avg.", "essays"]
    assert table["m", "RAD"]["Avg."].n == 6
    assert table["m", "Cons@8"]["essays"].value == 0.0
    assert "against a majority vote it is" in build_report([prose], FEW).verdict


def test_every_method_stands_in_one_accuracy_table_and_says_what_it_reads() -> None:
    report = build_report([MATH], FEW)
    labels = [row.cells[0].value for t in report.tables if t.key in ("accuracy", "baselines") for row in t.rows]
    expected = {m.label.replace("@N", "@8") for name, m in METHODS.items() if not name.startswith("strict")}
    assert set(labels) == expected
    assert len(labels) == len(expected) + 1  # the average stands in both
    others = rows(report, "baselines")
    assert others["m", "text overlap"]["reads"].value == "answers"
    assert others["m", "RAD + likelihood"]["reads"].value == "routing, logprobs"
    assert list(others)[-1] == ("m", "oracle pass@8")


def test_a_majority_with_its_ties_split_stands_below_the_one_that_takes_the_first() -> None:
    tied = evaluated({"rad": [1, 1], "majority": [1, 0], "majority-split": [0.5, 0.25]}, right=[4, 2])
    table = rows(build_report([tied], FEW), "accuracy")
    assert [table["m", label]["d"].value for label in ("Cons@8", "Cons@8, ties split")] == [0.5, 0.375]


def test_intervals_resample_problems_that_configurations_share_as_one() -> None:
    other = evaluated({"rad": [0, 1, 0, 1]}, right=[8, 4, 2, 6], dataset="aime", model="n")
    cell = rows(build_report([MATH, other], FEW), "accuracy")["all", "RAD"]["aime"]
    hits, problems = [1, 1, 0, 1, 0, 1, 0, 1], [0, 1, 2, 3] * 2
    expected = cluster_bootstrap(hits, problems, resamples=200)
    assert (cell.low, cell.high) == (expected.low, expected.high)


def test_a_missing_pool_is_a_cell_that_says_so() -> None:
    other = evaluated({"rad": [1]}, right=[8], dataset="gpqa", model="n")
    assert rows(build_report([MATH, other], FEW), "accuracy")["n", "RAD"]["aime"].note == "not measured"


def test_different_numbers_of_rollouts_keep_the_letter_n() -> None:
    more = evaluated({"rad": [1, 0]}, right=[4, 4], rollouts=16, dataset="aime")
    assert ("m", "Avg@N") in rows(build_report([MATH, more], FEW), "accuracy")


@pytest.mark.parametrize(
    ("plurality", "answered", "expected"),
    [([6, 6, 6], 8, False), ([1, 1, 1], 8, True), ([1, 1, 6], 8, True), ([1, 6, 6], 8, False), ([3] * 3, 64, True), ([4] * 3, 64, False), ([0] * 3, 0, False)],
)  # fmt: skip
def test_votes_over_near_unique_strings_are_degenerate(plurality: list[int], answered: int, expected: bool) -> None:
    made = evaluated({"rad": [1, 1, 1]}, right=[4, 4, 4], rollouts=64)
    made.outcomes.counts["plurality"], made.outcomes.counts["answered"] = np.array(plurality), np.full(3, answered)
    assert (degenerate(made) is not None) == expected


def test_coverage_counts_the_three_cases() -> None:
    made = evaluated(
        {"rad": [1, 1, 1, 0, 0]}, right=[8, 4, 4, 4, 0], located=[8, 8, 3, 1, 0], located_right=[8, 4, 3, 1, 0]
    )
    table = rows(build_report([made], FEW), "coverage")["m", "d"]
    assert [table[c].value for c in ("n", "mixed", "(a) all", "(b) some", "(c) < 2")] == [5, 3, 2, 1, 2]
    assert table["located %"].value == pytest.approx((8 + 8 + 3 + 1 + 0) / 40)


def test_a_single_rollout_that_is_located_is_still_case_c() -> None:
    made = evaluated({"rad": [0, 1]}, right=[1, 1], rollouts=1, located=[1, 1])
    table = rows(build_report([made], FEW), "coverage")["m", "d"]
    assert [table[c].value for c in ("(a) all", "(b) some", "(c) < 2")] == [0, 0, 2]


def test_the_lift_is_decomposed_over_problems_with_two_located_rollouts() -> None:
    made = evaluated(
        {"rad": [1, 1, 0, 0], "majority": [1, 0, 1, 1]},
        right=[4, 2, 6, 8],
        located=[8, 4, 4, 1],
        located_right=[4, 2, 3, 1],
    )
    row = rows(build_report([made], FEW), "lift")["m", "d"]
    full, cohort, dens = (4 + 2 + 6) / 24, (0.5 + 0.5 + 0.75) / 3, 2 / 3
    assert row["n"].value == 3
    assert row["avg@full"].value == pytest.approx(full)
    assert row["avg@coh"].value == pytest.approx(cohort)
    assert row["maj"].value == pytest.approx(2 / 3)
    assert row["dens"].value == pytest.approx(dens)
    assert row["Δanc"].value == pytest.approx(cohort - full)
    assert row["Δsel"].value == pytest.approx(dens - cohort)
    assert row["Δfull"].value == pytest.approx(dens - full)
    assert row["Δsel/HR"].value == pytest.approx((dens - cohort) / (1 - cohort))
    assert f"{poisson_binomial_test([0.5, 0.5, 0.75], 2).p:.3g}" in row["Δsel"].note


def test_the_share_of_headroom_is_the_papers() -> None:
    """tab:per-model, OSS-120B-Low on math: avg@coh 48.8, dens 60.0, 21.9% of the headroom."""
    made = evaluated({"rad": [1] * 60 + [0] * 40}, right=[48.8] * 100, rollouts=100)  # type: ignore[list-item]
    assert rows(build_report([made], FEW), "lift")["m", "d"]["Δsel/HR"].value == pytest.approx(0.219, abs=5e-4)


def test_no_headroom_is_said_not_divided_by() -> None:
    made = evaluated({"rad": [1, 1]}, right=[8, 8])
    assert "no headroom" in rows(build_report([made], FEW), "lift")["m", "d"]["Δsel/HR"].note


@pytest.mark.parametrize(("right", "stars"), [(1, "***"), (5, "*"), (7, "")])
def test_stars_mark_what_random_picks_hardly_do(right: int, stars: str) -> None:
    made = evaluated({"rad": [1] * 7}, right=[right] * 7)
    assert rows(build_report([made], FEW), "lift")["m", "d"]["Δsel"].stars == stars


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)
)
def test_the_parts_of_the_lift_always_add_up(problems: list[tuple[bool, int, int, int]]) -> None:
    hits = [int(hit and located >= 2) for hit, _, located, _ in problems]
    inside = [min(right, located, part) for _, right, located, part in problems]
    made = evaluated(
        {"rad": hits},
        right=[right for _, right, _, _ in problems],
        located=[located for _, _, located, _ in problems],
        located_right=inside,
    )
    table = lift_table(Collection((made,)), Draws(resamples=20))
    cells = dict(zip([c.title for c in table.columns], table.rows[0].cells, strict=True))
    if not cells["n"].value:
        assert cells["Δsel"].value is None
        assert cells["Δsel"].note
        return
    value = {name: float(cell.value) for name, cell in cells.items() if isinstance(cell.value, int | float)}
    assert value["Δanc"] + value["Δsel"] == pytest.approx(value["Δfull"])
    assert value["dens"] - value["avg@full"] == pytest.approx(value["Δfull"])


def test_pairs_count_what_only_one_gets_right() -> None:
    table = rows(build_report([MATH, QUIZ, CODE], FEW), "paired")
    one = table["RAD - Cons@8", "aime"]
    assert [one[c].value for c in ("n", "gap", "first", "second", "p")] == [4, 0.25, 1, 0, mcnemar_exact(1, 0)]
    assert ("RAD - Cons@8", "lcb") not in table  # nothing to vote on
    pooled = table["RAD - Cons@8", "all"]
    assert [pooled[c].value for c in ("n", "gap", "first", "second")] == [6, 0.0, 1, 1]
    assert pooled["Holm p"].value == 1.0
    assert table["RAD+DC - RAD", "all"]["n"].value == 9


def test_holm_is_over_all_rows_of_the_paired_table() -> None:
    strong = evaluated({"rad": [1] * 10, "majority": [0] * 10}, right=[4] * 10, dataset="a")
    weak = evaluated({"rad": [1] * 6 + [0] * 4, "majority": [0] * 6 + [0] * 4}, right=[4] * 10, dataset="b")
    report = build_report([strong, weak], FEW)
    table = rows(report, "paired")
    assert len({section for section, _ in table}) > 1
    p = [row["p"].value for row in table.values()]
    assert [row["Holm p"].value for row in table.values()] == holm(p).tolist()  # type: ignore[arg-type]
    notes = next(t for t in report.tables if t.key == "paired").notes
    assert f"p: exact McNemar, each problem once; Holm over all {len(table)} rows." in notes[0]


def test_a_row_over_configurations_that_share_problems_is_tested_by_sign_flips() -> None:
    pools = [evaluated({"rad": [1] * 4, "majority": [0, 1, 1, 1]}, right=[4] * 4, model=f"m{i}") for i in range(6)]
    report = build_report(pools, FEW)
    table = rows(report, "paired")
    assert (table["RAD - Cons@8", "all"]["first"].value, table["RAD - Cons@8", "all"]["p"].value) == (6, 1.0)
    assert "exact McNemar where each problem occurs once, else exact sign flips" in " ".join(
        next(t for t in report.tables if t.key == "paired").notes
    )
    assert "on 4 problems (24 counting every configuration) RAD" in report.verdict
    assert "exact sign flips of problems p = 1.00 (Holm over 4 comparisons): no difference" in report.verdict


def test_problems_that_are_all_alike_have_no_interval_whatever_their_configurations_do() -> None:
    """One configuration wins each problem and the other loses it: resampling problems gives 0 always, which is no certainty."""
    pools = [evaluated({"rad": [won] * 6, "majority": [1 - won] * 6}, right=[4] * 6, model=f"m{won}") for won in (0, 1)]
    pooled = rows(build_report(pools, FEW), "paired")["RAD - Cons@8", "all"]["gap"]
    assert (pooled.value, pooled.low, pooled.high) == (0.0, None, None)
    assert "no interval" in pooled.note


def test_the_votes_p_in_the_verdict_is_corrected_with_those_of_the_baselines() -> None:
    """A vote was tested by itself, beside baselines that were corrected for each other."""
    won = [0] * 6 + [1] * 14
    made = evaluated({"rad": won, "majority": [1] * 20, "likelihood": won, "text-overlap": won}, right=[4] * 20)
    usable = [name for name in BASELINES if name in made.outcomes.hits]
    p = min(1.0, len(usable) * mcnemar_exact(0, 6))
    assert p > 0.05 > mcnemar_exact(0, 6)
    sentence = build_report([made], FEW).verdict
    several = f"(Holm over {len(usable)} comparisons): no difference"
    assert f"exact McNemar {p_text(p)} {several}" in sentence
    assert sentence.count(several) == 2


def test_stars_of_the_lift_are_corrected_over_the_rows_of_the_table() -> None:
    p = poisson_binomial_test([5 / 8] * 7, [1] * 7).p
    made = [evaluated({"rad": [1] * 7}, right=[5] * 7, dataset=name) for name in ("a", "b")]
    alone, both = (rows(build_report(own, FEW), "lift")["m", "a"]["Δsel"] for own in (made[:1], made))
    assert (alone.stars, both.stars) == ("*", "")
    assert 0.05 / 3 < p < 0.05


@pytest.mark.parametrize("key", ["accuracy", "strict", "baselines"])
def test_every_column_of_an_accuracy_table_shows_its_intervals(key: str) -> None:
    report = build_report([MATH, QUIZ, CODE], FEW)
    table = next(t for t in report.tables if t.key == key)
    assert [column.interval for column in table.columns[2:]] == ["95% CI"] * 4
    code = rows(report, key)["m", "Avg@8"]["lcb"]
    assert code.low is not None
    assert f"[{100 * code.low:.1f}, " in markdown(report)


def test_the_envelope_is_the_papers_wald_interval() -> None:
    row = rows(build_report([MATH], FEW), "envelope")["m", "d" if MATH.dataset == "d" else "aime"]
    rates = np.array([8, 4, 2, 6]) / 8
    upper = rates.mean() + 1.96 * math.sqrt((rates * (1 - rates)).sum()) / 4
    assert row["random"].high == pytest.approx(upper)
    assert row["above"].value is not None


def test_a_dense_wrong_basin_holds_half_of_all_rollouts_and_a_wrong_pick() -> None:
    made = evaluated(
        {"rad": [0, 0, 1, 0]}, right=[2, 2, 6, 2], basin=[4, 3, 8, 1], located=[8, 8, 8, 1], located_right=[2, 2, 6, 1]
    )
    row = rows(build_report([made], FEW), "basins")["m", "d"]
    assert [row[c].value for c in ("n", "RAD wrong", "dense", "dense, wrong", "rate %")] == [4, 3, 2, 1, 0.25]


def test_the_strict_table_is_left_out_where_the_readout_is_strict_already() -> None:
    from dataclasses import replace

    strict = replace(MATH, setting=replace(MATH.setting, readout="delimiter@marker"))
    assert "strict" not in {t.key for t in build_report([strict], FEW).tables}
    assert "strict" in {t.key for t in build_report([MATH], FEW).tables}


@pytest.mark.parametrize(
    ("made", "start", "parts"),
    [
        (evaluated({"rad": [1] * 20}, right=[4] * 20), "Selection helped", ["+50.0 points", "p < 0.001", "exactly the same problems"]),
        (evaluated({"rad": [0] * 20}, right=[4] * 20), "Selection hurt", ["-50.0 points", "do as badly"]),
        (evaluated({"rad": [1, 0] * 10}, right=[4] * 20), "No help shown", ["+0.0 points", "20 problems"]),
        (evaluated({"rad": [1, 0] * 10, "majority": [1] * 20}, right=[4] * 20), "No help shown", ["-50.0 points", "p = 0.008 (Holm over 4 comparisons): a difference"]),
        (evaluated({"rad": [1] * 20}, right=[4] * 20, kind="code"), "Selection helped", ["nothing to count here"]),
        (evaluated({"rad": [1] * 4}, right=[8] * 4), "Selection could not matter here", ["4 problems"]),
    ],
)  # fmt: skip
def test_the_verdict_is_one_sentence_that_says_how_sure(made: GradedPool, start: str, parts: list[str]) -> None:
    sentence = build_report([made], FEW).verdict
    assert sentence.startswith(start)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


def test_resamples_must_be_positive() -> None:
    with pytest.raises(InputError, match="resamples must be at least 1, got 0"):
        build_report([MATH], Draws(resamples=0))
