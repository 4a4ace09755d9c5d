"""Methods by kind of answer, and what is said of RAD and its baselines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pools import evaluated
from radmoe.evaluation import GradedPool, Report, build_report
from radmoe.evaluation.kinds import BASELINES, NAMES
from radmoe.evaluation.render import beside_text, comma_separated, latex, markdown
from radmoe.evaluation.scores import Draws
from radmoe.evaluation.stats import cluster_bootstrap, holm, mcnemar_exact, paired_bootstrap
from radmoe.evaluation.table import Cell, Table, p_text

FEW = Draws(resamples=200)
HALF = [4] * 12  # of eight rollouts four are right, in each of twelve problems


def table_of(shown: Report, key: str) -> Table:
    return next(table for table in shown.tables if table.key == key)


def cells(shown: Report, key: str) -> dict[tuple[str, Any], dict[str, Cell]]:
    """(section, row) -> column -> cell."""
    table = table_of(shown, key)
    titles = [column.title for column in table.columns[1:]]
    return {(row.section, row.cells[0].value): dict(zip(titles, row.cells[1:], strict=True)) for row in table.rows}


def lab(model: str, **hits: list[int]) -> list[GradedPool]:
    """The pools of a configuration: two of math among them, and one of each other kind."""
    rad = hits.pop("rad", [1] * 9 + [0] * 3)
    sets = {"math-1": "math", "math-2": "math", "math-3": "math", "choice": "choice", "code": "code", "explain": "text"}
    return [
        evaluated({"rad": rad, **hits}, right=HALF, dataset=dataset, kind=kind, model=model)  # type: ignore[arg-type]
        for dataset, kind in sets.items()
    ]


def test_rows_are_methods_and_columns_are_kinds_of_answers() -> None:
    table = cells(build_report(lab("lab-oss low"), FEW), "kinds")
    assert list(table) == [("lab-oss low", name) for name in ("n", *NAMES.values())]
    assert list(table["lab-oss low", "RAD"]) == ["math", "choice", "code", "text"]
    assert {title: cell.value for title, cell in table["lab-oss low", "n"].items()} == {
        "math": 36, "choice": 12, "code": 12, "text": 12,
    }  # fmt: skip
    math = table["lab-oss low", "RAD"]["math"]
    assert (math.value, math.gain, math.n) == (0.75, 0.25, 36)
    assert table["lab-oss low", "a random rollout"]["math"].gain is None


def test_a_kind_of_two_data_sets_shows_them_together_and_apart() -> None:
    wide = evaluated({"rad": [0] * 12}, right=HALF, dataset="code-wide", kind="code", model="lab-oss low")
    table = cells(build_report([*lab("lab-oss low"), wide], FEW), "kinds")
    row = table["lab-oss low", "RAD"]
    assert list(row) == ["math", "choice", "all code", "code", "code-wide", "text"]
    assert [row[title].value for title in ("all code", "code", "code-wide")] == [0.375, 0.75, 0.0]


@pytest.mark.slow
def test_sections_are_configurations_families_and_everything_and_none_twice() -> None:
    pools = [*lab("lab-oss low"), *lab("lab-oss high"), *lab("lab-qwen thinking")]
    table = cells(build_report(pools, FEW), "kinds")
    sections = list(dict.fromkeys(section for section, _ in table))
    assert sections == ["lab-oss low", "lab-oss high", "lab-qwen thinking", "all lab-oss", "all"]
    assert [table[section, "n"]["choice"].value for section in sections] == [12, 12, 12, 24, 36]
    one = cells(build_report(pools[:12], FEW), "kinds")
    assert list(dict.fromkeys(section for section, _ in one)) == ["lab-oss low", "lab-oss high", "all lab-oss"]
    families = cells(build_report(pools, FEW, by="family"), "kinds")
    assert list(dict.fromkeys(section for section, _ in families)) == ["lab-oss", "lab-qwen", "all"]


def test_the_gain_has_an_interval_that_resamples_shared_problems_as_one() -> None:
    hits = [1] * 9 + [0] * 3
    right = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]
    one = evaluated({"rad": hits}, right=right, model="a")
    two = evaluated({"rad": hits[::-1]}, right=right, model="b")
    table = cells(build_report([one, two], FEW), "kinds")
    rates = np.array(right) / 8
    single = paired_bootstrap(hits, rates, resamples=200)
    assert (table["a", "RAD"]["math"].gain_low, table["a", "RAD"]["math"].gain_high) == (single.low, single.high)
    both = cluster_bootstrap([*hits, *hits[::-1]], [*range(12)] * 2, y=[*rates, *rates], resamples=200)
    cell = table["all", "RAD"]["math"]
    assert (cell.gain_low, cell.gain_high) == (both.low, both.high)
    assert "12 problems, 2 configurations" in " ".join(table_of(build_report([one, two], FEW), "kinds").notes)


def test_a_vote_that_has_nothing_to_count_shows_why() -> None:
    report = build_report(lab("m"), FEW)
    for key, name in (("kinds", "majority of answers"), ("kinds", "DeepConf"), ("against", "majority of answers")):
        cell = cells(report, key)["m", name]["code"]
        assert cell.value is None
        assert "near-unique" in cell.note
    assert "--: exact strings of code are near-unique" in " ".join(table_of(report, "kinds").notes)


def test_one_set_of_near_unique_answers_does_not_take_the_vote_from_a_whole_kind() -> None:
    pools = lab("m")[:3]
    pools[0].outcomes.counts["plurality"] = np.full(12, 1)
    report = build_report(pools, FEW)
    assert cells(report, "kinds")["m", "majority of answers"]["math"].value == 0.75
    accuracy = {row.cells[0].value: row for row in table_of(report, "accuracy").rows}["Cons@8"]
    titles = [column.title for column in table_of(report, "accuracy").columns]
    assert accuracy.cells[titles.index("math-1")].value is None
    pools[1].outcomes.counts["plurality"] = np.full(12, 1)
    assert cells(build_report(pools, FEW), "kinds")["m", "majority of answers"]["math"].value is None


def test_the_best_method_is_marked_and_the_oracle_does_not_compete() -> None:
    report = build_report(lab("m", oracle=[1] * 12, likelihood=[1] * 10 + [0] * 2), FEW)
    table = cells(report, "kinds")
    assert {name for (_, name), row in table.items() if row["code"].best} == {"likelihood"}


def test_rad_is_compared_with_each_baseline_on_the_same_problems() -> None:
    report = build_report(lab("m", majority=[0] * 3 + [1] * 7 + [0] * 2), FEW)
    table = cells(report, "against")
    assert list(table) == [("m", NAMES[baseline]) for baseline in BASELINES]
    row = table["m", "majority of answers"]
    choice = row["choice"]
    assert choice.pair is not None
    assert (choice.value, choice.pair.first, choice.pair.second) == (pytest.approx(2 / 12), 3, 1)
    assert choice.pair.p == mcnemar_exact(3, 1)
    assert choice.pair.test == "mcnemar"
    assert "p: exact McNemar, each problem once; corrected" in table_of(report, "against").notes[1]


def test_holm_is_over_all_baselines_and_columns_of_a_section_and_what_is_shown_is_corrected() -> None:
    wide = evaluated({"rad": [1] * 12, "likelihood": [0] * 12}, right=HALF, dataset="code-wide", kind="code", model="m")
    report = build_report([*lab("m", majority=[0] * 9 + [1] * 3, likelihood=[0] * 6 + [1] * 6), wide], FEW)
    shown = [cell for row in cells(report, "against").values() for cell in row.values() if cell.pair is not None]
    pairs = [cell.pair for cell in shown if cell.pair is not None]
    assert (
        len(pairs) > len(BASELINES) * 4
    )  # of every baseline all kinds that can be compared, and both sets of programs
    assert [pair.adjusted for pair in pairs] == holm([pair.p for pair in pairs]).tolist()
    for cell, pair in zip(shown, pairs, strict=True):
        assert pair.adjusted is not None
        assert beside_text(cell) == f"{pair.first}:{pair.second}, {p_text(pair.adjusted)}"


def sentences(*pools: GradedPool) -> str:
    """What stands below the table, without its legend."""
    return " ".join(table_of(build_report(pools, FEW), "kinds").notes)


def test_sentences_say_where_a_baseline_beats_rad_where_they_are_level_and_where_rad_wins() -> None:
    level = [1, 0] * 20
    code = evaluated(
        {"rad": [0] * 40, "likelihood": [1] * 39 + [0], "text-overlap": [0] * 40}, right=HALF[:1] * 40, kind="code"
    )
    math = evaluated(
        {"rad": level, "majority": level[::-1], "text-overlap": [0] * 40}, right=HALF[:1] * 40, dataset="e"
    )
    text = sentences(code, math)
    assert "A baseline that reads no routing beats RAD on code (likelihood by 97.5, p < 0.001)." in text
    assert "No difference between RAD and a baseline that reads no routing is shown on" in text
    assert "majority of answers +0.0, p = 1.00" in text
    assert "RAD beats a baseline that reads no routing on math (text overlap by 50.0, p < 0.001)." in text
    assert re.search(
        r"RAD is not shown to be above a random rollout on math \(\+0\.0 points \[-.*\]\) and code \(-50\.0 points\)\.",
        text,
    )


def test_sentences_speak_of_kinds_not_of_their_data_sets() -> None:
    made = [
        evaluated({"rad": [1] * 30}, right=[3, 5] * 15, dataset=name, kind="code") for name in ("code", "code-wide")
    ]
    text = sentences(*made)
    assert "RAD is above a random rollout on code (+50.0 points [+46" in text
    assert "code-wide" not in text


def test_sentences_correct_for_every_comparison_with_a_baseline() -> None:
    """12 : 2 discordant problems have p = 0.013 alone, 0.039 as one of three baselines, 0.078 with another kind."""
    rad, vote = [1] * 12 + [0] * 2 + [1] * 18, [0] * 12 + [1] * 2 + [1] * 18
    lacking = {"deepconf": "no top-k logprobs"}
    math = evaluated({"rad": rad, "majority": vote}, right=[4] * 32, missing=lacking)
    choice = evaluated({"rad": rad, "majority": rad}, right=[4] * 32, kind="choice", dataset="q", missing=lacking)
    assert "RAD beats a baseline that reads no routing on math (majority of answers by 31.2, p = 0.039)" in sentences(
        math
    )
    assert "exact McNemar, each problem once, corrected for all 3 comparisons of RAD with a baseline" in sentences(math)
    assert "math (majority of answers +31.2, p = 0.078" in sentences(math, choice)
    assert "RAD beats" not in sentences(math, choice)


def test_a_difference_that_shared_problems_do_not_carry_is_none() -> None:
    """Six configurations repeat one discordant problem: McNemar over their outcomes would have p = 0.03."""
    one, other = [1] * 10, [0] + [1] * 9
    pools = [evaluated({"rad": one, "majority": other}, right=[4] * 10, model=f"m{i}") for i in range(6)]
    pair = cells(build_report(pools, FEW), "against")["all", "majority of answers"]["math"].pair
    assert pair is not None
    assert (pair.first, pair.second, pair.p, pair.test) == (6, 0, 1.0, "sign-flip")
    assert "RAD beats" not in sentences(*pools)
    assert "p is that of exact sign flips of problems, each with all its configurations" in sentences(*pools)
    alone = cells(build_report(pools, FEW), "against")["m0", "majority of answers"]["math"].pair
    assert alone is not None
    assert alone.test == "mcnemar"


def test_a_method_that_is_missing_says_so_and_nothing_is_compared() -> None:
    made = evaluated({"rad": [1, 0]}, right=[4, 4], missing={"rad": "no rollout has the anchor"})
    report = build_report([made], FEW)
    assert cells(report, "kinds")["m", "RAD"]["math"].note == "no rollout has the anchor"
    assert cells(report, "against")["m", "likelihood"]["math"].note == "no rollout has the anchor"
    assert not any("RAD" in note for note in table_of(report, "kinds").notes)


def test_pools_on_which_rad_cannot_be_used_are_left_out_of_what_is_pooled_and_named() -> None:
    why = "no rollout has the anchor of boundary@16 for kind text"
    options = {"dataset": "explain", "kind": "text"}
    thinking = evaluated({"rad": [1, 1, 1, 0]}, right=[4] * 4, model="lab-qwen thinking", **options)  # type: ignore[arg-type]
    instruct = evaluated(
        {"rad": [0] * 4, "likelihood": [1] * 4},
        right=[2] * 4,
        model="lab-qwen instruct",
        missing={"rad": why, "rad+dc": why, "strict": why},
        **options,  # type: ignore[arg-type]
    )
    report = build_report([thinking, instruct], FEW)
    table = cells(report, "kinds")
    assert [table["all lab-qwen", row]["text"].value for row in ("n", "RAD", "a random rollout")] == [4, 0.75, 0.5]
    assert table["lab-qwen instruct", "RAD"]["text"].note == why
    assert table["lab-qwen instruct", "likelihood"]["text"].value == 1.0
    notes = table_of(report, "kinds").notes
    assert f"text leaves out lab-qwen instruct on explain: {why}." in notes
    wrong = next(note for note in notes if note.startswith("With RAD counted wrong"))
    assert wrong.startswith(
        "With RAD counted wrong on the 4 of 8 that text leaves out, as the paper counts an abstention, RAD is"
    )
    assert "right on 37.5% and a random rollout on 37.5%: +0.0 points [" in wrong
    above = next(note for note in notes if "above a random rollout" in note)
    assert re.search(r"text \(\+25\.0 points \[.*\]; \+0\.0 points \[.*\] with what is left out counted wrong\)", above)
    assert "with RAD counted wrong on the other 4 of 8, where it cannot be used, it has 37.5%" in report.verdict
    assert cells(report, "against")["all lab-qwen", "likelihood"]["text"].n == 4


def test_every_format_shows_gains_with_their_intervals_and_tests_with_their_counts() -> None:
    report = build_report(lab("m", majority=[0] * 3 + [1] * 7 + [0] * 2), FEW)
    gain, test = (
        cells(report, key)["m", row]["choice"] for key, row in (("kinds", "RAD"), ("against", "majority of answers"))
    )
    assert beside_text(gain).startswith("+25.0 [")
    assert f"75.0 ({beside_text(gain)})" in markdown(report)
    assert "+16.7 (3:1, p = 1.00)" in markdown(report)
    assert rf"{{\scriptsize$({beside_text(gain)})$}}" in latex(report)
    line = next(
        x for x in comma_separated(report).splitlines() if x.startswith("against,m,majority of answers,choice,")
    )
    assert test.pair is not None
    assert line.split(",")[-7:-2] == ["3", "1", str(test.pair.p), str(test.pair.adjusted), "mcnemar"]
