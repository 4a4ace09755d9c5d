"""What capture costs: tokens/s of the transformers engine with and without it, in interleaved runs.

    python -m benchmarks.capture [--batch-size 128] [--threads 2] [--rounds 7]

A random Qwen3-MoE of the lab's size. All arms sample the same tokens (same seed, same random numbers).
Times are this process's CPU time as well as the wall's: on a shared machine only the first is steady.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

ARMS = {"tokens only": (False, 0), "+ routing": (True, 0), "+ routing, top-20 logprobs": (True, 20)}


def lab_sized_model() -> Any:
    """12 layers, hidden 192, 32 experts of width 64, top-8, vocabulary 1,024; 15.6M parameters, seeded."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=1024,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=12,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=32,
        num_experts_per_tok=8,
        moe_intermediate_size=64,
        norm_topk_prob=True,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=1023,
    )
    return AutoModelForCausalLM.from_config(config)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [a + b for a in letters for b in letters[:3]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate((letters + pairs)[:1024])}, []))
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def measure(batch_size: int, threads: int, rounds: int, tokens: int) -> dict[str, dict[str, float]]:
    """Median tokens/s and cost of each arm relative to the bare one, from `rounds` interleaved runs."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.transformers import TransformersEngine

    engine = TransformersEngine(lab_sized_model(), tokenizer=tokenizer(), threads=threads)
    prompts = [[(7 * i + j) % 1000 for j in range(40 + i % 20)] for i in range(max(batch_size // 16, 1))]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ARMS}
    for number in range(rounds + 1):
        names = list(ARMS) if number % 2 else list(reversed(ARMS))
        for name in names:
            capture, top = ARMS[name]
            sampling = Sampling(max_tokens=tokens, seed=number, topk_logprobs=top)
            wall, cpu = time.perf_counter(), time.process_time()
            done = engine.generate(prompts, 16, sampling=sampling, batch_size=batch_size, capture=capture)
            sampled = sum(len(c.rollout) for c in done)
            if number:  # the first round warms up
                took = (time.perf_counter() - wall) / sampled, (time.process_time() - cpu) / sampled
                seconds[name].append(took)
    bare = seconds["tokens only"]
    return {
        name: {
            "tokens_s": 1 / statistics.median(w for w, _ in times),
            "best_tokens_s": 1 / min(w for w, _ in times),
            "cpu_us_per_token": 1e6 * statistics.median(c for _, c in times),
            "cost_wall": statistics.median(w / b for (w, _), (b, _) in zip(times, bare, strict=True)) - 1,
            "cost_cpu": statistics.median(c / b for (_, c), (_, b) in zip(times, bare, strict=True)) - 1,
        }
        for name, times in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    found = measure(options.batch_size, options.threads, options.rounds, options.tokens)
    print(f"batch {options.batch_size}, {options.threads} thread(s), {options.rounds} interleaved rounds")
    for name, row in found.items():
        print(
            f"{name:28s} {row['tokens_s']:7,.0f} tokens/s median, {row['best_tokens_s']:7,.0f} best, "
            f"{row['cpu_us_per_token']:6.0f} CPU us/token, cost {row['cost_wall']:+.1%} wall, {row['cost_cpu']:+.1%} CPU"
        )


if __name__ == "__main__":
    main()
