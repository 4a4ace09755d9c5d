"""Study 16 on panels whose bands of layers are as good as was planted, and on a real pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planted_panels import evidence
from planted_picks import with_picks
from planted_pools import graded_pool
from radmoe.evaluation.stats import holm
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.bands import BANDS, READOUTS, SINGLE, arms_of, layers_of, loss_p, omnibus, wanted
from radmoe_studies.base import Findings, Options, study_named
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request, gather
from radmoe_studies.paper.layers import layers
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=400)
ALL = {"no-tenth-is-necessary", "shallowest-tenth-suffices", "depth-is-flat", "depth-matters-in-science-only"}


def alike(request: Request) -> float:
    return 0.7


def science_is_shallow(request: Request) -> float:
    return 0.85 if request.layers in ("s0", "s1", "s2") else 0.7


def only_all_together(request: Request) -> float:
    """Every tenth is needed, and none is enough."""
    if request.layers is None:
        return 0.8
    return 0.5 if request.layers[0] == "x" else 0.2 + 0.05 * int(request.layers[1])


def three(chance: object, science: object, problems: int = 4000) -> list[Panel]:
    kinds = (("math", "math-1", chance), ("choice", "gpqa", science), ("code", "code", chance))
    return [
        with_picks(wanted, own, problems=problems, n=4, kind=kind, dataset=name, seed=i)  # type: ignore[arg-type]
        for i, (kind, name, own) in enumerate(kinds)
    ]


def verdicts(findings: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in findings.decisions}


@pytest.mark.slow
def test_layers_that_are_all_alike_are_redundant() -> None:
    def choice(request: Request) -> float:  # at the readout of the claim about science only
        return science_is_shallow(request) if request.readout == "boundary@16" and request.layers != "s0" else 0.7

    found = layers(evidence(*three(alike, choice)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.SUPPORTS)
    assert len(found.tables[0].rows) == 8
    assert [row.cells[5].value for row in found.tables[1].rows[:2]] == pytest.approx([0.7116, 0.7073])


@pytest.mark.slow
def test_layers_that_are_needed_together_refute_every_claim() -> None:
    found = layers(evidence(*three(only_all_together, only_all_together, 1000)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.REFUTES)
    (decision,) = (d for d in found.decisions if d.claim.key == "layers.shallowest-tenth-suffices")
    assert decision.estimate == pytest.approx(0.6, abs=0.05)
    assert all(float(str(row.cells[4].value)) < 0.001 for row in found.tables[1].rows[1:])  # Holm
    without = [cell for row in found.tables[2].rows if str(row.cells[0].value)[0] == "x" for cell in row.cells[1:]]
    assert [float(str(cell.value)) for cell in without] == pytest.approx([0.3] * 80, abs=0.05)
    assert all(cell.stars == "*" for cell in without)


def test_a_problem_that_four_configurations_answered_alike_counts_once_in_every_p() -> None:
    """McNemar and Cochran's chi-squared would take the same problems, asked four times, for four times as many."""
    one = with_picks(wanted, lambda request: 0.75 if request.layers is None else 0.55, problems=40, n=4)
    once, often = (arms_of([one] * times, "boundary@marker", "weighted", OPTIONS) for times in (1, 4))
    assert loss_p(often, "c0") == pytest.approx(loss_p(once, "c0"))
    assert loss_p(once, "c0") != 1.0
    assert omnibus(often, SINGLE) == pytest.approx(omnibus(once, SINGLE), abs=0.1)


def test_p_is_corrected_over_all_that_a_table_prints() -> None:
    found = layers(evidence(with_picks(wanted, only_all_together, problems=30, n=4)), OPTIONS)
    summary, tenths = found.tables[:2]
    plain, corrected = ([row.cells[at].value for row in tenths.rows[1:]] for at in (3, 4))
    assert corrected == holm(plain).tolist()  # type: ignore[arg-type]
    assert [column.title for column in summary.columns if "p" in column.title.split()] == [
        "Q, single: Holm p", "Q, cumulative: Holm p", "Q, all but one: Holm p", "Holm p",
    ]  # fmt: skip
    assert "Holm's correction is over all p of the table" in " ".join(summary.notes)


def test_the_labs_choice_questions_cannot_express_a_claim_about_gpqa() -> None:
    panels = three(alike, science_is_shallow, 100)
    panels[1] = replace(panels[1], dataset="choice")
    made = {d.claim.key.partition(".")[2]: d for d in layers(evidence(*panels), OPTIONS).decisions}
    assert made["depth-matters-in-science-only"].verdict is ClaimVerdict.NOT_EXPRESSIBLE
    assert "GPQA" in made["depth-matters-in-science-only"].inexpressible


def test_a_few_problems_tell_nothing() -> None:
    found = layers(evidence(*three(alike, alike, 40)), OPTIONS)
    assert set(verdicts(found).values()) <= {ClaimVerdict.UNDECIDED, ClaimVerdict.AT_THE_MARGIN}


def test_a_loss_is_over_the_problems_that_have_both() -> None:
    deep = with_picks(wanted, lambda request: 0.2, problems=200, n=4, layers=4)
    wide = with_picks(wanted, lambda request: 0.9, problems=200, n=4, layers=12, seed=1)
    arms = arms_of([deep, wide], "delimiter@16", "weighted", OPTIONS)
    assert abs(arms.loss("s0").estimate) < 0.05  # four layers have no s0: its problems are the other panel's alone


def test_tenths_that_hold_no_layer_are_left_out_and_named() -> None:
    assert [layers_of(band, 4) for band in ("s0", "s2", "c0", "c1", "c2", "x0", "x2")] == [
        None, "s2", "0", None, "c2", None, "x2",
    ]  # fmt: skip
    assert all(layers_of(band, total) for band in BANDS[1:] for total in (10, 11, 12, 48))
    found = layers(evidence(with_picks(wanted, alike, problems=50, layers=4)), OPTIONS)
    assert any("4 layers" in note and "first layer" in note for note in found.notes)
    assert any(row.cells[0].value == "c0" for row in found.tables[2].rows)
    assert not any(row.cells[0].value == "s0" for table in found.tables[1:3] for row in table.rows)


@pytest.mark.parametrize("layers_known", [0, 1])
def test_a_router_without_tenths_is_read_as_a_whole(layers_known: int) -> None:
    found = layers(evidence(with_picks(wanted, alike, problems=50, layers=layers_known)), OPTIONS)
    assert "no-tenth-is-necessary" not in verdicts(found)
    assert any("cannot be tested" in note for note in found.notes)


def test_without_science_its_claim_is_left_out() -> None:
    found = layers(evidence(three(alike, alike, 100)[0]), OPTIONS)
    assert set(verdicts(found)) == ALL - {"depth-matters-in-science-only"}
    assert any("depth-matters-in-science-only cannot be tested" in note for note in found.notes)


def test_nothing_located_leaves_empty_cells_and_no_verdict() -> None:
    found = layers(evidence(with_picks(wanted, alike, problems=20, located=lambda request: 0.0)), OPTIONS)
    assert found.decisions == ()
    assert all(cell.value is None for row in found.tables[0].rows for cell in row.cells[1:])


def test_text_alone_has_nothing_to_compare() -> None:
    assert layers(evidence(with_picks(wanted, alike, problems=20, kind="text")), OPTIONS).tables == ()


@pytest.mark.slow
def test_a_real_pool_is_read_twice_per_readout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    recipe = Planted(problems=6, rollouts=12, tokens=100, shape=RouterShape(11, 16, 4))
    pools = gather([graded_pool(tmp_path / "pool", list(planted.groups(recipe)))])
    (ran,) = run_studies([study_named("layers")], pools, OPTIONS)
    assert pools.windows == 2 * len(READOUTS) * 6 * 12
    assert ran.findings is not None
    assert [row.cells[1].value for row in ran.findings.tables[0].rows] == [6] * 8
    assert {d.claim.key for d in ran.findings.decisions} == {
        f"layers.{key}" for key in ALL - {"depth-matters-in-science-only"}
    }
