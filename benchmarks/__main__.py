"""Measure everything, in one run on one machine, and rewrite docs/benchmarks.md."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import pools
from benchmarks.kernels import DENSE, OURS, kernel_table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PACKAGES = ("numpy", "numba", "blosc2", "pyarrow", "torch", "scipy", "scikit-learn", "faiss-cpu")

ELSEWHERE = """
## By commands of their own

| command | measures | figures |
| --- | --- | --- |
| `python -m benchmarks.capture --model lab-oss` | what capture costs while sampling, and what radmoe's attention saves | [capture.md](capture.md) |
| `python -m benchmarks.llamacpp` | how far llama.cpp's routing agrees with transformers', and tokens/s | [llamacpp.md](../packages/radmoe-llamacpp/docs/llamacpp.md) |
| `.engines/venv/bin/python -m benchmarks.gateway_load --vllm CHECKPOINT` | what best-of-16 costs a vLLM under load, and its prefix cache | [gateway.md](gateway.md) |
| `python -m benchmarks.noise` | which picks a second pass changes, and whether numeric noise tells them | [engines.md](engines.md) |
| `.engines/venv/bin/python -m benchmarks.vllm CHECKPOINT` | what the vLLM plugin costs | [engines.md](engines.md) |
| `python -m benchmarks.vllm_gpu` | the same on a GPU with CUDA graphs, on random weights of Qwen3-30B-A3B's shape | [engines.md](engines.md) |
| `.engines/venv/bin/python -m benchmarks.agreement` | how much of vLLM's routing a replay gives again | [engines.md](engines.md) |
| `python -m benchmarks.agents` | selecting one patch of 16 for 500 issues, from a pool of boundary rows | [agents.md](agents.md) |
| `python -m benchmarks.answers` | how many equal answers grading splits, and how many different ones it merges | [grading.md](grading.md) |
| `python -m benchmarks.evaluate` | what evaluation costs at the paper's size | [evaluate.md](evaluate.md) |
| `python -m benchmarks.hardening` | what malformed pools, journals and servers do to every command that reads them | [security.md](security.md) |
| `python -m benchmarks.imports` | what importing rollouts of RL frameworks costs, in MB/s and memory | [integrations.md](integrations.md) |
| `python -m benchmarks.leakage POOL...` | how much of the text a linear decoder reads from routing | [security.md](security.md) |
| `python -m benchmarks.readouts` | what readouts of whole answers cost in time and memory | [readouts.md](readouts.md) |
| `python -m benchmarks.replay` | what replay in batches costs, against one rollout after another | [replay.md](replay.md) |
| `python -m benchmarks.sandbox` | what a program costs in the sandbox, against a bare interpreter | [grading.md](grading.md) |
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is aligned left and whose other columns are aligned right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kernels(rows: list[dict[str, Any]]) -> str:
    at = {(row["name"], row["router"]): row for row in rows}
    routers = list(dict.fromkeys(row["router"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    lines = [
        [name, *(f"{at[name, r]['median_ms']:.3f} ({at[name, r]['min_ms']:.3f})" for r in routers)] for name in names
    ]
    for key in ("median_ms", "min_ms"):
        peers = [min(at[n, r][key] for n in names if n not in (OURS, DENSE)) for r in routers]
        gains = (f"**{peer / at[OURS, r][key]:.1f}x**" for peer, r in zip(peers, routers, strict=True))
        lines.append([f"**fastest peer / radmoe, {key[:-3]}**", *gains])
    lines.append(["non-zero share of Z", *(f"{at[OURS, r]['nonzero']:.0%}" for r in routers)])
    return table(["median (min) ms", *routers], lines)


def profiles(results: dict[str, dict[str, float]]) -> str:
    lines = []
    for name, size in results.items():
        saved = 1 - size["disk"] / results["everything (the default)"]["disk"]
        ratios = (f"{size[column]:.2f}" for column in ("moe_topk_expert_ids", "moe_topk_expert_weights"))
        lines.append(
            [
                name,
                f"{size['captured'] / 1e6:.0f}",
                f"{size['kept'] / 1e6:.1f}",
                f"{size['disk'] / 1e6:.1f}",
                f"{saved:.0%}",
                *ratios,
            ]
        )
    return table(["profile", "captured MB", "kept MB", "on disk MB", "saved", "ids ratio", "weights ratio"], lines)


def page(kernel_rows: list[dict[str, Any]], figures: dict[str, Any]) -> str:
    times, memory, size = figures["end_to_end"], figures["memory"], figures["routing"]
    settings = [
        [row["column"], row["settings"], f"{row['ratio']:.3f}", f"{row['write_mb_s']:.0f}", f"{row['read_ms']:.1f}"]
        for row in figures["settings"]
    ]
    gain = {statistic: times[f"numpy {statistic}"] / times[f"radmoe {statistic}"] for statistic in ("median", "min")}
    return f"""# Benchmarks

Written by `make bench` on {date.today():%Y-%m-%d}; one thread each, every comparison within one run. Shared
machines are noisy: the minimum says what the code costs, the median what the machine did to it.

Machine: {cpu()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}.
Versions: {", ".join(f"{name} {version(name)}" for name in PACKAGES)}.

## Kernel

Weighted Jaccard of all pairs, N = 64, window 16, the paper's four routers, routing-like windows
(`benchmarks/kernels.py`). The whole public call is timed: checking, transposing, everything. A peer that has
no min/max similarity computes the L1 distance it follows from. "{DENSE}" is the worst case: nothing to skip.

{kernels(kernel_rows)}

## Selection, end to end

{figures["rollouts"]} rollouts of {figures["tokens"]:,.0f} tokens on average, {pools.SHAPE}, ids and weights, from a closed pool to the
pick: open, read token ids, locate, read windows, average, kernel, density. Against reading both routing columns
whole and broadcasting in NumPy, which gives the same densities.

{table(["ms per problem", "median", "min"], [[name, f"{times[name + ' median']:.1f}", f"{times[name + ' min']:.1f}"] for name in ("radmoe", "numpy")])}

**{gain["median"]:.0f}x** by medians, {gain["min"]:.0f}x by minima. (Paper: "tens of milliseconds" for the similarity matrix alone.)

## Memory

Selecting every problem ({memory["problems"]:.0f}) of a pool of {memory["pool_gb"]:.2f} GB on disk raised the peak resident size of a process that had
already selected from a small pool ({memory["before_mb"]:.0f} MB, mostly compiled code and libraries) by **{memory["grown_mb"]:.0f} MB**.

## Writing and compression

Planted routing, {pools.SHAPE}: `PoolWriter` from the first `add` to the end of `close`, journal, compression, checksums
and fsync included: **{figures["write_mb_s"]:.0f} MB/s** of routing, {figures["write_tokens_s"]:,.0f} tokens/s. Both routing columns together compress
**{size["kept"] / size["disk"]:.2f}x** (ids {size["moe_topk_expert_ids"]:.2f}x, weights {size["moe_topk_expert_weights"]:.2f}x; the paper reports about 1.8x).

What the settings do, on the same rows; a read is 64 windows of 16 tokens:

{table(["column", "settings", "ratio", "write MB/s", "read ms"], settings)}

## Compact profiles

One problem of {figures["rollouts"]} rollouts under each `Profile`; "saved" is against the default, on disk.

{profiles(figures["profiles"])}

Sorting experts shrinks the ids and grows the weights by more: it pays in ids-only pools only.
{ELSEWHERE}"""


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> None:
    print("kernels ...", flush=True)
    rows = kernel_table()
    print("pools ...", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        figures = pools.measure(Path(scratch))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(rows, figures))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
