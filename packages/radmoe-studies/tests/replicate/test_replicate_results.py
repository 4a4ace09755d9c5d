"""Results of replications whose numbers were put there: verdicts true and false, the paper's rows, several people's runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimDecision, ClaimVerdict
from radmoe_studies.replicate.document import merge
from radmoe_studies.replicate.results import CLAIMS, results
from replications import cell, replication

OPTIONS = Options(resamples=200)
SUPPORTS, REFUTES, UNDECIDED = ClaimVerdict.SUPPORTS, ClaimVerdict.REFUTES, ClaimVerdict.UNDECIDED
MANY = 6_000  # problems: enough that every claim is decided


def decided(*cells: dict[str, Any]) -> dict[str, ClaimDecision]:
    found = results(replication(*cells), OPTIONS)
    return {one.claim.key.removeprefix("replicate."): one for one in found.decisions}


def verdicts(*cells: dict[str, Any]) -> dict[str, ClaimVerdict]:
    return {key: one.verdict for key, one in decided(*cells).items()}


@pytest.mark.slow
def test_what_the_paper_prints_is_reproduced_and_routing_adds() -> None:
    """GPQA in the paper: random 71.1, marker only 70.7, RAD 71.2 on the same problems."""
    shares = {"average": 0.6, "strict": 0.596, "rad": 0.601, "likelihood": 0.5, "preset:best": 0.65, "online": 0.5}
    shares |= {
        "rad+text-overlap+likelihood": 0.7,
        "text-overlap+likelihood": 0.6,
        "majority-split": 0.6,
        "rad+dc": 0.65,
    }
    found = decided(cell("gpqa_diamond", "choice", MANY, shares, choice=0.5))
    assert {key: one.verdict for key, one in found.items()} == {
        "strict-gain": SUPPORTS,
        "rad-gain": SUPPORTS,
        "rad-above-likelihood": SUPPORTS,
        "routing-adds-to-likelihood": SUPPORTS,
        "routing-adds-to-text": SUPPORTS,
        "rad-above-deepconf-online": SUPPORTS,
        "rad-above-choice": SUPPORTS,
        "main.on-par-with-majority": SUPPORTS,
        "main.fusion-on-par-with-majority": REFUTES,
        "main.above-average": REFUTES,
    }
    assert found["strict-gain"].claim.paper == "-0.4 points"
    assert found["rad-gain"].claim.paper == "+0.1 points"


@pytest.mark.slow
def test_what_the_paper_does_not_print_is_refuted_and_so_is_what_routing_does_not_add() -> None:
    shares = {"average": 0.6, "strict": 0.7, "rad": 0.7, "likelihood": 0.8, "preset:best": 0.8, "online": 0.8}
    shares |= {"rad+text-overlap+likelihood": 0.7, "text-overlap+likelihood": 0.8}
    found = verdicts(cell("gpqa_diamond", "choice", MANY, shares, choice=0.9))
    assert found.pop("main.above-average") is SUPPORTS
    assert len(found) == 7
    assert set(found.values()) == {REFUTES}


def test_thirty_problems_on_which_nothing_is_lost_do_not_decide() -> None:
    """A plain bootstrap would: 2 of 30 problems won, none lost, and no resample shows a loss."""
    found = decided(cell("aime_2025", "math", 30, {"rad": 20 / 30, "likelihood": 18 / 30}))["rad-above-likelihood"]
    assert found.estimate == pytest.approx(2 / 30)
    assert found.n == 30
    assert found.low < 0 < found.high
    assert found.verdict is UNDECIDED


@pytest.mark.slow
def test_the_papers_gain_of_rad_is_claimed_only_for_kinds_that_were_run_whole() -> None:
    """The paper pools the four math sets; the marker-only readout it prints for each."""
    sets = [cell(task, "math", 30, {}) for task in ("aime_2024", "aime_2025", "brumo_2025", "hmmt_feb_2025")]
    assert {"strict-gain", "rad-gain"} & set(verdicts(*sets[:3])) == {"strict-gain"}
    assert {"strict-gain", "rad-gain"} <= set(verdicts(*sets))
    code = decided(cell("livecodebench_v5", "code", 40, {}), sets[0])
    assert code["rad-gain"].n == 40
    assert code["strict-gain"].n == 70


def test_problems_on_which_rad_has_nothing_to_choose_from_are_left_out_as_in_the_papers_table() -> None:
    own = cell("gpqa_diamond", "choice", 40, {})
    own["counts"]["located"][:10] = [1] * 10
    found = decided(own)
    assert (found["rad-gain"].n, found["strict-gain"].n) == (30, 40)


def test_the_papers_rows_stand_beside_and_what_it_does_not_print_is_left_out() -> None:
    found = results(
        replication(cell("aime_2025", "math", 30, {"majority": 0.8}), cell("livecodebench_v5", "code", 20, {})), OPTIONS
    )
    rows = {(row.section.partition(",")[0], row.cells[0].value): row.cells for row in found.tables[0].rows}
    assert rows["aime_2025", "majority"][1].value == pytest.approx(0.8)
    assert [one.value for one in rows["aime_2025", "majority"][4:]] == [None, 0.881, 0.817]
    assert [one.value for one in rows["aime_2025", "RAD, marker only"][4:]] == [0.933, None, None]
    assert rows["aime_2025", "DeepConf online, keeps 10%"][3].value == 0.5  # of the tokens
    assert ("livecodebench_v5", "majority") not in rows  # programs are strings of their own
    assert found.notes == ("livecodebench_v5 has 20 problems here and 167 in the paper.",)


def test_choices_that_named_nothing_are_counted_as_wrong_and_said() -> None:
    own = cell("aime_2025", "math", 30, {}, choice=0.5)
    assert results(replication(own), OPTIONS).notes == ()
    own["choice"]["named"][:4] = [0] * 4
    (note,) = results(replication(own), OPTIONS).notes
    assert note == "aime_2025: the model named none of its answers on 4 of 30 problems, which count as wrong."


def test_two_runs_of_the_same_problems_are_no_more_problems() -> None:
    one = replication(cell("aime_2025", "math", 30, {"likelihood": 0.5}))
    two = merge({"a": one, "b": replication(cell("aime_2025", "math", 30, {"likelihood": 0.5}), seed=2)})
    alone, pooled = (results(body, OPTIONS).decisions for body in (one, two))
    assert [d.n for d in alone] == [d.n for d in pooled]
    assert [d.estimate for d in alone] == pytest.approx([d.estimate for d in pooled])
    assert ", 2 runs; the paper" in results(two, OPTIONS).tables[0].rows[0].section


def test_every_claim_names_its_rule_and_the_page_has_it() -> None:
    page = Path(__file__).parents[2] / "docs" / "replicate.md"
    text = " ".join(page.read_text().split())
    for claim in CLAIMS:
        assert f"`{claim.key}`" in text
        assert claim.rule in text
