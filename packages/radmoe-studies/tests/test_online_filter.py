"""DeepConf's online filter over orders of arrival, against a slow and obvious version of itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from planted_pools import graded_pool
from radmoe.pool import open_pool
from radmoe.selection.confidence import lowest_window, mean, token_confidence
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.arrivals import orders
from radmoe_studies.evidence import gather
from radmoe_studies.online_filter import filtered, running_lows, window_lows

N, WINDOW = 12, 8


def traces(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.random(int(rng.integers(4, 40))) for _ in range(N)]


@pytest.mark.parametrize("kept", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("counted", [True, False])
def test_the_filter_cuts_and_votes_as_the_obvious_one_does(kept: float, counted: bool) -> None:
    confidences = traces(1)
    lengths, lowest = np.array(list(map(len, confidences))), np.array([lowest_window(c, WINDOW) for c in confidences])
    rng = np.random.default_rng(2)
    answer = rng.integers(-1, 3, N)
    correct = answer == 1
    begun = orders(N, 20, key=5, seed=0)
    lows = [(at.astype(float), low) for at, low in (running_lows(c, WINDOW) for c in confidences)]
    ours = filtered(lows, lowest, lengths, correct, answer if counted else None, begun, kept=kept, warm_up=4)
    for order, spent, hit in zip(begun, ours.spent, ours.hit, strict=True):
        bar = np.percentile(lowest[order[:4]], 100 * (1 - kept))
        total, voters = 0, []
        for m, i in enumerate(order):
            own, cut = confidences[i], len(confidences[i])
            for end in range(WINDOW, len(own) + 1):
                if m >= 4 and own[end - WINDOW : end].mean() < bar:
                    cut = end
                    break
            total += cut
            if lowest[i] >= bar:
                voters.append(int(i))
        assert spent == total
        if counted:
            weight = {a: sum(lowest[i] for i in voters if answer[i] == a) for a in range(3)}
            right = float(bool(weight) and max(weight.values()) > 0 and max(weight, key=lambda a: weight[a]) == 1)
        else:
            right = float(correct[max(voters, key=lambda i: lowest[i])])
        assert hit == right


def test_the_lows_of_a_pool_are_those_of_its_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    recipe = Planted(problems=3, rollouts=4, tokens=40, shape=RouterShape(4, 16, 2))
    path = graded_pool(tmp_path / "pool", list(planted.groups(recipe)))
    for _ in range(2):  # the second comes from the cache
        evidence = gather([path], confidence_window=WINDOW)
        known = window_lows(evidence.panels[0])
        assert known is not None
        for row, group in enumerate(open_pool(path).groups()):
            for (at, low), rollout in zip(known.of(row), group.rollouts, strict=True):
                wanted = running_lows(token_confidence(rollout.topk_logprobs), WINDOW)  # type: ignore[arg-type]
                assert np.array_equal(at, wanted[0])
                assert np.array_equal(low, wanted[1])


def test_a_pool_without_log_probabilities_has_no_lows(tmp_path: Path) -> None:
    recipe = Planted(problems=2, rollouts=4, tokens=40, logprobs=False, shape=RouterShape(4, 16, 2))
    evidence = gather([graded_pool(tmp_path / "pool", list(planted.groups(recipe)))], use_cache=False)
    assert window_lows(evidence.panels[0]) is None


@pytest.mark.slow
@given(npst.arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 30)), st.integers(1, 20))
def test_running_lows_are_the_windows_that_are_lower_than_all_before(values: np.ndarray, width: int) -> None:
    at, low = running_lows(values, width)
    if len(values) < width:
        assert len(at) == len(low) == 0
        return
    means = [mean(values[i : i + width]) for i in range(len(values) - width + 1)]
    assert low[-1] == pytest.approx(min(means), abs=1e-9)
    assert (np.diff(low) < 0).all()
    assert at[0] == width
    for tokens, own in zip(at.tolist(), low.tolist(), strict=True):
        assert own == pytest.approx(means[tokens - width], abs=1e-9)
