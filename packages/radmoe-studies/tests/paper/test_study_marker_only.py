"""Study 7 on records whose accuracies were planted."""

from __future__ import annotations

import pytest

from planted_outcomes import evaluated
from planted_panels import evidence, panel
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.paper.marker_only import marker_only

OPTIONS = Options(resamples=400)
MATH = panel(problems=400, n=4)
CODE = panel(problems=400, n=4, kind="code", dataset="code")
PLANTED = {"average": 0.5, "strict": 0.68, "strict+dc": 0.68, "rad": 0.7, "rad+dc": 0.7}


def verdicts(right: dict[str, float]) -> dict[str, ClaimVerdict]:
    found = marker_only(evidence(*(evaluated(one, right) for one in (MATH, CODE))), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_a_marker_that_keeps_most_of_the_lift_supports_the_claims() -> None:
    assert set(verdicts(PLANTED).values()) == {ClaimVerdict.SUPPORTS}


def test_a_marker_that_keeps_a_fifth_refutes_them() -> None:
    found = verdicts(PLANTED | {"strict": 0.44, "strict+dc": 0.52})
    assert found["most-of-the-lift"] == ClaimVerdict.REFUTES
    assert found["most-of-the-fused-lift"] == ClaimVerdict.REFUTES
    assert found["lift-on-code"] == ClaimVerdict.REFUTES


def test_the_share_is_the_planted_one_and_empty_where_there_is_no_lift() -> None:
    own = [evaluated(one, PLANTED | {"strict": 0.65, "rad": 0.8}) for one in (MATH, CODE)]
    (_, shares) = marker_only(evidence(*own), OPTIONS).tables
    assert shares.rows[0].cells[3].value == pytest.approx(0.5, abs=0.01)
    assert shares.rows[0].cells[6].value == pytest.approx(0.63, abs=0.005)  # the paper's
    flat = evaluated(MATH, dict.fromkeys(PLANTED, 0.0))
    (_, shares) = marker_only(evidence(flat), OPTIONS).tables
    assert shares.rows[0].cells[3].value is None


def test_pools_without_confidence_or_code_leave_claims_out() -> None:
    found = marker_only(evidence(evaluated(MATH, {"average": 0.5, "strict": 0.7, "rad": 0.7})), OPTIONS)
    assert [decision.claim.key for decision in found.decisions] == ["marker-only.most-of-the-lift"]
    assert sum("cannot be tested" in note for note in found.notes) == 2
