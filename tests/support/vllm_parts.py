"""Parts of the vLLM tests: checkpoints that vLLM reads, and comparison with a replay."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from radmoe.engines.base import Sampling

GREEDY = Sampling(temperature=0, max_tokens=24, topk_logprobs=0)
GPU = (
    torch.cuda.is_available()
)  # then compiled and with CUDA graphs; CI has none, docs/engines.md says what was run on one
OPTIONS: dict[str, Any] = {"max_model_len": 1024, "max_num_seqs": 64} | (
    {  # little memory, so that several tests may share a GPU, and attention without libraries beside vLLM's own
        "gpu_memory_utilization": 0.1,
        "kv_cache_memory_bytes": 1 << 30,
        "attention_backend": "TRITON_ATTN",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
    }
    if GPU
    else {"enforce_eager": True}
)
# From 0.31 on vLLM's own routed experts need its second model runner, and that needs a GPU
VERSION = tuple(int(part) for part in version("vllm").split("+")[0].split(".")[:2])
STOCK = GPU or VERSION < (0, 31)
BOTH: dict[str, Any] = {"enable_return_routed_experts": True} if STOCK else {}
# vLLM's expert kernels for GPUs multiply float32 in TensorFloat-32; a row of another position would agree on less than 0.6
FLOAT32_AGREES = 0.9 if GPU else 0.999
WEIGHTS_APART = 5e-2 if GPU else 2e-3


def shipped(name: str) -> Path | None:
    """A trained lab checkpoint, if there is one. RADMOE_LAB_WEIGHTS may name a folder of them."""
    from radmoe.errors import EngineError
    from radmoe_lab.models import weights

    other = Path(os.environ.get("RADMOE_LAB_WEIGHTS", ""), name)
    if "RADMOE_LAB_WEIGHTS" in os.environ and (other / "config.json").exists():
        return other
    try:
        return weights(name)
    except EngineError:  # radmoe-lab is not installed
        return None


def random_checkpoint(name: str, path: Path) -> Path:
    """Seeded weights, three times the default, so that routing has something to say."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    from radmoe_lab.chat import SPECIAL, chat_template
    from radmoe_lab.models import model_named
    from radmoe_lab.tokenizer import build

    lab = model_named(name)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(lab.config())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    model.to(torch.bfloat16).save_pretrained(path)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=build(lab.family), eos_token=SPECIAL[lab.family][0])
    tokenizer.chat_template = chat_template(lab.family)
    tokenizer.save_pretrained(path)
    return path


def untie(source: Path, path: Path) -> Path:
    """A copy with a head of its own: vLLM 0.30 ignores tied embeddings in gpt-oss and Qwen3-Next."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, path, dirs_exist_ok=True)
    (path / "model.safetensors").unlink()
    weights = load_file(source / "model.safetensors")
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"].clone())
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    return path


def same_sets(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which (row, layer) pairs have the same set of experts."""
    return (np.sort(a, -1) == np.sort(b, -1)).all(-1)


def replayed(engine: Any, prompt: list[int], tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and weights [T, L, K] of a replay, at the rows that predict the tokens."""
    ids, weights = engine.teacher_forced([*prompt, *tokens.tolist()])
    rows = slice(len(prompt) - 1, len(prompt) - 1 + len(tokens))
    return ids[rows], weights[rows]


def weights_apart(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest difference in weight where the sets agree."""
    agree = same_sets(a[0], b[0])
    left, right = (np.take_along_axis(w.astype(np.float32), np.argsort(ids), -1) for ids, w in (a, b))
    return float(np.abs(left - right)[agree].max(initial=0))


def check(replay: Any, prompt: list[int], rollout: Any) -> None:
    ids, weights = replayed(replay("lab-qwen", "float32"), prompt, rollout.token_ids)
    same = same_sets(rollout.expert_ids, ids)
    assert same.mean() >= FLOAT32_AGREES
    assert np.allclose(np.sort(rollout.weights.astype(np.float32))[same], np.sort(weights)[same], atol=WEIGHTS_APART)
