"""Hits of a panel: RAD as selection picks, votes by expectation, and nothing where nothing was located."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import panel, relabelled
from planted_pools import graded_pool
from radmoe.evaluation import evaluate_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.evidence import Request, gather
from radmoe_studies.picks import eligible, highest, majority, rad, rate, standard

WINDOW = Request("delimiter@16")


def test_rad_and_the_rate_are_those_of_evaluation(tmp_path: Path) -> None:
    pool = graded_pool(tmp_path / "pool", list(planted.groups(Planted(problems=6, rollouts=12, tokens=120))))
    (evaluated,) = evaluate_pool(pool, use_cache=False)
    evidence = gather([pool], use_cache=False)
    evidence.read(lambda one: [standard(one)])
    (made,) = evidence.panels
    assert rad(made).tolist() == evaluated.outcomes.hits["rad"].tolist()
    assert rate(made) == pytest.approx(evaluated.outcomes.counts["right"] / evaluated.outcomes.counts["rollouts"])


def test_a_vote_is_scored_by_expectation_over_tied_answers() -> None:
    made = panel(problems=2, n=4)
    answers = np.array([[0, 0, 1, 1], [0, 1, 1, -1]])
    made = relabelled(made, answers, answers == 0)
    assert majority(made).tolist() == [0.5, 0.0]


def test_where_nothing_is_located_nothing_is_picked() -> None:
    made = panel(problems=3, n=8, requests=[WINDOW], located=0.0)
    assert np.isnan(rad(made)).all()
    assert not eligible(made).any()
    assert highest(np.full((2, 3), np.nan)).tolist() == [-1, -1]
