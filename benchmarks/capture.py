"""What capture costs: tokens/s of the transformers engine with and without it, in interleaved runs.

    python -m benchmarks.capture [--model lab-oss] [--batch-size 128] [--threads 2] [--rounds 7]
    python -m benchmarks.capture --device cuda --task choice -n 64 --batch-size 4096 --tokens 512 --rounds 3

A lab model on its own problems: a few of math-3, or with -n a whole task. All arms sample the same tokens (same seed, same random numbers); on a
CPU the last does so by the attention transformers has for this model, "sdpa" or "eager", in place of radmoe's.
Times are this process's CPU time as well as the wall's: on a shared machine only the first is steady.
"""

from __future__ import annotations

import argparse
import statistics
import time

ARMS = {  # routing, logprobs, radmoe's attention
    "tokens only": (False, 0, True),
    "+ routing": (True, 0, True),
    "+ routing, top-20 logprobs": (True, 20, True),
    "tokens only, their attention": (False, 0, False),
}


def measure(
    model: str,
    batch_size: int,
    threads: int,
    rounds: int,
    tokens: int,
    device: str = "cpu",
    task: str = "math-3",
    n: int | None = None,
) -> dict[str, dict[str, float]]:
    """Median tokens/s and cost of each arm relative to the bare one, from `rounds` interleaved runs."""
    from radmoe.engines.base import sampling_for
    from radmoe.engines.prompts import encode
    from radmoe.engines.torch.kv_cache import ATTENTION
    from radmoe_lab.inference.engine import LabEngine
    from radmoe_lab.models import weights
    from radmoe_lab.tasks import problems

    engine = LabEngine(weights(model), dtype="float32", threads=threads, device=device)
    theirs = "sdpa" if engine.model._supports_sdpa else "eager"
    asked = problems(task, limit=None if n else max(batch_size // 16, 1))
    prompts = [encode(engine.tokenizer, problem.prompt)[1] for problem in asked]
    arms = {name: arm for name, arm in ARMS.items() if device == "cpu" or arm[2]}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name in arms if number % 2 else reversed(arms):
            engine.capture, top, ours = arms[name]
            engine.model.set_attn_implementation(ATTENTION if ours else theirs)
            sampling = sampling_for(engine, max_tokens=tokens, seed=number, topk_logprobs=top)
            wall, cpu = time.perf_counter(), time.process_time()
            done = engine.generate(prompts, n or 16, sampling=sampling, batch_size=batch_size)
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
    parser.add_argument("--model", default="lab-qwen")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--task", default="math-3")
    parser.add_argument("-n", type=int, help="so many rollouts of every problem of the task")
    options = parser.parse_args()
    arms = measure(**vars(options))
    print(
        f"{options.model}, batch {options.batch_size}, {options.device}, {options.threads} thread(s), {options.rounds} interleaved rounds"
    )
    for name, row in arms.items():
        print(
            f"{name:28s} {row['tokens_s']:7,.0f} tokens/s median, {row['best_tokens_s']:7,.0f} best, "
            f"{row['cpu_us_per_token']:6.0f} CPU us/token, cost {row['cost_wall']:+.1%} wall, {row['cost_cpu']:+.1%} CPU"
        )


if __name__ == "__main__":
    main()
