"""A batch for engines that only `generate`: rollouts as `generate` draws them, whoever asks and in whatever company."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from markov_engine import MarkovEngine
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.batches import GenerateBatcher
from radmoe.errors import EngineError, InputError

SAMPLING = Sampling(max_tokens=8, seed=3)


class Noting(MarkovEngine):
    """Notes its calls, and waits within a call until it may go on."""

    def __init__(self) -> None:
        super().__init__(7)
        self.calls: list[int] = []
        self.errors: list[Exception] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def generate(self, prompts: Any, n: int, **options: Any) -> Iterator[Completion]:
        self.calls.append(sum(len(each) for each in options["missing"]))
        if self.errors:
            raise self.errors.pop()
        for done in super().generate(prompts, n, **options):
            assert self.go_on.wait(30)
            yield done


def tokens(done: Completion) -> list[int]:
    return done.rollout.token_ids.tolist()


def test_requests_that_wait_are_sampled_by_one_call_as_generate_draws_them() -> None:
    engine = Noting()
    batch = engine.batcher(batch_size=64, topk_logprobs=SAMPLING.topk_logprobs)
    assert isinstance(batch, GenerateBatcher)
    engine.go_on.clear()
    first = batch.submit([5], sampling=SAMPLING, key="a")
    while not engine.calls:
        pass
    asked = [("b", i) for i in (2, 0, 1)] + [("c", 1), ("b", 2)]  # one of them twice
    futures = [batch.submit([5, 6], sampling=SAMPLING, key=key, rollout_index=i) for key, i in asked]
    engine.go_on.set()
    made = [future.result(30) for future in futures]
    batch.close()
    assert first.done()
    assert engine.calls == [1, 5]
    for (key, i), done in zip(asked, made, strict=True):
        (alone,) = MarkovEngine(7).generate([[5, 6]], i + 1, sampling=SAMPLING, keys=[key], missing=[[i]])
        assert tokens(done) == tokens(alone)
        assert done.rollout_index == i


def test_other_sampling_is_another_call() -> None:
    engine = Noting()
    batch = engine.batcher()
    futures = [batch.submit([5], sampling=Sampling(max_tokens=most)) for most in (4, 4, 9)]
    lengths = [len(future.result(30).rollout) for future in futures]
    batch.close()
    assert lengths[0] <= 4
    assert lengths[2] <= 9
    assert sum(engine.calls) == 3
    assert len(engine.calls) >= 2


def test_an_error_is_that_of_its_call_alone() -> None:
    engine = Noting()
    batch = engine.batcher()
    with pytest.raises(InputError, match="zero tokens"):
        batch.submit([])
    with pytest.raises(InputError, match="token ids of a prompt lie in"):
        batch.submit([99_999])
    engine.errors.append(EngineError("out of order"))
    bad = batch.submit([5], sampling=SAMPLING)
    with pytest.raises(EngineError, match="out of order"):
        bad.result(30)
    assert batch.submit([5], sampling=SAMPLING).result(30).text is not None
    batch.close()


def test_what_is_given_up_ends() -> None:
    engine = Noting()
    batch = engine.batcher(batch_size=2)
    engine.go_on.clear()
    begun = [batch.submit([5], sampling=SAMPLING, rollout_index=i) for i in range(2)]
    while not engine.calls:
        pass
    waiting = batch.submit([5], sampling=SAMPLING, rollout_index=2)
    for future in (begun[1], waiting):
        batch.give_up(future)
    engine.go_on.set()
    assert begun[0].result(30).rollout_index == 0
    with pytest.raises(EngineError, match="given up"):
        begun[1].result(30)
    with pytest.raises(CancelledError):
        waiting.result(30)
    batch.close()
    assert engine.calls == [2]


def test_closing_ends_what_waits() -> None:
    engine = Noting()
    batch = engine.batcher(batch_size=1)
    engine.go_on.clear()
    futures = [batch.submit([5], sampling=SAMPLING, rollout_index=i) for i in range(2)]
    while not engine.calls:
        pass
    threading.Timer(0.2, engine.go_on.set).start()
    batch.close()
    assert futures[0].result(0).rollout_index == 0
    with pytest.raises(EngineError, match="closed before this request was finished"):
        futures[1].result(0)
    with pytest.raises(EngineError, match="this batch is closed"):
        batch.submit([5])
