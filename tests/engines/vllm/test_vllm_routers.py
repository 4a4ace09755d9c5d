"""How families of models route: random checkpoints of each, in float32, against a transformers replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from radmoe.engines.base import Sampling
from vllm_parts import OPTIONS, replayed, same_sets, weights_apart

SIZES = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "pad_token_id": None,
}
SIGMOID = {
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
LATENT = {  # the sizes that vLLM's latent attention knows, and what transformers leaves out of a DeepSeek-V3's config.json
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax, then top-k, normalised": ("MixtralConfig", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "softmax, then top-k, not normalised": ("OlmoeConfig", {"num_experts": 16, "num_experts_per_tok": 4}),
    "shared expert beside": (
        "Qwen2MoeConfig",
        {
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
        },
    ),
    "sigmoid, bias and scaling": ("Glm4MoeConfig", SIGMOID | {"head_dim": 32, "n_group": 1, "topk_group": 1}),
    "sigmoid, bias, scaling and groups": ("DeepseekV3Config", SIGMOID | LATENT | {"n_group": 4, "topk_group": 2}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_those_of_a_replay(
    family: str, checkpoint: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe.engines.vllm.engine import VllmEngine
    from radmoe.vocab import Vocab

    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint("lab-qwen"))
    name, own = FAMILIES[family]
    if own.keys() >= LATENT.keys():  # vLLM's CPU kernel turns the heads of latent attention by wrong angles
        monkeypatch.setattr(RotaryEmbedding, "forward_cpu", RotaryEmbedding.forward_native)
    words = {"vocab_size": len(Vocab.from_tokenizer(tokenizer)), "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**(SIZES | words | own)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)  # so that routing has something to say
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.3)  # it decides who is chosen, and not what they weigh
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    reference = TransformersEngine(tmp_path, dtype="float32")
    engine = VllmEngine(tmp_path, dtype="float32", **OPTIONS)
    try:
        done = list(engine.generate([[5, 6, 7, 8], [9, 8, 7]], 3, sampling=Sampling(max_tokens=40, seed=1)))
    finally:
        engine.close()
    assert engine.shape == reference.shape
    same, apart = [], []
    for c in done:
        prompt = [[5, 6, 7, 8], [9, 8, 7]][c.prompt_index]
        truth = replayed(reference, prompt, c.rollout.token_ids)
        same.append(same_sets(c.rollout.expert_ids, truth[0]).ravel())
        apart.append(weights_apart((c.rollout.expert_ids, c.rollout.weights), truth))
    assert np.concatenate(same).mean() >= 0.999
    assert max(apart) < 5e-3  # divided by their sum: a scaling factor is gone
