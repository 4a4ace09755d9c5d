"""Study 23 on panels in which the lone right rollout stands apart, or in the middle, because it was put there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planted_panels import evidence, panel, verdicts_by_key
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel
from radmoe_studies.paper.needle import FINDS, MISSES, needle
from radmoe_studies.rates import ANCHORS

OPTIONS = Options(resamples=300, subcohorts=40)


def made(**options: object) -> Panel:
    defaults = {"problems": 40, "n": 64, "requests": ANCHORS, "right": 0.2, "wrong_answers": 2, "signal": 0.3}
    return panel(**(defaults | options))  # type: ignore[arg-type]


def test_a_rollout_outside_every_basin_is_missed_by_rad_and_found_by_a_confidence_that_knows() -> None:
    found = needle(evidence(made(confidence=1.5)), OPTIONS)
    assert verdicts_by_key(found) == {MISSES.key: ClaimVerdict.SUPPORTS, FINDS.key: ClaimVerdict.SUPPORTS}
    rows = [row for row in found.tables[0].rows if row.section == "delimiter@16, all"]
    assert [row.cells[2].value for row in rows] == pytest.approx([-1 / 8, -1 / 16, -1 / 32], abs=1e-3)  # never


def test_a_lone_rollout_in_the_middle_of_all_and_a_confidence_that_misleads_refute_both() -> None:
    one = made(signal=0.0, confidence=-1.5)
    for request in ANCHORS:
        one.read(request).values[...] += 0.3 * (one.correct[:, :, None] ^ one.correct[:, None, :])
    found = needle(evidence(one), OPTIONS)
    assert verdicts_by_key(found) == {MISSES.key: ClaimVerdict.REFUTES, FINDS.key: ClaimVerdict.REFUTES}


def test_families_and_domains_have_rows_of_their_own_with_their_numbers_of_problems() -> None:
    oss = made(model="lab-oss", style="high", kind="choice", dataset="choice", seed=1, n=32)
    code = made(model="lab-oss", style="high", kind="code", dataset="code", seed=2)
    found = needle(evidence(made(), made(kind="choice", dataset="choice-2", seed=3), oss, code), OPTIONS)
    sections = list(dict.fromkeys(row.section for row in found.tables[0].rows if "boundary" in row.section))
    names = ["all", "math", "science", "code", "lab-oss", "lab-qwen", "the paper's"]
    assert sections == [f"boundary@16, {name}" for name in names]
    alone = needle(evidence(made(), oss), OPTIONS).tables[0].rows
    science = [row for row in alone if row.section == "boundary@16, science"]
    assert science[0].cells[1].value == 40
    assert science[2].cells[1].value == int(((oss.correct.sum(1) >= 1) & ((~oss.correct).sum(1) >= 31)).sum())


@pytest.mark.parametrize("options", [{"right": 0.0}, {"right": 1.0}, {"located": 0.0}, {"problems": 5}])
def test_what_cannot_be_tested_is_left_out_with_a_note(options: dict[str, object]) -> None:
    found = needle(evidence(made(**options)), OPTIONS)
    assert found.decisions == ()
    assert sum("was not tested" in note for note in found.notes) == 2


def test_without_confidences_rad_is_still_judged() -> None:
    found = needle(evidence(replace(made(), scalars={}, missing={"cbw": "none"})), OPTIONS)
    assert verdicts_by_key(found) == {MISSES.key: ClaimVerdict.SUPPORTS}
