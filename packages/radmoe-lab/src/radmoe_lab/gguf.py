"""Writes a lab checkpoint, or any Qwen3-MoE or gpt-oss model, as a GGUF file for llama.cpp, in F32 or in Q8_0.

    python -m radmoe_lab.gguf lab-qwen OUT.gguf [Q8_0]

Qwen3-MoE is written exactly. llama.cpp rounds the two ends of YaRN's ramp to whole dimensions, which gpt-oss does not
do (`truncate: false`), so its positions are rotated slightly differently there, as in every gpt-oss GGUF. Qwen3-Next
is not converted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.system.printing import say

FILE_TYPES = {"F32": 0, "Q8_0": 7}  # GGUF's numbers of file types
ARCHITECTURES = {"qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
_LAYER = {  # transformers -> GGUF
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "input_layernorm": "attn_norm",
}
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # GGUF's numbers of token types


def write_gguf(model: Any, tokenizer: Any, path: str | Path, *, kind: str = "F32") -> Path:
    """Write a loaded transformers model (Qwen3-MoE or gpt-oss) and its fast tokenizer to one file.

    `kind` is F32, or Q8_0, which quantises as llama.cpp does: all matrices but the routers', in blocks of 32 numbers
    that share one scale.
    """
    if kind not in FILE_TYPES:
        raise InputError(f"a GGUF file is written as {' or '.join(FILE_TYPES)}, not {kind!r}")
    try:
        from gguf import GGMLQuantizationType, GGUFWriter, quantize
    except ImportError:
        raise EngineError("writing GGUF needs gguf: pip install 'radmoe[llamacpp]'") from None
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise InputError(f"cannot write {config.model_type} as GGUF: only {', '.join(ARCHITECTURES)}")
    writer = GGUFWriter(None, ARCHITECTURES[config.model_type])
    writer.add_file_type(FILE_TYPES[kind])
    _hyperparameters(writer, config)
    _sampling(writer, model.generation_config)
    _tokenizer(writer, tokenizer, config.vocab_size)
    for name, tensor in _tensors(model):
        if kind == "Q8_0" and name.endswith(".weight") and tensor.ndim > 1 and "ffn_gate_inp" not in name:
            q8 = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(tensor, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file(Path(path))
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def _hyperparameters(writer: Any, config: Any) -> None:
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    writer.add_name(config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(width)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    _rope(writer, config.rope_parameters)


def _rope(writer: Any, rope: dict[str, Any]) -> None:
    from gguf import RopeScalingType

    if rope["rope_type"] not in ("default", "yarn"):
        raise InputError(f"cannot write rope_type {rope['rope_type']} as GGUF: only default and yarn")
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)


def _sampling(writer: Any, generation_config: Any) -> None:
    if getattr(generation_config, "temperature", None) is not None:
        writer.add_sampling_temp(generation_config.temperature)
    if getattr(generation_config, "top_p", None) is not None:
        writer.add_sampling_top_p(generation_config.top_p)


def _tokenizer(writer: Any, tokenizer: Any, size: int) -> None:
    if len(tokenizer) > size:
        raise InputError(f"this tokenizer has {len(tokenizer)} tokens and the model {size}: it is another model's")
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    texts, token_types = [f"[PAD{i}]" for i in range(size)], [_UNUSED] * size
    for text, token in spec["model"]["vocab"].items():
        texts[token], token_types[token] = text, _NORMAL
    for added in spec["added_tokens"]:
        texts[added["id"]] = added["content"]
        token_types[added["id"]] = _CONTROL if added["special"] else _USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pieces(spec["pre_tokenizer"]))
    writer.add_token_list(texts)
    writer.add_token_types(token_types)
    writer.add_token_merges([" ".join(pair) for pair in spec["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(False)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _pieces(pre: dict[str, Any]) -> str:
    """llama.cpp's name for a tokenizer's pre-tokenisation."""
    from radmoe_lab.tokenizer import build

    if pre["type"] == "ByteLevel" and pre["use_regex"]:
        return "gpt-2"
    if pre == json.loads(build("chatml").to_str())["pre_tokenizer"]:  # it cuts as Qwen's does
        return "qwen2"
    raise InputError("cannot write this tokenizer as GGUF: it cuts text neither as GPT-2 nor as Qwen2 does")


def _tensors(model: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The GGUF name and the values of every tensor. Experts are [E, out, in]: as in every matrix, outputs come first."""
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in model.state_dict().items()}
    oss = model.config.model_type == "gpt_oss"
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output.weight", weights["lm_head.weight"]
    yield "output_norm.weight", weights["model.norm.weight"]
    for i in range(model.config.num_hidden_layers):
        prefix = f"model.layers.{i}."
        layer = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
        own = _gpt_oss_layer(layer) if oss else _qwen_layer(layer)
        for name, tensor in layer.items():
            stem, _, suffix = name.rpartition(".")  # the suffix is weight or bias
            if stem in _LAYER:
                own[f"{_LAYER[stem]}.{suffix}"] = tensor
        for name, tensor in own.items():
            yield f"blk.{i}.{name}", np.ascontiguousarray(tensor)


def _qwen_layer(layer: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    gate, up = np.split(layer["mlp.experts.gate_up_proj"], 2, axis=1)
    return {
        "ffn_norm.weight": layer["post_attention_layernorm.weight"],
        "ffn_gate_exps.weight": gate,
        "ffn_up_exps.weight": up,
        "ffn_down_exps.weight": layer["mlp.experts.down_proj"],
    }


def _gpt_oss_layer(layer: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The tensors of a gpt-oss layer, which interleaves gate and up and stores its experts as [E, in, out]."""
    both, bias = layer["mlp.experts.gate_up_proj"].swapaxes(1, 2), layer["mlp.experts.gate_up_proj_bias"]
    return {
        "post_attention_norm.weight": layer["post_attention_layernorm.weight"],
        "attn_sinks.weight": layer["self_attn.sinks"],
        "ffn_gate_exps.weight": both[:, ::2],
        "ffn_gate_exps.bias": bias[:, ::2],
        "ffn_up_exps.weight": both[:, 1::2],
        "ffn_up_exps.bias": bias[:, 1::2],
        "ffn_down_exps.weight": layer["mlp.experts.down_proj"].swapaxes(1, 2),
        "ffn_down_exps.bias": layer["mlp.experts.down_proj_bias"],
    }


def main(arguments: list[str]) -> int:
    """Convert by the arguments `MODEL OUT.gguf [F32|Q8_0]`; MODEL names a lab model or a checkpoint directory."""
    if len(arguments) not in (2, 3):
        usage = "usage: python -m radmoe_lab.gguf MODEL OUT.gguf [F32|Q8_0]   (lab-qwen, lab-oss, or a directory)"
        say(usage, err=True)
        return 2
    from radmoe_lab.inference.engine import LabEngine
    from radmoe_lab.models import MODELS, weights

    name, out, file_type = *arguments, *(["F32"] if len(arguments) == 2 else [])
    try:
        source = LabEngine(weights(name) if name in MODELS else name, dtype="float32")
        path = write_gguf(source.model, source.tokenizer, out, kind=file_type)
    except (RadmoeError, OSError) as error:
        say(f"radmoe: error: {error}", err=True)
        return 2
    say(f"{path}: {path.stat().st_size:,} bytes, router {source.shape}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
