"""Captures that race: rollouts that fall behind end early, what is kept is what was sampled, and an interrupt changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_moe
from radmoe.capture import CaptureInterrupted, Plan, Progress, capture_pool
from radmoe.engines.base import Engine, Sampling
from radmoe.errors import InputError, PoolMismatch
from radmoe.online import OnlineSelector
from radmoe.pool import Pool, merge_pools, open_pool
from radmoe.problems import Question
from radmoe.racing import GIVEN_UP, Racing
from radmoe.selector import select

QUESTIONS = [Question(f"q{i}", f"So the sum is {i}", "text") for i in range(4)]
RULE = Racing(warm_up=4, patience=3)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_moe.engine("qwen3-moe")


@pytest.fixture(scope="module")
def plan(engine: Engine) -> Plan:
    return Plan(QUESTIONS, engine, Sampling(max_tokens=40, seed=1), n=16, batch_size=8, adaptive=RULE, preset="best")


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    path = tmp_path_factory.mktemp("race") / "pool"
    capture_pool(plan, path)
    return open_pool(path)


@pytest.fixture(scope="module")
def fixed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    path = tmp_path_factory.mktemp("race") / "fixed"
    capture_pool(replace(plan, adaptive=None), path)
    return open_pool(path)


def runs(pool: Pool) -> dict[tuple[str, int], tuple[int, str, str]]:
    rows = pool.runs(["problem_id", "rollout_index", "tokens", "finish_reason", "text"]).to_pylist()
    return {(r["problem_id"], r["rollout_index"]): (r["tokens"], r["finish_reason"], r["text"]) for r in rows}


def test_each_rollout_ends_where_the_rule_says_by_what_a_fixed_n_sampled(whole: Pool, fixed: Pool) -> None:
    given_up = 0
    for problem in whole.problems:
        group = fixed.group(problem)
        logprobs = [rollout.sampled_logprobs for rollout in group.rollouts]
        bar = RULE.bar([one for one in logprobs[:4] if one is not None])
        selector = OnlineSelector(group.shape, group.vocab, kind="text", most=16, preset="best")
        survived, picked = 0, None
        for index, rollout in enumerate(group.rollouts):
            assert logprobs[index] is not None
            cut = None if index < 4 else bar.given_up(logprobs[index])
            tokens, reason, text = runs(whole)[problem, index]
            assert tokens == (len(rollout) if cut is None else cut)
            assert (reason == GIVEN_UP) == (cut is not None)
            assert str(fixed.texts(problem)[index]).startswith(text.rstrip("\ufffd"))  # half a character, perhaps
            given_up += cut is not None
            if cut is None:
                before = picked
                picked = selector.add(rollout, rollout_index=index).selection.rollout_index
                survived = 0 if index < 4 or picked != before else survived + 1
            if survived == 3:
                break
        assert {i for name, i in runs(whole) if name == problem} == set(range(index + 1))
    assert given_up > 0


def test_groups_hold_what_finished_and_the_pool_counts_the_rest(whole: Pool) -> None:
    assert whole.verify() == []
    for group in whole.groups():
        lost = whole.given_up(group.problem_id)
        assert group.rollout_indices is not None
        assert not set(lost) & set(group.rollout_indices)
        assert {**lost, **dict(zip(group.rollout_indices, map(len, group.rollouts), strict=True))} == {
            index: tokens for (problem, index), (tokens, *_) in runs(whole).items() if problem == group.problem_id
        }
        assert select(group, preset="best").rollout_index in group.rollout_indices
    assert len(whole) == sum(map(len, whole.groups())) < len(runs(whole))


def test_what_is_said_counts_those_that_were_given_up(plan: Plan, whole: Pool, tmp_path: Path) -> None:
    seen: list[Progress] = []
    done = capture_pool(plan, tmp_path / "p", progress=seen.append)
    lost = sum(len(whole.given_up(problem)) for problem in whole.problems)
    assert (done.rollouts, done.given_up, done.sampled) == (len(whole), lost, len(whole) + lost)
    assert done.tokens == sum(tokens for tokens, *_ in runs(whole).values()) == seen[-1].tokens
    assert f"{lost} more given up on the way" in str(done)
    again = capture_pool(plan, tmp_path / "p")
    assert (again.sampled, again.tokens, again.given_up, again.stopped) == (0, 0, lost, done.stopped)
    assert f"{len(runs(whole))} of them from before" in str(again)


@pytest.mark.parametrize("after", [1, 15, 22])
def test_a_race_that_was_interrupted_goes_on_as_if_it_had_not_been(
    after: int, plan: Plan, whole: Pool, tmp_path: Path
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rollouts == after:
            raise KeyboardInterrupt

    with pytest.raises(CaptureInterrupted, match=rf"{after} rollouts are safe"):
        capture_pool(plan, tmp_path / "p", progress=interrupt)
    done = capture_pool(plan, tmp_path / "p")
    assert done.sampled == len(runs(whole)) - after
    assert runs(open_pool(tmp_path / "p")) == runs(whole)


def test_parts_of_a_race_merge_and_a_rollout_that_was_given_up_in_two_is_refused(
    plan: Plan, whole: Pool, tmp_path: Path
) -> None:
    for part in (1, 2):
        capture_pool(plan.part(part, 2), tmp_path / str(part))
    merged = merge_pools([tmp_path / "1", tmp_path / "2"], tmp_path / "both")
    assert runs(merged) == runs(whole)
    assert [merged.given_up(p) for p in whole.problems] == [whole.given_up(p) for p in whole.problems]
    with pytest.raises(PoolMismatch, match="both hold rollout"):
        merge_pools([tmp_path / "1", tmp_path / "both"], tmp_path / "twice")


def test_a_race_of_fewer_rollouts_than_its_warm_up_is_a_capture_of_fixed_n(plan: Plan, tmp_path: Path) -> None:
    done = capture_pool(replace(plan, n=3), tmp_path / "p")
    assert (done.rollouts, done.given_up, done.stopped) == (12, 0, {"at the limit": 4})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling": Sampling(topk_logprobs=0), "preset": "paper"}, "race by their log-probabilities, and none"),
        ({"n": 1}, "n must be 2 or more"),
    ],
)
def test_what_cannot_race_is_refused(change: dict[str, object], message: str, plan: Plan) -> None:
    with pytest.raises(InputError, match=message):
        replace(plan, **change)  # type: ignore[arg-type]


def test_an_engine_that_cannot_give_up_rollouts_says_so(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(plan.engine), "races", False)
    with pytest.raises(InputError, match="engine transformers cannot give up a rollout that it has begun"):
        replace(plan)
