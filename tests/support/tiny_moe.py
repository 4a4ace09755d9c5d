"""Tiny random MoE models of every family the transformers engine is tested on, with a real tokenizer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from radmoe.engines.torch.engine import TransformersEngine
from radmoe_lab import planted
from radmoe_lab.inference.engine import LabEngine

torch.set_num_threads(1)  # tiny passes: a second thread is only waited for

CHAT = (
    "{% for m in messages %}<think>{{ m['role'] }}: {{ m['content'] }}</think>{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)
_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 4,  # the fourth is full attention
}
_QWEN = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-moe": ("Qwen3MoeConfig", _QWEN | {"intermediate_size": 64, "norm_topk_prob": True}),
    "qwen3-next": ("Qwen3NextConfig", _QWEN | _LINEAR | {"intermediate_size": 64}),
    "qwen3.5-moe": ("Qwen3_5MoeTextConfig", _QWEN | _LINEAR),
    "gpt-oss": (  # alternates sliding windows with full attention
        "GptOssConfig",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_local_experts": 8,
            "num_experts_per_tok": 4,
            "intermediate_size": 32,
            "sliding_window": 8,
            "num_hidden_layers": 4,
        },
    ),
    "olmoe": (  # weights of the router not normalised
        "OlmoeConfig",
        {"num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 4, "intermediate_size": 32},
    ),
    "mixtral": (
        "MixtralConfig",
        {"num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32},
    ),
    "deepseek-v3": (  # first layer dense, shared expert, groups, weights scaled by 2.5
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4,
            "n_routed_experts": 8,
            "num_experts_per_tok": 4,
            "intermediate_size": 64,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 32,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "routed_scaling_factor": 2.5,
        },
    ),
}


@cache
def tokenizer(chat: bool = False) -> Any:
    made = PreTrainedTokenizerFast(tokenizer_object=planted.tokenizer(), eos_token="<|im_end|>")
    if chat:
        made.chat_template = CHAT
    return made


def model(family: str, **changes: Any) -> Any:
    """A seeded random model; weights three times the default, so that routing has something to say."""
    name, own = FAMILIES[family]
    base = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": None,
    }
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(getattr(transformers, name)(**(base | own | changes)))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    return made.eval()


@cache
def engine(family: str) -> TransformersEngine:
    """A shared engine; its model must not be changed."""
    return TransformersEngine(model(family), tokenizer=tokenizer(), threads=1)


@cache
def lab_engine(family: str, streams: int = 1) -> LabEngine:
    """The same of the lab's engine, which is tuned for models as small as these."""
    return LabEngine(model(family), tokenizer=tokenizer(), streams=streams, threads=streams)


def save(path: Path, family: str = "qwen3-moe", *, chat: bool = False, **changes: Any) -> Path:
    """A checkpoint directory."""
    model(family, **changes).save_pretrained(path)
    tokenizer(chat).save_pretrained(path)
    return path
