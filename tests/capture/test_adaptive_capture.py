"""Capture that stops: no rollout in vain, the same pool after an interrupt, and the pick that it stopped at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_moe
from radmoe.capture import CaptureInterrupted, Plan, Progress, capture_pool
from radmoe.capture.adaptive import Watches
from radmoe.engines.base import Engine, Sampling
from radmoe.errors import InputError, PoolMismatch
from radmoe.pool import Pool, Profile, open_pool
from radmoe.problems import Question
from radmoe.selection.online import OnlineSelector, Stopping
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select

pytestmark = pytest.mark.slow

QUESTIONS = [Question(f"q{i}", f"So the sum is {i}", "text") for i in range(5)]
RULE = Stopping(min_n=3, patience=2)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_moe.engine("qwen3-moe")


@pytest.fixture(scope="module")
def plan(engine: Engine) -> Plan:
    """Prompts end with the marker's first half of a thought: `boundary` is found where a rollout closes it."""
    return Plan(QUESTIONS, engine, Sampling(max_tokens=40, seed=1), n=12, batch_size=8, adaptive=RULE)


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    path = tmp_path_factory.mktemp("adaptive") / "pool"
    capture_pool(plan, path)
    return open_pool(path)


def tokens(pool: Pool) -> dict[str, list[list[int]]]:
    return {group.problem_id: [r.token_ids.tolist() for r in group.rollouts] for group in pool.groups()}


def test_the_rule_stands_in_the_run_record(whole: Pool, plan: Plan, tmp_path: Path) -> None:
    assert whole.sampling["adaptive"] == {"min_n": 3, "patience": 2, "preset": "paper"}
    assert whole.verify() == []
    capture_pool(replace(plan, problems=QUESTIONS[:1], places=None), tmp_path / "p")
    with pytest.raises(PoolMismatch, match="sampling"):
        capture_pool(replace(plan, problems=QUESTIONS[:1], places=None, adaptive=Stopping(3, 3)), tmp_path / "p")


def test_every_problem_has_as_many_rollouts_as_its_rule_asks_for(whole: Pool, plan: Plan) -> None:
    for group in whole.groups():
        assert group.rollout_indices == tuple(range(len(group)))
        selector = OnlineSelector(group.shape, group.vocab, kind="text", most=plan.n, stopping=RULE)
        decisions = [selector.add(rollout) for rollout in group.rollouts]
        assert [decision.stop for decision in decisions] == [False] * (len(group) - 1) + [True]
        assert decisions[-1].selection.index == select(group).index


def test_its_rollouts_are_those_of_a_capture_of_fixed_n(whole: Pool, plan: Plan, tmp_path: Path) -> None:
    capture_pool(replace(plan, adaptive=None), tmp_path / "p")
    fixed = tokens(open_pool(tmp_path / "p"))
    for problem, rollouts in tokens(whole).items():
        assert rollouts == fixed[problem][: len(rollouts)]


def test_what_is_said_counts_rollouts_tokens_and_reasons(plan: Plan, whole: Pool, tmp_path: Path) -> None:
    seen: list[Progress] = []
    done = capture_pool(plan, tmp_path / "p", progress=seen.append)
    assert done.rollouts == done.sampled == len(whole) == len(seen)
    assert done.tokens == whole.tokens == seen[-1].tokens
    assert done.stopped is not None
    assert sum(done.stopped.values()) == len(QUESTIONS)
    assert set(done.stopped) <= {"settled", "all the same", "at the limit"}
    assert (seen[-1].problems, seen[-1].rollouts) == (5, seen[-1].of_rollouts)
    assert f"{len(whole)} rollouts as needed" in str(done)
    again = capture_pool(plan, tmp_path / "p")
    assert (again.sampled, again.tokens, again.rollouts, again.stopped) == (0, 0, len(whole), done.stopped)


@pytest.mark.parametrize("after", [1, 7])
def test_a_capture_that_was_interrupted_goes_on_as_if_it_had_not_been(
    after: int, plan: Plan, whole: Pool, tmp_path: Path
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rollouts == after:
            raise KeyboardInterrupt

    with pytest.raises(CaptureInterrupted, match=rf"{after} rollouts are safe"):
        capture_pool(plan, tmp_path / "p", progress=interrupt)
    done = capture_pool(plan, tmp_path / "p")
    assert done.sampled == len(whole) - after
    assert tokens(open_pool(tmp_path / "p")) == tokens(whole)


def test_more_rollouts_later_go_on_with_problems_that_were_at_the_limit(
    plan: Plan, whole: Pool, tmp_path: Path
) -> None:
    capture_pool(replace(plan, n=3), tmp_path / "p")
    capture_pool(plan, tmp_path / "p")
    assert tokens(open_pool(tmp_path / "p")) == tokens(whole)


def test_what_the_pool_keeps_is_what_is_judged(plan: Plan, tmp_path: Path) -> None:
    small = replace(plan, weights=False, profile=Profile(True, (0, 2), ("boundary@16",)))
    capture_pool(small, tmp_path / "p")
    pool = open_pool(tmp_path / "p")
    watches = Watches(small, pool)
    assert watches.stopped == len(QUESTIONS)
    assert watches.left == 0
    for problem, watch in watches.each.items():
        assert len(watch.selector) == len(pool.group(problem))


def test_a_preset_decides_what_is_settled(plan: Plan, tmp_path: Path) -> None:
    capture_pool(replace(plan, preset="paper+dc"), tmp_path / "p")
    for group in open_pool(tmp_path / "p").groups():
        selector = OnlineSelector(
            group.shape, group.vocab, kind="text", most=plan.n, stopping=RULE, rule=Rule(preset="paper+dc")
        )
        decisions = [selector.add(rollout) for rollout in group.rollouts]
        assert [decision.stop for decision in decisions] == [False] * (len(group) - 1) + [True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 1}, "n must be 2 or more, got 1"),
        ({"preset": "worst"}, "unknown preset 'worst'"),
        ({"preset": "best", "sampling": Sampling(topk_logprobs=0)}, "preset best reads log-probabilities, and none"),
        ({"problems": [Question("q", "x", None)], "places": None}, "'q' looks like: give its kind"),
        ({"profile": Profile(readouts=("boundary@4",))}, "only boundary@4 would be kept: keep boundary@16 too"),
    ],
)
def test_what_it_could_not_select_from_is_refused(change: dict[str, object], message: str, plan: Plan) -> None:
    with pytest.raises(InputError, match=message):
        replace(plan, **change)  # type: ignore[arg-type]
