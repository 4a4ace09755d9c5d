"""The audit of the published figures, and of figures that are wrong on purpose."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest
from scipy.stats import binomtest

from radmoe_studies.audit import (
    across,
    agentic,
    audit,
    averages,
    claims,
    decomposition,
    efforts,
    granularity,
    headlines,
    holm,
    load,
    mcnemar,
    pooled,
    power,
)
from radmoe_studies.audit.check import Check


@pytest.fixture(scope="module")
def found() -> list[Check]:
    return audit()


def differing(checks: ModuleType, table: str, column: str, value: str, /, **match: str) -> set[tuple[str, str, str]]:
    return {c.key for c in checks.checks(load().with_figure(table, column, value, **match)) if c.verdict == "differs"}


def test_at_least_two_hundred_figures_are_recomputed(found: list[Check]) -> None:
    assert len({c.key for c in found}) >= 1700
    assert Counter(c.verdict for c in found)["agrees"] > 2000


def test_the_issue_s_families_are_all_there(found: list[Check]) -> None:
    p = Counter(c.table for c in found if c.figure == "p" and "McNemar" not in c.arithmetic)
    assert (p["dc"], p["dc-fusion"], p["wjja-main"]) == (52, 52, 5)
    assert sum(c.figure == "Holm p" for c in found) == 14
    assert sum(c.table == "wjja-power" for c in found) == 32
    assert sum(c.table == "main" and c.figure.endswith(" gain") for c in found) == 104
    assert {c.row for c in found if c.table == "swebench" and c.figure == "lift, all"} == {
        "Qwen3.6-35B-A3B",
        "gpt-oss-120B",
        "gpt-oss-20B",
    }


@pytest.mark.parametrize(
    ("table", "b", "c"), [("dc", "rad_only", "dc_only"), ("dc-fusion", "c50_only", "rf_only"), ("wjja-main", "b", "c")]
)
def test_mcnemar_rows_are_scipy_s_binomial_test(table: str, b: str, c: str) -> None:
    got = [check for check in mcnemar.checks(load()) if check.table == table and check.figure == "p"]
    rows = load().rows(table)
    assert len(got) == len(rows)
    for check, row in zip(got, rows, strict=True):
        n = int(row[b]) + int(row[c])
        expected = binomtest(int(row[b]), n).pvalue if n else 1.0
        assert check.recomputed == pytest.approx(expected)
        assert abs(float(row["p"]) - expected) <= 0.0005 + 1e-12


def test_recomputed_values_lie_in_what_their_inputs_allow(found: list[Check]) -> None:
    for check in found:
        reach = 1e-9 * max(1.0, abs(check.recomputed))
        assert check.low - reach <= check.recomputed <= check.high + reach


PLANTED = [
    (mcnemar, "dc", "p", "0.520", {"pool": "math", "group": "OSS-120B-Medium"}, ("math OSS-120B-Medium", "p")),
    (
        mcnemar,
        "dc-fusion",
        "delta",
        "+0.9",
        {"pool": "code", "group": "30B-Instruct"},
        ("code 30B-Instruct", "difference"),
    ),
    (mcnemar, "wjja-main", "b", "104", {"mode": "boundary@marker"}, ("boundary@marker", "difference")),
    (holm, "layer-deciles", "holm", "0.900", {"decile": "s3"}, ("s3", "Holm p")),
    (holm, "prose", "value", "0.50", {"id": "cochran_p"}, ("all", "Cochran p")),
    (power, "wjja-power", "mde", "0.57", {"scope": "Pooled"}, ("Pooled", "MDE at 80%")),
    (power, "wjja-power", "power_05pp", "0.25", {"scope": "boundary@marker"}, ("boundary@marker", "power at 0.5 pp")),
    (
        granularity,
        "marker-only",
        "value",
        "36.4",
        {"family": "gpt-oss-20B", "variant": "Low", "method": "RAD", "column": "AIME25"},
        ("gpt-oss-20B Low RAD", "AIME25"),
    ),
    (
        averages,
        "main",
        "value",
        "68.9",
        {"family": "gpt-oss-20B", "method": "RAD", "column": "Avg"},
        ("gpt-oss-20B RAD", "Avg"),
    ),
    (
        averages,
        "main",
        "gain",
        "+7.2",
        {"family": "Qwen3-Next-80B", "method": "Cons@64", "column": "AIME24"},
        ("Qwen3-Next-80B Cons@64", "AIME24 gain"),
    ),
    (
        averages,
        "main",
        "value",
        "66.1",
        {"family": "gpt-oss-20B", "method": "Avg@64", "column": "AIME24"},
        ("gpt-oss-20B Avg@64", "AIME24"),
    ),
    (
        averages,
        "main",
        "bold",
        "1",
        {"family": "gpt-oss-120B", "method": "RAD", "column": "HMMT25"},
        ("gpt-oss-120B", "HMMT25 in bold"),
    ),
    (headlines, "prose", "value", "74.3", {"id": "rad_wp"}, ("pooled RAD", "well-posed")),
    (headlines, "prose", "value", "+0.32", {"id": "rad_minus_cons"}, ("pooled RAD", "less Cons@64")),
    (pooled, "dc", "rad_only", "8", {"pool": "gpqa", "group": "OSS-20B-Low"}, ("gpqa OSS-pooled-Low", "rad only")),
    (pooled, "wjja-cat", "n", "1279", {"mode": "boundary@16", "category": "code"}, ("boundary@16", "n")),
    (pooled, "prose", "value", "3154", {"id": "eligible_wp"}, ("well-posed, all models", "n")),
    (
        decomposition,
        "per-model",
        "d_full",
        "+11.7",
        {"pool": "math", "model": "OSS-120B-High"},
        ("math OSS-120B-High", "full lift"),
    ),
    (decomposition, "width-recency", "bonus", "+1.32", {"window": "1"}, ("W=1", "bonus")),
    (efforts, "effort-decomp", "headroom", "46.0", {"effort": "High"}, ("High", "share of headroom")),
    (agentic, "swebench", "all_delta", "+3.1", {"model": "gpt-oss-20B"}, ("gpt-oss-20B", "lift, all")),
    (agentic, "prose", "value", "70.0", {"id": "oracle_qwen"}, ("Qwen3.6-35B-A3B", "any of 16")),
    (across, "dc-fusion", "conf50", "49.3", {"pool": "math", "group": "OSS-20B-Low"}, ("math OSS-20B-Low", "conf50")),
    (across, "per-model", "dens", "95.0", {"pool": "math", "model": "OSS-20B-High"}, ("delimiter@16 math", "WJ")),
    (claims, "prose", "value", "310401", {"id": "runs"}, ("main pool", "runs")),
    (claims, "prose", "value", "+3.1", {"id": "slope_text"}, ("sec. Analysis", "RAD slope")),
    (claims, "prose", "value", "-0.80", {"id": "cross_r_sel"}, ("ten models", "r of avg@coh and selector part")),
]


@pytest.mark.parametrize(
    ("family", "table", "column", "value", "match", "expected"),
    PLANTED,
    ids=[f"{p[0].__name__.rpartition('.')[2]}-{p[1]}-{p[2]}" for p in PLANTED],
)
def test_a_wrong_figure_differs(
    family: ModuleType, table: str, column: str, value: str, match: dict[str, str], expected: tuple[str, str]
) -> None:
    known = {c.key for c in family.checks(load()) if c.verdict == "differs"}
    new = differing(family, table, column, value, **match) - known
    assert expected in {(row, figure) for _, row, figure in new}


def test_a_figure_put_right_stops_differing() -> None:
    key = ("effort-decomp", "Medium", "avg@coh in the text")
    assert key in {c.key for c in audit() if c.verdict == "differs"}
    assert key not in differing(efforts, "prose", "value", "71", id="coh_medium")


def test_a_holm_p_of_rounded_p_is_within_rounding(found: list[Check]) -> None:
    """The printed 0.448 is no 10 x 0.045, but a p of 0.0448 prints as 0.045."""
    check = next(c for c in found if c.key == ("layer-deciles", "s3", "Holm p"))
    assert (check.verdict, check.arithmetic) == ("within rounding", "min(1, 10 x 0.045) = 0.450")
    assert (check.low, check.high) == pytest.approx((0.445, 0.455))


def test_dilution_shows_its_arithmetic(found: list[Check]) -> None:
    lines = [c.arithmetic for c in found if c.key == ("swebench", "gpt-oss-20B", "lift, all")]
    assert lines == ["100 x 221 / 500 - 41.3 = 2.9", "4.99 x 286 / 500 = 2.856"]
