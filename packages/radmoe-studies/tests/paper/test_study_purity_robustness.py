"""Study 5 on panels whose order of readouts was planted, under some kernels or all, and on a pool on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel, similarity
from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options, study_named
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import COSINE, Panel, Read, Request, gather
from radmoe_studies.paper.purity_robustness import (
    READOUTS,
    VARIANTS,
    measured,
    purity_robustness,
    requests,
)
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=2000)  # any of 24 parts may refute, each corrected for their number
PAPERS = {"rand@16": 0.0, "rand-one-loc@16": 0.0, "pre-delim@16": 0.02, "delimiter@marker": 0.05, "delimiter@16": 0.3}


def planted_panel(signals: dict[str, float], cosine: dict[str, float] | None = None, **how: float) -> Panel:
    wanted = [Request(readout, kernel) for kernel in ("weighted", "binary", COSINE) for readout in READOUTS]
    of = {one: (cosine or signals)[one.readout] if one.kernel == COSINE else signals[one.readout] for one in wanted}
    return panel(requests=wanted, signal=of, **how)  # type: ignore[arg-type]


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_an_order_that_is_there_under_every_variant_is_found() -> None:
    found = purity_robustness(evidence(planted_panel(PAPERS)), OPTIONS)
    assert verdicts(found) == {
        "order": ClaimVerdict.SUPPORTS,
        "cosine": ClaimVerdict.SUPPORTS,
        "chance": ClaimVerdict.SUPPORTS,
        "majority-for-truth": ClaimVerdict.SUPPORTS,
    }
    assert any("'first character' could not be measured" in note for note in found.notes)  # panels have no texts
    table = found.tables[0]
    assert [row.cells[0].value for row in table.rows] == [variant.name for variant in VARIANTS]
    assert table.rows[3].cells[1].value is None
    assert table.rows[-1].cells[2].value is not None  # rand-one-loc is read under every kernel
    assert float(table.rows[0].cells[5].value or 0) > 0.95


def test_a_kernel_that_turns_the_order_round_refutes_it_and_is_not_alike() -> None:
    turned = PAPERS | {"rand@16": 0.3, "delimiter@16": 0.0}
    found = verdicts(purity_robustness(evidence(planted_panel(PAPERS, turned)), OPTIONS))
    assert found["order"] == ClaimVerdict.REFUTES
    assert found["cosine"] == ClaimVerdict.REFUTES


def test_an_order_that_is_not_the_papers_is_still_the_same_under_every_variant() -> None:
    """The window loses to pre-delim by every measure: that is a matter of study 2, and no variant turns it round."""
    other = PAPERS | {"pre-delim@16": 0.3, "delimiter@marker": 0.02, "delimiter@16": 0.1}
    assert verdicts(purity_robustness(evidence(planted_panel(other)), OPTIONS))["order"] == ClaimVerdict.SUPPORTS
    turned = verdicts(purity_robustness(evidence(planted_panel(other, PAPERS)), OPTIONS))
    assert turned["order"] == ClaimVerdict.REFUTES


def test_few_rollouts_make_the_two_chances_differ() -> None:
    low = PAPERS | {"delimiter@16": 0.02}
    found = verdicts(purity_robustness(evidence(planted_panel(low, n=4, problems=300)), OPTIONS))
    assert found["chance"] == ClaimVerdict.REFUTES


def test_routing_that_tells_right_from_wrong_but_not_answers_makes_the_majority_a_bad_stand_in() -> None:
    one = planted_panel(PAPERS, right=0.2, wrong_answers=2)
    rng = np.random.default_rng(0)
    S = np.stack([similarity(row.astype(np.int64), 0.3, rng) for row in one.correct])
    one.reads[Request("delimiter@16")] = Read(S, one.read(Request("delimiter@16")).start)
    assert verdicts(purity_robustness(evidence(one), OPTIONS))["majority-for-truth"] == ClaimVerdict.REFUTES


def test_where_everyone_is_right_nothing_is_decided() -> None:
    found = purity_robustness(evidence(planted_panel(PAPERS, right=1.0)), OPTIONS)
    assert found.decisions == ()
    assert all(cell.value is None for row in found.tables[0].rows for cell in row.cells[1:])


def test_on_a_pool_the_first_characters_come_from_its_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    pool = graded_pool(tmp_path / "pool", list(planted.groups(Planted(problems=16, rollouts=12, tokens=60))))
    seen = gather([pool])
    (ran,) = run_studies([study_named("purity-robustness")], seen, OPTIONS)
    assert ran.findings is not None
    (own,) = seen.panels
    character = measured(seen, own)[:, 3, -1]
    assert np.isfinite(character).sum() >= 5
    assert not any("first character" in note for note in ran.findings.notes)
    assert set(requests(own)) <= set(own.reads)
