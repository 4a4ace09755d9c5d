"""The asynchronous engine, in a process of its own: finished outputs become groups, an aborted one does not."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from radmoe.engines.base import Sampling
from radmoe.engines.vllm.engine import from_vllm, request_parameters, taken
from radmoe.engines.vllm.plugin import STATUS, TAKE
from vllm_parts import BOTH, FLOAT32_AGREES, OPTIONS, STOCK, replayed, same_sets

PROMPTS = {f"p{i}": [(3 * i + 5 * j) % 800 for j in range(20 + i)] for i in range(4)}


async def drive(model: str) -> dict[str, Any]:
    """Four requests of three choices at once, and one that is aborted; outputs and payloads by request."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=model,
        dtype="float32",
        **BOTH,
        enable_chunked_prefill=False,
        additional_config={"radmoe": {}},
        **OPTIONS,
    )
    engine = AsyncLLM.from_engine_args(arguments)

    async def last(name: str, prompt: list[int]) -> Any:
        asked = request_parameters(Sampling(max_tokens=16, topk_logprobs=0), 3, key=name, seed=1)
        async for output in engine.generate({"prompt_token_ids": prompt}, asked, request_id=name):
            final = output
        return final

    async def left() -> None:
        asked = request_parameters(Sampling(max_tokens=900, topk_logprobs=0), 2, key="left", seed=1)
        asked.ignore_eos = True
        async for _ in engine.generate({"prompt_token_ids": [1, 2, 3]}, asked, request_id="left"):
            raise AssertionError("it was to be aborted before its end")

    try:
        leaving = asyncio.create_task(left())
        await asyncio.sleep(1)
        leaving.cancel()  # vLLM aborts a request whose consumer is gone
        outputs = dict(zip(PROMPTS, await asyncio.gather(*(last(*item) for item in PROMPTS.items())), strict=True))
        held = (await engine.collective_rpc(STATUS))[0]["requests"]
        payloads = {name: await engine.collective_rpc(TAKE, args=({"key": name, "n": 3},)) for name in PROMPTS}
        await engine.collective_rpc(TAKE, args=({"key": "left", "n": 2, "spans": {}},))
        status = (await engine.collective_rpc(STATUS))[0]
    finally:
        engine.shutdown()
    return {"outputs": outputs, "payloads": payloads, "held": held, "status": status, "engine": engine}


def test_outputs_of_the_asynchronous_engine(checkpoint: Any, replay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    found = asyncio.run(drive(str(checkpoint("lab-qwen"))))
    assert found["held"] == 4 * 3 + 2
    assert found["status"]["requests"] == found["status"]["bytes"] == 0
    for name, prompt in PROMPTS.items():
        output = found["outputs"][name]
        group = from_vllm(output, found["engine"], routing=taken(found["payloads"][name]))
        assert group.problem_id == name
        assert len(group) == 3
        stock = from_vllm(output, found["engine"]) if STOCK else group
        for mine, theirs in zip(group.rollouts, stock.rollouts, strict=True):
            assert np.array_equal(mine.expert_ids, theirs.expert_ids)
            truth, _ = replayed(replay("lab-qwen", "float32"), prompt, mine.token_ids)
            assert same_sets(mine.expert_ids, truth).mean() >= FLOAT32_AGREES
