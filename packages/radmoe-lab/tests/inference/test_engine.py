"""The lab's engine: held to the contract of all engines, and to what the plain one computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny_moe
from completions import same
from contract import EngineContract
from radmoe.engines import open_engine
from radmoe.engines.base import Engine, Sampling
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import EngineError, InputError
from radmoe_lab.inference.engine import LabEngine

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [9], [20, 21, 22] * 7, [4, 5]]  # one token; longer than the sliding window


@pytest.mark.slow
class TestLabEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return tiny_moe.lab_engine("qwen3-moe")

    @pytest.fixture
    def reference(self) -> Any:
        return tiny_moe.engine("qwen3-moe")


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny_moe.FAMILIES)
def test_captured_rows_are_those_of_a_pass_of_the_plain_engine(family: str) -> None:
    """Rows start and end at different times (12 rollouts through a batch of 5)."""
    mine, plain = tiny_moe.lab_engine(family), tiny_moe.engine(family)
    assert mine.shape == plain.shape
    done = list(mine.generate(PROMPTS, 3, sampling=Sampling(max_tokens=30, seed=1), batch_size=5))
    assert len(done) == 12
    for one in done:
        prompt, rollout = PROMPTS[one.prompt_index], one.rollout
        ids, weights = plain.teacher_forced(prompt + rollout.token_ids.tolist())
        rows = slice(len(prompt) - 1, len(prompt) - 1 + len(rollout))
        order, forced = np.argsort(rollout.expert_ids), np.argsort(ids[rows])
        assert np.array_equal(
            np.take_along_axis(rollout.expert_ids, order, -1), np.take_along_axis(ids[rows], forced, -1)
        )
        captured = np.take_along_axis(rollout.weights.astype(np.float32), order, -1)
        assert np.allclose(captured, np.take_along_axis(weights[rows], forced, -1), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-oss", "qwen3-next"])
def test_several_batches_at_a_time_and_shared_ones_give_the_plain_engines_rollouts(family: str) -> None:
    keys = [f"p{i}" for i in range(len(PROMPTS))]
    sampling = Sampling(max_tokens=24, seed=3, topk_logprobs=4)
    expected = {
        (one.prompt_index, one.rollout_index): one
        for one in tiny_moe.engine(family).generate(PROMPTS, 2, sampling=sampling, keys=keys)
    }
    mine = LabEngine(tiny_moe.model(family), tokenizer=tiny_moe.tokenizer(), streams=2, threads=2)
    seen, again = (
        {
            (one.prompt_index, one.rollout_index): one
            for one in mine.generate(PROMPTS, 2, sampling=sampling, keys=keys, batch_size=4)
        }
        for _ in range(2)
    )
    assert [name for name in expected if not same(seen[name], expected[name])] == []
    assert all(
        np.array_equal(seen[name].rollout.sampled_logprobs, again[name].rollout.sampled_logprobs) for name in seen
    )
    with mine.batcher(batch_size=3, topk_logprobs=4) as batch:
        futures = {
            (i, r): batch.submit(PROMPTS[i], sampling=sampling, key=keys[i], rollout_index=r) for i, r in expected
        }
        assert all(same(future.result(timeout=60), expected[name]) for name, future in futures.items())


@pytest.mark.slow
def test_a_shipped_model_is_opened_by_it_and_any_other_by_the_plain_engine(tmp_path: Any) -> None:
    before = torch.get_num_threads()
    try:
        assert type(open_engine("transformers", "lab-qwen")) is type(open_engine("lab", "lab-qwen")) is LabEngine
        checkpoint = str(tiny_moe.save(tmp_path / "tiny"))
        assert type(open_engine("transformers", checkpoint)) is TransformersEngine
        assert type(open_engine("lab", checkpoint)) is LabEngine
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("streams", [1, 2])
def test_running_out_of_memory_is_one_line(streams: int) -> None:
    engine = LabEngine(tiny_moe.model("mixtral"), tokenizer=tiny_moe.tokenizer(), streams=streams, threads=1)

    def full(*args: object, **kwargs: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")

    engine.model.forward = full
    with pytest.raises(EngineError, match="out of memory with a batch of 8: lower batch_size"):
        list(engine.generate([[1, 2], [3, 4]], 2, batch_size=8))


def test_there_is_at_least_one_stream() -> None:
    with pytest.raises(InputError, match="streams must be at least 1"):
        LabEngine("anywhere", streams=0)


def test_the_plain_engine_leaves_the_experts_to_transformers() -> None:
    def replaced(engine: Any) -> set[bool]:
        return {"forward" in vars(one) for one in engine.model.modules() if hasattr(one, "is_transposed")}

    assert replaced(tiny_moe.engine("qwen3-moe")) == {False}
    assert replaced(tiny_moe.lab_engine("qwen3-moe")) == {True}
