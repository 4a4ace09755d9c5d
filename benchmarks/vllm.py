"""What the vLLM plugin costs: interleaved runs with and without it, in one process.

    .engines/venv/bin/python -m benchmarks.vllm CHECKPOINT [--dtype float32] [-n 64] [--rounds 5]

In the arm without the plugin, the wrappers of the routers and of the model runner are taken off. The arm with it
includes fetching and decoding all rows. Both arms sample the same tokens (same seeds). Both the CPU time of this process
and the wall time are printed: on a shared machine only the first is steady, and the share of it that passes inside the
plugin, which a last run counts, is steadier still. Then come the bytes per token that leave the worker, by window.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # one process: its CPU time is all there is
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")


class Switch:
    """Takes the plugin's wrappers off a running engine, and puts them on again."""

    def __init__(self, engine: Any) -> None:
        from radmoe.engines.vllm.plugin.worker import find_routers

        runner = engine.llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        places = [(router, "_compute_routing") for router in find_routers(runner.model)] + [(runner, "execute_model")]
        self._wraps = [(thing, name, thing.__dict__[name]) for thing, name in places]

    def off(self) -> None:
        for thing, name, _ in self._wraps:
            del thing.__dict__[name]

    def on(self) -> None:
        for thing, name, wrap in self._wraps:
            thing.__dict__[name] = wrap


def run(
    engine: Any, prompts: list[list[int]], n: int, tokens: int, seed: int, capture: bool
) -> tuple[float, float, int]:
    """Wall and CPU seconds, and tokens sampled."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.vllm.engine import request_parameters, taken
    from radmoe.engines.vllm.plugin import TAKE

    sampling = Sampling(max_tokens=tokens, topk_logprobs=0)
    parameters = [request_parameters(sampling, n, key=f"{seed}-{i}", seed=seed) for i in range(len(prompts))]
    wall, cpu = time.perf_counter(), time.process_time()
    outputs = engine.llm.generate([{"prompt_token_ids": p} for p in prompts], parameters, use_tqdm=False)
    if capture:
        for i, output in enumerate(outputs):
            routing = taken(engine.llm.collective_rpc(TAKE, args=({"key": f"{seed}-{i}", "n": n},)))
            for completion in output.outputs:
                routing[completion.index].generated(len(completion.token_ids))
    took = time.perf_counter() - wall, time.process_time() - cpu
    return *took, sum(len(c.token_ids) for output in outputs for c in output.outputs)


def overhead(engine: Any, prompts: list[list[int]], n: int, tokens: int, rounds: int) -> None:
    switch, ratios = Switch(engine), []
    switch.off()
    run(engine, prompts, n, tokens, 0, False)  # warms up
    for number in range(1, rounds + 1):
        runs = {}
        for capture in (True, False) if number % 2 else (False, True):
            if capture:
                switch.on()
            runs[capture] = run(engine, prompts, n, tokens, number, capture)
            if capture:
                switch.off()
        ratios.append([runs[True][k] / runs[False][k] - 1 for k in (0, 1)])
        speed = [runs[c][2] / runs[c][0] for c in (False, True)]
        print(
            f"round {number}: {runs[True][2]:,} tokens, {speed[0]:,.0f} tokens/s without, {speed[1]:,.0f} with; "
            f"CPU {ratios[-1][1]:+.1%}, wall {ratios[-1][0]:+.1%}",
            flush=True,
        )
    switch.on()
    wall, cpu = (statistics.median(r[k] for r in ratios) for k in (0, 1))
    print(f"median of {rounds}: CPU {cpu:+.1%}, wall {wall:+.1%}")


def inside(engine: Any, prompts: list[list[int]], n: int, tokens: int) -> None:
    """Print the plugin's own CPU time, of everything that it calls, as a share of a run's."""
    from radmoe.engines.vllm.plugin.store import RowStore
    from radmoe.engines.vllm.plugin.tape import Tape
    from radmoe.engines.vllm.plugin.worker import RowRecorder

    spent: dict[str, float] = {}
    parts = [(Tape, "write"), (Tape, "arm"), (Tape, "read"), (RowStore, "plan"), (RowRecorder, "_drain")]
    parts += [(RowRecorder, "_announce"), (RowRecorder, "take")]

    def counted(call: Any, name: str) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent[name] = spent.get(name, 0.0) + time.thread_time() - began

        return counting

    originals = [(kind, name, getattr(kind, name)) for kind, name in parts]
    for kind, name, call in originals:
        setattr(kind, name, counted(call, name))
    _, cpu, _ = run(engine, prompts, n, tokens, 99, True)
    for kind, name, call in originals:
        setattr(kind, name, call)
    shares = ", ".join(f"{name} {seconds / cpu:.2%}" for name, seconds in spent.items())
    print(f"inside the plugin: {sum(spent.values()) / cpu:.1%} of CPU time ({shares})")


def windows(engine: Any, prompts: list[list[int]], n: int, tokens: int) -> None:
    """Print the bytes per generated token that leave the worker, by what is fetched."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.vllm.engine import request_parameters
    from radmoe.engines.vllm.plugin import TAKE

    layers = engine.shape.layers
    print(f"router {engine.shape}")
    for name, span, share in (
        ("generated tokens", None, 1.0),
        ("windows of 16 around one anchor", 16, 1.0),
        ("generated tokens, shallowest tenth of the layers", None, max(layers // 10, 1) / layers),
        ("windows of 16, shallowest tenth of the layers", 16, max(layers // 10, 1) / layers),
    ):
        parameters = request_parameters(Sampling(max_tokens=tokens, topk_logprobs=0), n, key="w", seed=1)
        (output,) = engine.llm.generate([{"prompt_token_ids": prompts[0]}], parameters, use_tqdm=False)
        lengths = [len(c.token_ids) for c in output.outputs]
        spans = None if span is None else {str(i): [[max(t - span, 0), t]] for i, t in enumerate(lengths)}
        payload = engine.llm.collective_rpc(TAKE, args=({"key": "w", "n": n, "spans": spans},))[0]["payload"]
        print(
            f"{name}: {share * len(payload) / sum(lengths):,.1f} bytes per token with weights, {sum(lengths):,} tokens"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()

    from radmoe.engines.vllm.engine import VllmEngine
    from radmoe_lab.tasks import problems

    engine = VllmEngine(
        chosen.checkpoint, dtype=chosen.dtype, max_model_len=1024, max_num_seqs=chosen.n, enforce_eager=True
    )
    prompts = [engine.encode(p.prompt) for p in problems("math-3", limit=chosen.prompts)]
    overhead(engine, prompts, chosen.n, chosen.tokens, chosen.rounds)
    inside(engine, prompts, chosen.n, chosen.tokens)
    windows(engine, prompts, chosen.n, chosen.tokens)


if __name__ == "__main__":
    main()
