"""What the vLLM plugin costs on a GPU, CUDA graphs included: a random-weight Qwen3-MoE in the shape of Qwen3-30B-A3B.

    python -m benchmarks.vllm_gpu [--layers 48] [-n 64] [--rounds 5] [--eager] [--arms plain,plugin]

Taps are recorded into the CUDA graphs and cannot be taken off again, so each arm is an engine of its own, all alive on
one GPU, driven in turns by this process: `plain` without capture, `plugin` with ids and weights, fetched and decoded,
`stock` with vLLM's own routed experts. Weights are vLLM's dummies: experts are chosen evenly, as in a trained router.
48 layers need 61 GB an arm. Every arm samples n rollouts of one prompt, all to the same length.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


def start(arm: str, path: Path, chosen: argparse.Namespace) -> Any:
    from vllm import LLM

    options: dict[str, Any] = {"additional_config": {"radmoe": {}}} if arm == "plugin" else {}
    return LLM(
        str(path),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=chosen.prompt + chosen.tokens,
        max_num_seqs=chosen.n,
        gpu_memory_utilization=0.9 / len(chosen.arms.split(",")),
        kv_cache_memory_bytes=4 << 30,
        enforce_eager=chosen.eager,
        enable_return_routed_experts=arm == "stock",
        disable_log_stats=True,
        **options,
    )


def run(arm: str, llm: Any, chosen: argparse.Namespace, number: int) -> tuple[float, float, int]:
    """Seconds in all, seconds of them for fetching and decoding, bytes fetched."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.vllm.engine import request_parameters, taken
    from radmoe.engines.vllm.plugin import TAKE

    key = f"run-{number}" if arm == "plugin" else None
    parameters = request_parameters(Sampling(max_tokens=chosen.tokens, topk_logprobs=0), chosen.n, key=key)
    prompt = [(7919 * (number + 1) + 31 * i) % 150_000 for i in range(chosen.prompt)]
    began = time.perf_counter()
    (output,) = llm.generate([{"prompt_token_ids": prompt}], parameters, use_tqdm=False)
    sampled, fetched = time.perf_counter(), 0
    assert sum(len(c.token_ids) for c in output.outputs) == chosen.n * chosen.tokens
    if arm == "plugin":
        answers = llm.collective_rpc(TAKE, args=({"key": key, "n": chosen.n},))
        fetched = len(answers[0]["payload"])
        routing = taken(answers)
        for completion in output.outputs:
            routing[completion.index].generated(chosen.tokens)
    elif arm == "stock":
        fetched = sum(c.routed_experts.nbytes for c in output.outputs)
    ended = time.perf_counter()
    return ended - began, ended - sampled, fetched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=512, help="of each rollout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="without torch.compile and CUDA graphs")
    parser.add_argument("--arms", default="plain,plugin")
    chosen = parser.parse_args()
    arms = chosen.arms.split(",")
    with tempfile.TemporaryDirectory() as folder:
        config = SHAPE | {"num_hidden_layers": chosen.layers}
        Path(folder, "config.json").write_text(json.dumps(config))
        engines = {}
        for arm in arms:
            began = time.perf_counter()
            engines[arm] = start(arm, Path(folder), chosen)
            print(f"{arm}: started in {time.perf_counter() - began:.0f} s", flush=True)
    took: dict[str, list[float]] = {arm: [] for arm in arms}
    for number in range(chosen.rounds + 1):  # the first warms up
        for arm in arms if number % 2 else arms[::-1]:
            seconds, fetching, fetched = run(arm, engines[arm], chosen, number)
            if number:
                took[arm].append(seconds)
            count = chosen.n * chosen.tokens
            print(
                f"round {number}, {arm}: {seconds:.2f} s, {count / seconds:,.0f} tokens/s, fetching {fetching:.2f} s, "
                f"{fetched / count:,.0f} bytes per token",
                flush=True,
            )
    print(f"{chosen.layers} layers of 128 experts, top-8, n={chosen.n}, {'eager' if chosen.eager else 'CUDA graphs'}")
    for arm in arms:
        ratio = statistics.median(a / b - 1 for a, b in zip(took[arm], took[arms[0]], strict=True))
        speed = chosen.n * chosen.tokens / statistics.median(took[arm])
        print(f"{arm}: {speed:,.0f} tokens/s, {ratio:+.1%} time against {arms[0]} (median of {chosen.rounds})")


if __name__ == "__main__":
    main()
