"""Batches of fixed size give the rollouts of batches that grow and shrink; on a CPU their step runs without a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import tiny_moe
from completions import same
from radmoe.engines.base import Completion, Job, Sampling
from radmoe.engines.torch.decode import Decoding, Listed
from radmoe_lab.inference.engine import LabEngine
from radmoe_lab.inference.static_cache import StaticRows
from radmoe_lab.inference.static_decode import StaticDecoder

PROMPTS = [[5, 6, 7, 8], [9, 10], [11], [5, 6, 7, 8, 9, 10, 11, 12]]
SAMPLING = Sampling(max_tokens=40, seed=3, topk_logprobs=4)
FAMILIES = ["qwen3-moe", "gpt-oss", "qwen3-next"]


def jobs(engine: Any, samplings: dict[int, Sampling], n: int) -> list[Job]:
    return [
        Job(i, r, f"p{i}", tuple(prompt), (how := samplings.get(i, SAMPLING)).max_tokens, how)
        for i, prompt in enumerate(PROMPTS)
        for r in range(n)
    ]


def static(engine: Any, work: list[Job], rows: int, *, capture: bool = True) -> dict[tuple[int, int], Completion]:
    decoder = StaticDecoder(engine.model, engine._recorder, Decoding(4, engine.eos, len(engine.vocab), capture))
    done = [engine.completion(finished) for finished in decoder.run(Listed(work), rows)]
    assert decoder.sampled == sum(len(c.rollout.token_ids) for c in done)
    return {(c.prompt_index, c.rollout_index): c for c in done}


def growing(engine: Any, work: list[Job], rows: int) -> dict[tuple[int, int], Completion]:
    done = map(engine.completion, engine.decoder(4).run(Listed(work), rows))
    return {(c.prompt_index, c.rollout_index): c for c in done}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 5, 32])
def test_the_rollouts_are_those_of_a_growing_batch(family: str, rows: int) -> None:
    engine = tiny_moe.lab_engine(family)
    work = jobs(engine, {}, 5)
    expected, seen = growing(engine, work, rows), static(engine, work, rows)
    assert seen.keys() == expected.keys()
    assert {c.finish_reason for c in expected.values()} == {"stop", "length"}
    assert [name for name in expected if not same(seen[name], expected[name])] == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_longer_than_a_sliding_window_and_than_the_first_batch_had_room_for(family: str) -> None:
    """The cache grows while rows are under way, and a window of prompt columns lies behind them."""
    engine = tiny_moe.lab_engine(family)
    generator = np.random.default_rng(0)
    prompts = [generator.integers(5, 90, size).tolist() for size in (3, 200, 7, 300, 60)]
    work = [
        Job(i, r, f"p{i}", tuple(prompt), 20 + 30 * i, SAMPLING) for i, prompt in enumerate(prompts) for r in range(2)
    ]
    expected, seen = growing(engine, work, 3), static(engine, work, 3)
    assert [name for name in expected if not same(seen[name], expected[name])] == []


def test_rows_of_one_batch_are_sampled_each_in_its_own_way() -> None:
    engine = tiny_moe.lab_engine("qwen3-moe")
    ways = {1: replace(SAMPLING, temperature=0.0), 2: replace(SAMPLING, temperature=0.5, top_p=0.7)}
    work = jobs(engine, ways, 2)
    expected, seen = growing(engine, work, 8), static(engine, work, 8)
    assert [name for name in expected if not same(seen[name], expected[name])] == []
    assert np.array_equal(seen[1, 0].rollout.token_ids, seen[1, 1].rollout.token_ids)


def test_without_capture_the_tokens_are_the_same() -> None:
    engine = tiny_moe.lab_engine("gpt-oss")
    work = jobs(engine, {}, 2)
    expected, seen = static(engine, work, 8), static(engine, work, 8, capture=False)
    for name, completion in seen.items():
        assert np.array_equal(completion.rollout.token_ids, expected[name].rollout.token_ids)
        assert completion.rollout.sampled_logprobs is None


@pytest.mark.slow
def test_a_run_that_was_given_up_leaves_nothing_behind_for_the_next() -> None:
    engine = tiny_moe.lab_engine("qwen3-next")
    work = jobs(engine, {}, 2)
    expected = {name: c.rollout.token_ids for name, c in growing(engine, work, 4).items()}
    decoder = StaticDecoder(engine.model, engine._recorder, Decoding(4, engine.eos, len(engine.vocab)))
    assert next(decoder.run(Listed(work), 4)) is not None  # and other rows are under way
    seen = {(f.job.prompt_index, f.job.rollout_index): f.columns[0] for f in decoder.run(Listed(work), 4)}
    assert seen.keys() == expected.keys()
    assert all(np.array_equal(seen[name], expected[name]) for name in expected)
    assert decoder.sampled == sum(map(len, expected.values()))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_requests_that_come_one_by_one_share_a_batch_of_fixed_size(family: str) -> None:
    """As on a GPU: the batcher and `generate` take their decoder from the engine."""
    engine = LabEngine(tiny_moe.model(family), tokenizer=tiny_moe.tokenizer(), streams=1)
    work = jobs(engine, {}, 2)
    expected = growing(engine, work, 8)
    engine._static = True
    with engine.batcher(batch_size=3, topk_logprobs=4) as batch:
        futures = {
            (job.prompt_index, job.rollout_index): batch.submit(
                PROMPTS[job.prompt_index], sampling=SAMPLING, key=job.key, rollout_index=job.rollout_index
            )
            for job in work
        }
        for name, future in futures.items():
            made = future.result(timeout=60)._replace(prompt_index=name[0])
            assert same(made, expected[name]), name
    again = engine.generate(PROMPTS, 2, sampling=SAMPLING, keys=[f"p{i}" for i in range(len(PROMPTS))], batch_size=5)
    assert all(same(c, expected[c.prompt_index, c.rollout_index]) for c in again)
    assert engine.tokens_sampled == sum(len(c.rollout) for c in expected.values())


@pytest.mark.parametrize("fault", ["a seed that is none", "a limit that needs more memory than there is"])
def test_a_request_that_cannot_be_begun_fails_alone(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error must not end the rollouts of others, whether it came alone, with them, or while they were under way."""
    engine = LabEngine(tiny_moe.model("qwen3-moe"), tokenizer=tiny_moe.tokenizer(), streams=1)
    engine.context = None
    expected = growing(engine, jobs(engine, {}, 1), 8)
    engine._static = True
    allocate = StaticRows.__init__

    def limited(rows: StaticRows, model: Any, count: int, capacity: int) -> None:
        if capacity > 256:
            raise RuntimeError("out of memory")
        allocate(rows, model, count, capacity)

    monkeypatch.setattr(StaticRows, "__init__", limited)
    broken = replace(SAMPLING, max_tokens=20 if "seed" in fault else 300)
    if "seed" in fault:
        object.__setattr__(broken, "seed", "none")  # past the checks
    with engine.batcher(batch_size=3, topk_logprobs=4) as batch:
        alone = batch.submit(PROMPTS[1], sampling=broken, key="p1")
        assert alone.exception(timeout=60) is not None
        futures = []
        for i, prompt in enumerate(PROMPTS):
            futures.append((i, batch.submit(prompt, sampling=SAMPLING, key=f"p{i}")))
            futures.append((None, batch.submit(prompt, sampling=broken, key="x")))
        for i, future in futures:
            if i is None:
                assert future.exception(timeout=60) is not None
            else:
                assert same(future.result(timeout=60)._replace(prompt_index=i), expected[i, 0])
        assert not batch.closed


def test_it_stops_when_told_to() -> None:
    engine = tiny_moe.lab_engine("qwen3-moe")
    decoder = StaticDecoder(engine.model, engine._recorder, Decoding(0, engine.eos, len(engine.vocab)))
    asked = iter([False, True])
    assert list(decoder.run(Listed(jobs(engine, {}, 2)), 4, lambda: next(asked))) == []
    assert 0 < decoder.sampled <= 4 * 16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: a CUDA graph cannot be recorded without one")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_gives_the_rollouts_of_a_cpu(family: str) -> None:
    expected = growing(tiny_moe.lab_engine(family), work := jobs(tiny_moe.lab_engine(family), {}, 5), 32)
    engine = LabEngine(tiny_moe.model(family).to("cuda"), tokenizer=tiny_moe.tokenizer())
    seen = static(engine, work, 32)
    assert sum(same(seen[name], expected[name]) for name in expected) >= len(expected) - 1
