"""Study 25 on panels whose confidence follows density as much as was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planted_panels import evidence, panel
from radmoe.types import Kind
from radmoe_studies.base import Findings, Options
from radmoe_studies.basins import densities
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.orthogonality import correlations, orthogonality

OPTIONS = Options(resamples=400)
REQUESTS = (Request("delimiter@16"), Request("delimiter@16", "binary"))


def planted(strength: float, *, flips: bool = False, kind: Kind = "math", seed: int = 0, located: float = 1.0) -> Panel:
    """A panel whose confidence is density (in standard deviations) times the strength, and noise; with flips, the sign
    alternates from problem to problem."""
    one = panel(
        requests=REQUESTS, kind=kind, dataset="code" if kind == "code" else "math-2", seed=seed, n=64, located=located
    )
    one.reads[REQUESTS[1]] = one.reads[REQUESTS[0]]
    read = one.read(REQUESTS[0])
    density = densities(read.values, read.located, one.setting.k)
    scaled = (density - np.nanmean(density, 1, keepdims=True)) / np.nanstd(density, 1, keepdims=True)
    sign = np.where(np.arange(len(one)) % 2, -1.0, 1.0)[:, None] if flips else 1.0
    noise = np.random.default_rng(seed).standard_normal(density.shape)
    return replace(one, scalars={"cbw": strength * sign * np.nan_to_num(scaled) + noise})


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_confidence_that_knows_nothing_of_density_is_orthogonal_in_mean_and_in_every_split() -> None:
    found = orthogonality(evidence(planted(0.0), planted(0.0, kind="code", seed=1)), OPTIONS)
    assert verdicts(found) == {
        "mean-near-zero": ClaimVerdict.SUPPORTS,
        "every-split": ClaimVerdict.SUPPORTS,
        "most-problems": ClaimVerdict.SUPPORTS,
    }
    names = [row.cells[0].value for row in found.tables[0].rows[:4]]
    assert names == ["lab-qwen thinking", "all", "well-posed", "code"]
    sd, shuffled = (found.tables[0].rows[1].cells[i].value for i in (3, 4))
    assert isinstance(sd, float)
    assert isinstance(shuffled, float)
    assert abs(sd - shuffled) < 0.03
    assert abs(shuffled - 1 / np.sqrt(63)) < 0.01  # what shuffling 64 rollouts gives


def test_confidence_that_follows_density_refutes_everything_and_its_size_is_found() -> None:
    found = orthogonality(evidence(planted(1.0), planted(1.0, kind="code", seed=1)), OPTIONS)
    assert set(verdicts(found).values()) == {ClaimVerdict.REFUTES}
    assert abs(found.decisions[0].estimate - np.sqrt(0.5)) < 0.05


def test_signs_that_cancel_are_near_zero_in_mean_but_not_in_single_problems() -> None:
    found = orthogonality(evidence(planted(1.0, flips=True)), OPTIONS)
    assert verdicts(found)["most-problems"] == ClaimVerdict.REFUTES
    assert "every-split" not in verdicts(found)
    assert any("every-split" in note for note in found.notes)
    row = found.tables[0].rows[1]
    assert abs(float(row.cells[2].value or 0)) < 0.1
    assert float(row.cells[3].value or 0) > 4 * float(row.cells[4].value or 0)


def test_only_located_rollouts_count_and_constant_ones_have_no_correlation() -> None:
    one = planted(0.7, located=0.5)
    read = one.read(REQUESTS[0])
    density = densities(read.values, read.located, one.setting.k)
    made = correlations(one, REQUESTS[0], 10, 0)
    inside = read.located[3]
    assert np.isclose(made.r[3], np.corrcoef(one.scalars["cbw"][3, inside], density[3, inside])[0, 1])
    flat = replace(one, scalars={"cbw": np.ones_like(density)})
    assert np.isnan(correlations(flat, REQUESTS[0], 10, 0).r).all()
    found = orthogonality(evidence(flat), OPTIONS)
    assert found.decisions == ()
    assert found.tables[0].rows[0].cells[2].value is None
