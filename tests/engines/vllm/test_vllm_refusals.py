"""What cannot be captured is refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from radmoe.engines.vllm.outputs import from_vllm
from radmoe.engines.vllm.plugin.payload import Routing
from radmoe.errors import EngineError, InputError, RolloutError
from radmoe.types import RouterShape
from radmoe.vocab import Vocab
from radmoe_lab.tokenizer import fast_tokenizer
from vllm_parts import OPTIONS, STOCK


class FakeLLM:
    """What `from_vllm` reads of an LLM: a model of two layers, eight experts and top-2, `dense` layers before them."""

    def __init__(self, dense: int = 0) -> None:
        text = SimpleNamespace(
            num_hidden_layers=2 + dense,
            first_k_dense_replace=dense,
            num_experts=8,
            num_experts_per_tok=2,
            model_type="fake",
        )
        model = SimpleNamespace(hf_text_config=text, model="fake")
        self.vllm_config = SimpleNamespace(model_config=model)

    def get_tokenizer(self) -> Any:
        return fast_tokenizer("chatml")


LLM = FakeLLM()


def completion(**changes: Any) -> Any:
    from vllm.outputs import CompletionOutput

    known = {"index": 0, "text": "", "token_ids": [1, 2], "cumulative_logprob": None, "logprobs": None}
    return CompletionOutput(**(known | {"finish_reason": "stop"} | changes))


def output(*completions: Any, finished: bool = True) -> Any:
    return SimpleNamespace(request_id="r1", outputs=list(completions), finished=finished)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            {},
            "completion 0 of request r1 has no routed experts: make the engine with enable_return_routed_experts=True",
        ),
        ({"finish_reason": "abort"}, "completion 0 of request r1 was aborted"),
        ({"routed_experts": np.zeros((1, 2, 2))}, "1 rows of routing for a prompt of unknown length and 2 tokens"),
        ({"routed_experts": np.zeros((5, 2, 3))}, "2 layers, top-3; fake has 2 layers, 2 of them with experts, top-2"),
        ({"routed_experts": np.zeros((5, 2, 2))}, r"4 of 4 \(row, layer\) pairs have no routing"),
    ],
)
def test_outputs_that_hold_no_routing(made: dict[str, Any], line: str) -> None:
    with pytest.raises(EngineError, match=line):
        from_vllm(output(completion(**made)), LLM)


def logprobs(*ranks: int) -> list[dict[int, Any]]:
    """Per step the two largest, and the sampled token (id 1) where its rank is beyond them."""
    from vllm.logprobs import Logprob

    return [
        {1: Logprob(-0.1 * rank, rank)} | {10 + r: Logprob(-0.1 * r, r) for r in (1, 2) if r != rank} for rank in ranks
    ]


@pytest.mark.parametrize("ranks", [(1, 2), (1, 9), (7, 9), (3, 3), (3, 8)])
def test_the_sampled_token_is_not_counted_among_the_largest(ranks: tuple[int, int]) -> None:
    rows = np.tile(np.array([[1, 5], [2, 3]], np.uint8), (4, 1, 1))
    made = completion(token_ids=[1, 1], routed_experts=rows, logprobs=logprobs(*ranks))
    (rollout,) = from_vllm(output(made), LLM, topk_logprobs=2).rollouts
    assert np.allclose(rollout.sampled_logprobs, [-0.1 * rank for rank in ranks])
    assert np.allclose(rollout.topk_logprobs, [[-0.1, -0.2]] * 2)
    if ranks != (3, 3):  # the third largest is known in every step, and kept unless C is said
        (seen,) = from_vllm(output(made), LLM).rollouts
        assert seen.topk_logprobs.shape == (2, 2)


def test_the_group_has_the_kind_and_the_vocabulary_of_a_tokenizer() -> None:
    rows = np.tile(np.array([[1, 5], [2, 3]], np.uint8), (4, 1, 1))
    group = from_vllm(
        output(completion(routed_experts=rows)),
        LLM,
        kind="code",
        problem_id="p",
    )
    assert (group.problem_id, group.kind, len(group)) == ("p", "code", 1)
    assert group.vocab.fingerprint == Vocab.from_tokenizer(fast_tokenizer("chatml")).fingerprint


def test_rows_that_were_not_fetched_are_absent() -> None:
    """Of a window the group has the rows that came; asking for another is an error."""
    routing = Routing(
        np.array([-1, 1], np.int32),
        np.array([[[1, 5], [2, 3]], [[0, 4], [6, 7]]], np.int16),
        np.full((2, 2, 2), 0.5, np.float16),
        np.array([0, 1], np.int32),
    )
    (rollout,) = from_vllm(output(completion()), LLM, routing={0: routing}).rollouts
    assert rollout.positions.tolist() == [1]
    assert rollout.rows(1, 2)[0].tolist() == [[[0, 4], [6, 7]]]
    with pytest.raises(RolloutError, match="has the routing of 1 of its tokens"):
        rollout.rows(0, 2)


def test_an_unfinished_output() -> None:
    with pytest.raises(EngineError, match="request r1 is not finished"):
        from_vllm(output(completion(), finished=False), LLM)


def test_a_completion_the_capture_lacks() -> None:
    with pytest.raises(EngineError, match=r"completion 0 of request r1 is not in the capture, which holds \[\]"):
        from_vllm(output(completion()), LLM, routing={})


def test_layers_without_experts_are_left_out() -> None:
    rows = np.tile(np.array([[0, 0], [1, 5], [2, 3]], np.uint8), (6, 1, 1))
    (rollout,) = from_vllm(output(completion(routed_experts=rows)), FakeLLM(dense=1)).rollouts
    assert rollout.expert_ids.tolist() == [[[1, 5], [2, 3]]] * 2


def test_a_row_of_zeros_is_not_taken_for_routing() -> None:
    rows = np.tile(np.array([[1, 5], [2, 3]], np.uint8), (6, 1, 1))
    rows[4, 1] = 0
    with pytest.raises(EngineError, match=r"1 of 4 \(row, layer\) pairs"):
        from_vllm(output(completion(routed_experts=rows)), LLM)


def test_a_dense_model(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from radmoe.engines.vllm.engine import VllmEngine

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen3ForCausalLM(Qwen3Config(**small, head_dim=16, intermediate_size=32, vocab_size=64)).save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="is not a mixture-of-experts model"):
        VllmEngine(tmp_path)


def test_no_checkpoint(tmp_path: Path) -> None:
    from radmoe.engines.vllm.engine import VllmEngine

    with pytest.raises(EngineError, match=r"no checkpoint: it has no config.json"):
        VllmEngine(tmp_path)


def test_a_plugin_that_is_shut_out(monkeypatch: pytest.MonkeyPatch, checkpoint: Any) -> None:
    from radmoe.engines.vllm.engine import VllmEngine

    monkeypatch.setenv("VLLM_PLUGINS", "other")
    with pytest.raises(EngineError, match="VLLM_PLUGINS=other leaves the radmoe plugin out"):
        VllmEngine(checkpoint("lab-qwen"))


def test_layers_without_the_plugin(checkpoint: Any) -> None:
    from radmoe.engines.vllm.engine import VllmEngine

    with pytest.raises(InputError, match="layers are the plugin's"):
        VllmEngine(checkpoint("lab-qwen"), weights=False, layers="s0")


def test_a_head_that_vllm_leaves_random(checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tied embeddings in gpt-oss: vLLM 0.30 loads the checkpoint without a word and samples noise."""
    from safetensors.torch import load_file, save_file

    from radmoe.engines.vllm.engine import VllmEngine

    tied = Path(shutil.copytree(checkpoint("lab-oss"), tmp_path / "tied"))
    weights = load_file(tied / "model.safetensors")
    del weights["lm_head.weight"]
    (tied / "model.safetensors").unlink()
    save_file(weights, tied / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tied / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tied / "config.json").write_text(json.dumps(config))
    for engine in (False, True):
        with pytest.raises(EngineError, match="GptOssForCausalLM ignores tie_word_embeddings"):
            VllmEngine(tied, weights=engine, **OPTIONS)
    monkeypatch.setattr("radmoe.engines.vllm.checks._check_head", lambda path, config: None)
    with pytest.raises(
        EngineError, match="GptOssForCausalLM ignores tie_word_embeddings"
    ):  # as a server's worker sees it
        VllmEngine(tied, **OPTIONS)


def test_stock_ids_alone(checkpoint: Any) -> None:
    """The engine without the plugin: a pool of ids, same tokens as with it; a vLLM that cannot do so here says what can."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.vllm.engine import VllmEngine

    if not STOCK:
        with pytest.raises(
            EngineError, match=r"requires Model Runner V2.*: capture with the plugin \(leave --ids-only out"
        ):
            VllmEngine(checkpoint("lab-qwen"), weights=False, dtype="float32", **OPTIONS)
        return
    engine = VllmEngine(checkpoint("lab-qwen"), weights=False, dtype="float32", **OPTIONS)
    done = list(engine.generate([[1, 2, 3]], 2, sampling=Sampling(max_tokens=10)))
    engine.close()
    assert engine.shape == RouterShape(11, 32, 8)
    for c in done:
        assert c.rollout.weights is None
        assert c.rollout.expert_ids.shape == (len(c.rollout), 11, 8)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
def test_stock_ids_of_every_width(dtype: str) -> None:
    """vLLM sends uint8 up to 256 experts and uint16 above."""
    rows = np.tile(np.array([[1, 5], [2, 3]], dtype), (4, 1, 1))
    (rollout,) = from_vllm(output(completion(routed_experts=rows)), LLM).rollouts
    assert rollout.expert_ids.dtype == np.int16
    assert rollout.expert_ids.tolist() == [[[1, 5], [2, 3]]] * 2


def test_physical_expert_ids_are_not_taken_for_the_models_own() -> None:
    """Expert load balancing numbers replicas on past the last expert."""
    rows = np.tile(np.array([[1, 9], [2, 3]], np.uint8), (4, 1, 1))
    with pytest.raises(EngineError, match=r"expert 9, outside \[0, 8\).*--enable-eplb"):
        from_vllm(output(completion(routed_experts=rows)), LLM)


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("AuxOutput Connector requires Model Runner V2", "capture with the plugin"),
        ("capture is not supported with monolithic MoE kernel OAITriton", "--moe-backend marlin for 4-bit weights"),
        ("no memory", "^vLLM did not start with m: no memory$"),
    ],
)
def test_why_vllm_did_not_start(reason: str, line: str) -> None:
    from radmoe.engines.vllm.checks import not_started

    with pytest.raises(EngineError, match=line):
        raise not_started("m", ValueError(f"1 validation error\n  {reason} [type=value_error, input_value=9]"))
