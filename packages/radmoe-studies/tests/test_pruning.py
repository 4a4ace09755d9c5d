"""Races in many orders: the picks, the tokens and the end are those of the rule and of the online selector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool
from radmoe.selection.confidence import likelihood
from radmoe.selection.online import OnlineSelector
from radmoe.selection.rule import Rule
from radmoe.selection.selector import similarity
from radmoe.types import RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.arrivals import orders
from radmoe_studies.evidence import gather
from radmoe_studies.pruning import log_probs, prune, running_likelihood
from radmoe_studies.subcohorts import SubcohortProblem

N = 24
RECIPE = Planted(problems=3, rollouts=N, tokens=30, shape=RouterShape(4, 16, 2))


def raced(group: RolloutGroup, order: list[int], preset: str, patience: int | None) -> tuple[int, int, int]:
    """The pick (-1 for none), tokens and finished rollouts of one order, one rollout after the other."""
    logprobs = [np.asarray(rollout.sampled_logprobs) for rollout in group.rollouts]
    first = [logprobs[i] for i in order[:8]]
    start = -(-int(np.median([len(one) for one in first]) * 2) // 8)  # a quarter of the median, which may end in a half
    selector = OnlineSelector(group.shape, group.vocab, kind="math", most=N, rule=Rule(preset=preset))
    spent = finished = survived = 0
    picked: int | None = None
    for number, one in enumerate(order):
        own, cut = logprobs[one], None
        for t in range(max(start, 1), len(own)) if number >= 8 else ():
            if own[:t].mean(dtype=float) < np.median([one[:t].mean(dtype=float) for one in first]):
                cut = t
                break
        spent += len(logprobs[one]) if cut is None else cut
        if cut is not None:
            continue
        finished += 1
        decision = selector.add(group.rollouts[one], rollout_index=number)
        located = decision.selection.anchors[-1] is not None
        if located and number >= 8:
            survived = survived + 1 if decision.selection.rollout_index == picked else 0
        picked = decision.selection.rollout_index
        if patience is not None and survived >= patience:
            break
    return -1 if picked is None else order[picked], spent, finished


@pytest.mark.parametrize("preset", ["paper", "best"])
@pytest.mark.parametrize("patience", [None, 2, 4])
def test_a_race_is_that_of_the_rule_and_the_online_selector(preset: str, patience: int | None) -> None:
    for made in planted.groups(RECIPE):
        group = made.group
        rules = [Rule(preset=preset).settle("math", m) for m in range(1, N + 1)]
        S, reading = similarity(group, rules[-1])
        place = np.where(reading.located, np.cumsum(reading.located) - 1, -1)
        nobody = np.zeros(len(S), np.int64)
        rollout = np.concatenate((np.flatnonzero(reading.located), [-1]))
        confidence = np.array([likelihood(np.asarray(group.rollouts[i].sampled_logprobs)) for i in rollout[:-1]])
        begun = orders(N, 6, key=7, seed=0)
        out = prune(
            SubcohortProblem.of(S, nobody.astype(bool), nobody, None),
            place,
            begun,
            np.array([len(r) for r in group.rollouts]),
            running_likelihood([np.asarray(r.sampled_logprobs) for r in group.rollouts]),
            np.array([rule.k for rule in rules]),
            confidence if preset == "best" else None,
            patience=patience,
        )
        for o, order in enumerate(begun.tolist()):
            mine = (int(rollout[out.picks[o]]), int(out.spent[o]), int(out.finished[o]))
            assert mine == raced(group, order, preset, patience)
        assert (out.finished < N).any()


def test_likelihood_so_far_is_the_mean_of_the_tokens_so_far_and_stays_behind_the_end() -> None:
    running = running_likelihood([np.array([-1, -3, -2], np.float32), np.array([-4], np.float32)])
    assert running.tolist() == [[-1, -2, -2], [-4, -4, -4]]


def test_log_probabilities_are_those_of_the_pool_also_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    groups = list(planted.groups(RECIPE))
    path = graded_pool(tmp_path / "pool", groups, task="math-2")
    for _ in range(2):
        evidence = gather([path], confidence_window=8, use_cache=True)
        (panel,) = evidence.panels
        known = log_probs(panel)
        assert known is not None
        for row, problem in enumerate(panel.problem_ids):
            group = next(made.group for made in groups if made.group.problem_id == problem)
            own = [np.asarray(r.sampled_logprobs, np.float32) for r in group.rollouts]
            assert np.allclose(known.running(row), running_likelihood(own))
