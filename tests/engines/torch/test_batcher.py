"""Requests that share a batch: the same rollouts in any company, and nobody left waiting."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import tiny_moe
from completions import same
from radmoe.engines.base import Completion, Sampling
from radmoe.errors import EngineError, InputError

PROMPTS = [[5, 6, 7, 8], [9, 10], [11], [5, 6, 7, 8, 9, 10, 11, 12]]
SAMPLING = Sampling(max_tokens=24, seed=3, topk_logprobs=4)


def reference(engine: Any, sampling: Sampling = SAMPLING, n: int = 3) -> dict[tuple[int, int], Completion]:
    done = engine.generate(PROMPTS, n, sampling=sampling, keys=[f"p{i}" for i in range(len(PROMPTS))])
    return {(c.prompt_index, c.rollout_index): c for c in done}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-oss", "qwen3-next"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_request_gives_the_rollout_that_generate_gives(family: str, batch_size: int) -> None:
    engine = tiny_moe.engine(family)
    expected = reference(engine)
    with engine.batcher(batch_size=batch_size, topk_logprobs=4) as batch:
        futures = {
            (i, r): batch.submit(prompt, sampling=SAMPLING, key=f"p{i}", rollout_index=r)
            for r in (2, 0, 1)
            for i, prompt in enumerate(PROMPTS)
        }
        for name, future in futures.items():
            assert same(future.result(timeout=60), expected[name]), name


def test_requests_join_while_others_are_under_way() -> None:
    """One request after another, each sent when the first token of the one before could be there."""
    engine = tiny_moe.engine("qwen3-moe")
    expected = reference(engine)
    with engine.batcher(batch_size=8, topk_logprobs=4) as batch, ThreadPoolExecutor(4) as clients:

        def ask(name: tuple[int, int]) -> tuple[tuple[int, int], Completion]:
            i, r = name
            return name, batch.submit(PROMPTS[i], sampling=SAMPLING, key=f"p{i}", rollout_index=r).result(timeout=60)

        for name, done in clients.map(ask, expected):
            assert same(done, expected[name]), name


def test_requests_of_one_batch_are_sampled_each_in_its_own_way() -> None:
    engine = tiny_moe.engine("qwen3-moe")
    ways = [
        SAMPLING,
        replace(SAMPLING, temperature=0.0),
        replace(SAMPLING, temperature=0.5, top_p=0.8),
        replace(SAMPLING, max_tokens=60, seed=9),
        replace(SAMPLING, max_tokens=1),
    ]
    expected = [reference(engine, way, 1)[0, 0] for way in ways]
    with engine.batcher(batch_size=16, topk_logprobs=4) as batch:
        futures = [batch.submit(PROMPTS[0], sampling=way, key="p0") for way in ways]
        assert all(same(f.result(timeout=60), e) for f, e in zip(futures, expected, strict=True))


def test_a_request_that_cannot_be_begun_fails_alone() -> None:
    """Its error must not end the rollouts of others in the batch, whether they came before or with it."""
    engine = tiny_moe.engine("qwen3-moe")
    expected = reference(engine)
    broken = replace(SAMPLING, max_tokens=20)
    object.__setattr__(broken, "temperature", 1e308)  # past the checks: no number of float32
    with engine.batcher(batch_size=8, topk_logprobs=4) as batch:
        alone = batch.submit(PROMPTS[1], sampling=broken, key="p1")
        with pytest.raises(RuntimeError, match="overflow"):
            alone.result(timeout=60)
        futures = []
        for i, prompt in enumerate(PROMPTS):
            futures.append((i, batch.submit(prompt, sampling=SAMPLING, key=f"p{i}")))
            futures.append((None, batch.submit(prompt, sampling=broken, key="x")))
        for i, future in futures:
            if i is None:
                with pytest.raises(RuntimeError, match="overflow"):
                    future.result(timeout=60)
            else:
                assert same(future.result(timeout=60), expected[i, 0])
        assert not batch.closed


def test_a_rollout_that_cannot_be_handed_over_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_moe.engine("qwen3-moe")
    completion = engine.completion

    def handed(done: Any) -> Completion:
        if done.job.key == "x":
            raise ValueError("no text")
        return completion(done)

    monkeypatch.setattr(engine, "completion", handed)
    with engine.batcher(batch_size=8, topk_logprobs=4) as batch:
        bad, good = (batch.submit(PROMPTS[0], sampling=SAMPLING, key=key) for key in ("x", "p0"))
        with pytest.raises(ValueError, match="no text"):
            bad.result(timeout=60)
        assert good.result(timeout=60).text


def test_it_goes_on_after_a_pause() -> None:
    engine = tiny_moe.engine("qwen3-next")
    expected = reference(engine)
    with engine.batcher(batch_size=4, topk_logprobs=4) as batch:
        for i in (1, 3, 0):
            assert same(batch.submit(PROMPTS[i], sampling=SAMPLING, key=f"p{i}").result(timeout=60), expected[i, 0])


def test_closing_ends_what_is_under_way_and_every_thread() -> None:
    before = threading.active_count()
    batch = tiny_moe.engine("qwen3-moe").batcher(batch_size=2, topk_logprobs=0)
    long = replace(SAMPLING, max_tokens=200, topk_logprobs=0)
    futures = [batch.submit(PROMPTS[0], sampling=long, rollout_index=r) for r in range(20)]
    batch.close()
    assert threading.active_count() == before
    assert all(isinstance(f.exception(timeout=5), EngineError) or f.result() for f in futures)
    assert any(isinstance(f.exception(), EngineError) for f in futures)
    with pytest.raises(EngineError, match="this batch is closed"):
        batch.submit(PROMPTS[0], sampling=long)


@pytest.mark.slow
def test_a_request_that_has_not_begun_can_be_cancelled() -> None:
    with tiny_moe.engine("qwen3-moe").batcher(batch_size=1, topk_logprobs=4) as batch:
        futures: list[Future[Completion]] = [
            batch.submit(PROMPTS[0], sampling=SAMPLING, rollout_index=r) for r in range(12)
        ]
        assert futures[-1].cancel()
        assert all(f.result(timeout=60) for f in futures[:-1])
        with pytest.raises(CancelledError):
            futures[-1].result(timeout=5)


def test_a_request_that_nobody_waits_for_ends_and_the_others_are_not_disturbed() -> None:
    """Long requests are given up in mid-batch: their rows are free at the next step, and the rest samples as ever."""
    engine = tiny_moe.engine("qwen3-moe")
    expected = reference(engine)
    long = replace(SAMPLING, max_tokens=200, temperature=3.0)
    with engine.batcher(batch_size=8, topk_logprobs=4) as batch:
        lost = [batch.submit(PROMPTS[0], sampling=long, key="long", rollout_index=r) for r in range(12)]
        kept = {(i, 0): batch.submit(PROMPTS[i], sampling=SAMPLING, key=f"p{i}") for i in range(4)}
        while not any(future.running() for future in lost):
            pass
        for future in lost:
            batch.give_up(future)
        for name, future in kept.items():
            assert same(future.result(timeout=60), expected[name]), name
        for future in lost:
            if not future.cancelled() and (error := future.exception(timeout=60)) is not None:
                assert "given up" in str(error)
        assert any(future.cancelled() for future in lost)
        assert any(not future.cancelled() and future.exception() is not None for future in lost)
        assert batch.given_up() == frozenset()
        batch.give_up(lost[0])  # once more changes nothing
        assert not batch.closed


def test_a_batch_that_fails_tells_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from radmoe.engines.torch.decode import Decoder

    def fail(self: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(Decoder, "_step", fail)
    with tiny_moe.engine("qwen3-moe").batcher(batch_size=2, topk_logprobs=4) as batch:
        futures = [batch.submit(PROMPTS[0], sampling=SAMPLING)]
        with pytest.raises(RuntimeError, match="no such kernel"):
            futures[0].result(timeout=60)
        with pytest.raises(EngineError, match="closed"):
            batch.submit(PROMPTS[0], sampling=SAMPLING)


def test_requests_that_cannot_be_served_are_refused_at_once() -> None:
    engine = tiny_moe.engine("qwen3-moe")
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        engine.batcher(batch_size=0)
    with engine.batcher(batch_size=2, topk_logprobs=4) as batch:
        with pytest.raises(InputError, match="this batch keeps 4 logprobs, the request wants 20"):
            batch.submit(PROMPTS[0], sampling=Sampling(max_tokens=4))
        with pytest.raises(InputError):
            batch.submit([10**6], sampling=SAMPLING)
        assert batch.submit(PROMPTS[0], sampling=SAMPLING).result(timeout=60).finish_reason in ("stop", "length")
