"""Study 17 on panels in which RAD follows the most frequent answer, or nothing at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel, relabelled
from radmoe.evaluation.stats import partial_correlation
from radmoe_studies.base import Options
from radmoe_studies.correlations import moments
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.disagreement import disagreement, entropies, nulls, problems, within_bands

OPTIONS = Options(resamples=400)
READ = (Request("delimiter@16"),)


def mixed(seed: int, low: float = 0.35, high: float = 0.98, signal: float = 0.4, **more: object) -> Panel:
    """Problems of every difficulty between two rates."""
    right = np.linspace(low, high, 150).tolist()
    return panel(problems=150, n=24, right=right, signal=signal, requests=READ, seed=seed, **more)  # type: ignore[arg-type]


def verdicts(*panels: Panel) -> dict[str, ClaimVerdict]:
    found = disagreement(evidence(*panels), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_correlations_are_those_of_the_statistics_module() -> None:
    panels = [mixed(0), mixed(1, style="instruct")]
    rows = [problems(one) for one in panels]
    data, labels = np.concatenate(rows), np.repeat([0, 1], [len(own) for own in rows])
    simple, partial = moments(rows, [list(range(len(own))) for own in rows]).pooled()
    advantage = data[:, 2] - data[:, 1]
    assert simple[0] == pytest.approx(partial_correlation(data[:, 0], advantage, groups=labels).r)
    assert partial[0] == pytest.approx(partial_correlation(data[:, 0], advantage, data[:, 1], groups=labels).r)


def test_entropy_counts_answers_and_not_rollouts_without_one() -> None:
    one = panel(problems=3, n=4)
    answer = np.array([[0, 0, 1, 1], [0, 0, 0, -1], [-1, -1, -1, -1]])
    assert entropies(relabelled(one, answer)) == pytest.approx([np.log(2), 0.0, np.nan], nan_ok=True)


def test_a_selector_that_finds_the_majority_helps_where_rollouts_disagree() -> None:
    found = verdicts(mixed(0), mixed(1, style="instruct"))
    assert found["within-a-model"] == ClaimVerdict.SUPPORTS
    assert found["beyond-difficulty"] == ClaimVerdict.SUPPORTS


def test_a_selector_that_is_wrong_where_rollouts_disagree_refutes_it() -> None:
    one = mixed(0)
    reads = {READ[0]: one.reads[READ[0]]}
    S = reads[READ[0]].values.copy()
    worst = ~one.correct  # wrong rollouts are alike wherever there are any
    S[worst[:, :, None] & worst[:, None, :]] = 1.0
    backwards = replace(one, reads={READ[0]: reads[READ[0]]._replace(values=S)})
    assert verdicts(backwards)["within-a-model"] == ClaimVerdict.REFUTES


def test_a_random_selector_shows_neither_and_its_null_lies_around_zero() -> None:
    blind = mixed(3, signal=0.0)
    assert ClaimVerdict.SUPPORTS not in verdicts(blind).values()
    for null in nulls([problems(blind)], 200, 0):
        assert abs(null.mean()) < 0.03


def test_between_configurations_the_signs_are_those_planted() -> None:
    spread = [mixed(i, low, low + 0.04, style=f"s{i}") for i, low in enumerate((0.4, 0.55, 0.7, 0.85, 0.95))]
    found = verdicts(*spread)
    assert found["gain-falls-with-accuracy"] == ClaimVerdict.SUPPORTS
    assert found["gain-rises-with-entropy"] == ClaimVerdict.SUPPORTS
    turned = [
        mixed(i, low, low + 0.04, s, style=f"s{i}")
        for i, (low, s) in enumerate(((0.3, 0.0), (0.4, 0.0), (0.55, 0.05), (0.65, 0.4)))
    ]
    assert verdicts(*turned)["gain-falls-with-accuracy"] == ClaimVerdict.REFUTES


def test_too_little_is_said_in_notes() -> None:
    few = disagreement(evidence(mixed(0)), OPTIONS)
    assert any("too few for a correlation" in note for note in few.notes)
    easy = disagreement(evidence(mixed(0, 1.0, 1.0)), OPTIONS)
    assert not easy.decisions
    assert sum("cannot be tested" in note for note in easy.notes) == 2
    for table in (*few.tables, *easy.tables):
        for row in table.rows:
            assert all(np.isfinite(cell.value) for cell in row.cells if isinstance(cell.value, float))
    nobody = disagreement(evidence(panel(requests=READ, located=0.0)), OPTIONS)
    assert not nobody.tables


def test_within_bands_of_the_rate_a_selector_that_only_follows_the_rate_is_told_from_one_that_follows_entropy() -> None:
    one = mixed(0)
    rows = problems(one)
    rows[:, 2] = rows[:, 1] > 0.5  # its hit is a curve of the rate and of nothing else
    members, weights = [list(range(len(rows)))], np.ones((200, len(rows)))
    value, draws = within_bands([rows], members, weights)
    assert value == pytest.approx(draws[0])
    helped = rows.copy()
    helped[:, 2] = rows[:, 0] > np.median(rows[:, 0])
    assert within_bands([helped], members, weights)[0] > value + 0.2
