"""Pooled hit rates: which panels and rows are put together, what is comparable, and what decides a claim of several parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel
from radmoe_studies.base import Options
from radmoe_studies.decision import Claim, ClaimVerdict, Decided, is_above, is_below, is_near
from radmoe_studies.evidence import Panel
from radmoe_studies.rates import ANCHORS, DELIMITER, GROUPS, curves, mean, pooled_rates, readable
from radmoe_studies.resample import Quantity
from radmoe_studies.subcohorts import CHANCE, DC, MAJORITY, RAD, SubcohortCell

OPTIONS = Options(resamples=300, subcohorts=10)
CLAIM = Claim("key", "A sentence.", "1", "Sec. 1", "A rule.")


def made(**options: object) -> Panel:
    return panel(**({"problems": 12, "n": 16, "requests": ANCHORS} | options))  # type: ignore[arg-type]


def around(value: float) -> Quantity:
    return Quantity(value, value + 0.01 * np.sin(np.arange(300)), frozenset(range(20)))


def test_kinds_without_a_delimiter_are_left_out() -> None:
    thinking, text = made(), made(kind="text")
    assert readable(evidence(thinking, text)) == [thinking]


def test_rows_are_the_problems_that_fit_a_cell_or_those_chosen() -> None:
    one = made(right=np.linspace(0, 1, 12))
    cells = [SubcohortCell(8, 4)]
    right = one.correct.sum(1)
    fits = (right >= 4) & (16 - right >= 4)
    rates = pooled_rates(evidence(one), DELIMITER, cells, OPTIONS)
    assert list(rates.clusters) == [("math-2", one.problem_ids[i]) for i in np.flatnonzero(fits)]
    assert rates.values[:, 0, CHANCE] == pytest.approx(0.5)
    chosen = pooled_rates(evidence(one), DELIMITER, cells, OPTIONS, lambda right, wrong: right >= 8)
    assert len(chosen.clusters) == int((right >= 8).sum())
    assert np.isnan(chosen.values[right[right >= 8] > 12]).all()


def test_a_method_that_some_rows_lack_has_no_mean_beside_those_of_all_rows() -> None:
    math, code = made(), made(kind="code", dataset="code", seed=1)
    blind = replace(made(dataset="math-3", seed=2), scalars={}, missing={"cbw": "none"})
    rates = pooled_rates(evidence(math, code, blind), DELIMITER, [SubcohortCell(4)], OPTIONS)
    found = curves(rates, OPTIONS, groups=GROUPS)
    assert list(found) == ["all", "math", "code"]  # well-posed ones are the rows of math
    known = {name: np.isfinite(group.estimate[0]) for name, group in found.items()}
    assert [known["all"][i] for i in (RAD, DC, MAJORITY)] == [True, False, False]
    assert [known["math"][i] for i in (RAD, DC, MAJORITY)] == [True, False, True]
    assert [known["code"][i] for i in (RAD, DC, MAJORITY)] == [True, True, False]
    assert found["math"].rows == found["math"].problems == 24


def test_a_mean_over_fewer_than_ten_problems_is_none() -> None:
    names = [f"p{i // 2}" for i in range(20)]
    values = np.arange(20.0)
    assert mean(values, names, OPTIONS) is not None
    assert mean(np.where(values < 2, np.nan, values), names, OPTIONS) is None


def test_a_claim_of_several_parts_names_the_weakest_and_one_that_lacks_a_part_is_a_note() -> None:
    both = Decided().with_claim(CLAIM, [("low", around(-0.1), is_below(-0.02)), ("high", around(0.02), is_above(0.02))])
    (decision,) = both.decisions
    assert decision.verdict == ClaimVerdict.AT_THE_MARGIN
    assert decision.estimate == 0.02
    assert "the weakest part, high" in decision.reading
    lacking = both.with_claim(CLAIM, [("low", around(-0.1), is_below(-0.02)), ("high", None, is_above(0.02))])
    assert lacking.decisions == both.decisions
    assert lacking.notes == ("key was not tested: fewer than 10 problems for high.",)


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.42, ClaimVerdict.SUPPORTS), (0.2, ClaimVerdict.REFUTES), (0.3, None)]
)
def test_near_a_place_is_judged_and_shown_at_that_place(value: float, verdict: ClaimVerdict | None) -> None:
    decision = is_near(0.4, 0.1, "share")(CLAIM, around(value))
    assert decision.estimate == pytest.approx(value)
    assert decision.low < value < decision.high
    assert decision.verdict == (verdict or ClaimVerdict.AT_THE_MARGIN)
