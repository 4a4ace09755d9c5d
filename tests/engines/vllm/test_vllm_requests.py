"""Rows find their requests, whatever vLLM's scheduler does with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from radmoe.engines.base import Sampling
from radmoe.engines.vllm.plugin import STATUS, TAKE
from radmoe.errors import EngineError, InputError
from vllm_parts import GREEDY, STOCK, check


def status(engine: Any) -> dict[str, Any]:
    return engine.llm.collective_rpc(STATUS)[0]


def test_many_prompts_and_choices_at_once(engine: Any, replay: Any) -> None:
    prompts = [list(range(5, 9 + 7 * i)) for i in range(6)]
    done = list(engine.generate(prompts, 5, sampling=Sampling(max_tokens=20, seed=3), batch_size=12))
    assert sorted((c.prompt_index, c.rollout_index) for c in done) == [(p, r) for p in range(6) for r in range(5)]
    assert len({c.rollout.token_ids.tobytes() for c in done}) > 20
    for c in done:
        check(replay, prompts[c.prompt_index], c.rollout)
    assert status(engine)["requests"] == status(engine)["bytes"] == 0


def test_a_cached_prefix_hides_no_generated_row(engine: Any, replay: Any) -> None:
    """The same prompt again, whole blocks of it, and one that goes on with what was generated."""
    prompt = [(11 * j) % 800 for j in range(300)]
    (first,) = engine.generate([prompt], 1, sampling=GREEDY)
    longer = prompt + first.rollout.token_ids.tolist()
    for again in (prompt, longer):
        outputs = engine.llm.generate([{"prompt_token_ids": again}], sampling_params("cached"), use_tqdm=False)
        assert outputs[0].num_cached_tokens >= 256
        (c,) = rollouts(engine, outputs[0], "cached")
        check(replay, again, c)


def test_requests_without_a_key_are_not_recorded(engine: Any) -> None:
    from radmoe.engines.vllm.engine import from_vllm, request_parameters

    (output,) = engine.llm.generate([{"prompt_token_ids": [1, 2, 3]}], request_parameters(GREEDY, 1), use_tqdm=False)
    assert status(engine)["requests"] == 0
    if STOCK:
        assert from_vllm(output, engine.llm).rollouts[0].weights is None


def test_an_abandoned_run_leaves_nothing_in_the_way(engine: Any, replay: Any) -> None:
    """A generator that is closed aborts what runs; the rows of those requests give way when room is needed."""
    running = engine.generate([[5, 6, 7], [8, 9, 10]], 2, sampling=Sampling(max_tokens=60, seed=4), batch_size=4)
    next(running)
    running.close()
    assert status(engine)["requests"] <= 2
    prompts = [[1, 2, 3, 4]]
    for c in engine.generate(prompts, 2, sampling=Sampling(max_tokens=16)):
        check(replay, prompts[0], c.rollout)
    assert not engine.llm.llm_engine.has_unfinished_requests()


def test_a_request_is_fetched_once(engine: Any) -> None:
    from radmoe.engines.vllm.engine import taken

    engine.llm.generate([{"prompt_token_ids": [1, 2, 3]}], sampling_params("once"), use_tqdm=False)
    taken(engine.llm.collective_rpc(TAKE, args=({"key": "once", "n": 1},)))
    with pytest.raises(EngineError, match="holds nothing under the key 'once', not 1 choices"):
        taken(engine.llm.collective_rpc(TAKE, args=({"key": "once", "n": 1},)))


def test_only_asked_spans_leave_the_worker(engine: Any) -> None:
    from radmoe.engines.vllm.engine import taken

    engine.llm.generate(
        [{"prompt_token_ids": [1, 2, 3]}], sampling_params("spans", n=2, temperature=1.0), use_tqdm=False
    )
    request = {"key": "spans", "n": 2, "spans": {"0": [[4, 8]], "1": [[0, 2], [6, 7]]}}
    routing = taken(engine.llm.collective_rpc(TAKE, args=(request,)))
    assert routing[0].token.tolist() == [4, 5, 6, 7]
    assert routing[1].token.tolist() == [0, 1, 6]
    with pytest.raises(EngineError, match="fetch whole windows"):
        routing[0].generated(24)


def test_resumed_rollouts_have_the_seeds_they_would_have_had(engine: Any) -> None:
    sampling = Sampling(max_tokens=12, seed=5)
    whole = {c.rollout_index: c for c in engine.generate([[1, 2, 3]], 4, sampling=sampling, keys=["a"])}
    rest = list(engine.generate([[1, 2, 3]], 4, sampling=sampling, keys=["a"], missing=[[0, 2, 3]]))
    assert [c.rollout_index for c in rest] == [0, 2, 3]
    for c in rest:
        assert np.array_equal(c.rollout.token_ids, whole[c.rollout_index].rollout.token_ids)
    assert len({c.rollout.token_ids.tobytes() for c in whole.values()}) == 4


def test_texts_and_reasons(engine: Any) -> None:
    for c in engine.generate(["What is 2 plus 3?"], 3, sampling=Sampling(max_tokens=120, seed=2)):
        shown = c.rollout.token_ids[:-1] if c.finish_reason == "stop" else c.rollout.token_ids
        assert c.text == engine.tokenizer.decode(shown.tolist())
        assert c.finish_reason in ("stop", "length")
        assert c.rollout.topk_logprobs.shape == (len(c.rollout), 20)
        assert (np.diff(c.rollout.topk_logprobs) <= 0).all()
        assert (c.rollout.sampled_logprobs <= c.rollout.topk_logprobs[:, 0] + 1e-6).all()


def test_a_prompt_without_room_is_refused(engine: Any) -> None:
    with pytest.raises(InputError, match=r"prompt 'p' has 1024 tokens and the model's context is 1024"):
        engine.generate([[1] * 1024], 1, keys=["p"])


def sampling_params(key: str, n: int = 1, temperature: float = 0) -> Any:
    from radmoe.engines.vllm.engine import request_parameters

    made = request_parameters(replace(GREEDY, temperature=temperature), n, key=key, seed=0)
    made.ignore_eos = True
    return made


def rollouts(engine: Any, output: Any, key: str) -> list[Any]:
    from radmoe.engines.vllm.engine import from_vllm, taken

    n = len(output.outputs)
    routing = taken(engine.llm.collective_rpc(TAKE, args=({"key": key, "n": n},)))
    return list(from_vllm(output, engine.llm, routing=routing).rollouts)
