"""The gateway under load: its own cost before a server that answers at once, and what best-of-N costs a vLLM that samples.

    python -m benchmarks.gateway_load [--seconds 600] [--rate 20] [--connections 200] [-n 16] [--tokens 200] [--delay 1.0]
    .engines/venv/bin/python -m benchmarks.gateway_load --vllm CHECKPOINT [--seconds 120] [--clients 8] [-n 16] [--tokens 160] [--block 32]

Without `--vllm` requests come at a fixed rate from many connections. The upstream is the planted server of the tests in a process of its own: lab-sized answers (about 200 tokens per rollout,
11x32 top-8 routing by the plugin's payload), after `--delay` seconds. Printed are errors, latencies, the p99 of the
gateway's own time (total less queue and upstream, which every answer says), and the gateway's memory over time.

With `--vllm`, `--clients` ask a gateway before one `vllm serve` on this machine's CPU, each for its next answer as soon as it has one: in
turns of a tenth of the time for one rollout (a plain request) and for the pick of n. The questions are the lab's, all different. Printed are
latencies, requests per second, tokens per second and the share of the prompts' tokens that vLLM's prefix cache had.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # the planted server is there

from benchmarks.gateway import cpu_seconds, free_port, start_gateway, start_vllm

MESSAGES = [{"role": "user", "content": "What is 2 plus 3?"}]


def start_upstream(checkpoint: Path, tokens: int, delay: float) -> tuple[subprocess.Popen[bytes], int]:
    import planted_upstream

    planted_upstream.save_checkpoint(checkpoint, planted_upstream.LAB)
    port = free_port()
    script = [sys.executable, planted_upstream.__file__, "--port", str(port), "--checkpoint", str(checkpoint), "--lab"]
    process = subprocess.Popen([*script, "--tokens", str(tokens), "--delay", str(delay)])
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
            return process, port
        except httpx.TransportError:
            time.sleep(0.1)


def memory(pid: int) -> float:
    """Resident megabytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def percentiles(seconds: list[float]) -> str:
    return ", ".join(f"p{p} {1000 * np.percentile(seconds, p):.1f}" for p in (50, 90, 99, 100)) + " ms"


async def load(url: str, pid: int, given: argparse.Namespace) -> None:
    body = {"model": f"planted#rad-{given.n}", "messages": MESSAGES}
    limits = httpx.Limits(max_connections=given.connections, max_keepalive_connections=given.connections)
    own: list[float] = []
    total: list[float] = []
    errors: list[str] = []
    sizes: list[tuple[float, float]] = []
    began = time.monotonic()

    used = cpu_seconds(pid)

    async def one(client: httpx.AsyncClient) -> None:
        start = time.monotonic()
        try:
            answer = await client.post(f"{url}/v1/chat/completions", json=body)
        except httpx.HTTPError as error:
            errors.append(repr(error))
            return
        if answer.status_code != 200:
            errors.append(f"{answer.status_code} {answer.text[:100]}")
            return
        spent = answer.json()["radmoe"]["seconds"]
        total.append(time.monotonic() - start)
        own.append(spent["total"] - spent["queue"] - spent["upstream"])

    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        tasks: set[asyncio.Task[None]] = set()
        for i in range(int(given.seconds * given.rate)):
            await asyncio.sleep(max(0.0, began + i / given.rate - time.monotonic()))
            task = asyncio.create_task(one(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if i % given.rate == 0:
                sizes.append((time.monotonic() - began, memory(pid)))
        await asyncio.gather(*tasks)
    sizes.append((time.monotonic() - began, memory(pid)))
    print(
        f"{len(total) + len(errors):,} requests in {time.monotonic() - began:.0f} s, n={given.n}, {len(errors)} errors {errors[:3]}"
    )
    for name, values in (("own time", own), ("latency", total)):
        print(f"{name}: {percentiles(values)}")
    print(f"CPU: {1000 * (cpu_seconds(pid) - used) / max(len(total), 1):.1f} ms a request")
    after = [(at, size) for at, size in sizes if at >= min(60.0, given.seconds / 2)]
    slope = np.polyfit(*zip(*after, strict=True), 1)[0] * 60 if len(after) > 2 else float("nan")
    course = ", ".join(f"{size:.0f} at {at:.0f} s" for at, size in [*sizes[::30], sizes[-1]])
    print(f"memory in MB: {course}; {slope:+.2f} a minute from {after[0][0]:.0f} s on")


async def cost(url: str, vllm: str, pid: int, given: argparse.Namespace) -> None:
    """What one rollout and the pick of n cost the same vLLM, in turns."""
    from radmoe_lab.tasks import stream

    questions = (problem.prompt for problem in stream("math-2", seed=1))
    models = {1: "lab", given.n: f"lab#rad-{given.n}"}
    latency: dict[int, list[float]] = {n: [] for n in models}
    spent, tokens = dict.fromkeys(models, 0.0), dict.fromkeys(models, 0)
    used, cached = dict.fromkeys(models, 0.0), {n: np.zeros(2) for n in models}
    turns = [n for turn in range(5) for n in (list(models) if turn % 2 else list(models)[::-1])]

    async def prefixes(client: httpx.AsyncClient) -> np.ndarray:
        text = (await client.get(f"{vllm}/metrics")).text
        return np.array(
            [
                float(re.findall(rf"^vllm:prefix_cache_{name}_total.* (\S+)$", text, re.M)[0])
                for name in ("hits", "queries")
            ]
        )

    async def ask(client: httpx.AsyncClient, n: int, end: float) -> None:
        while time.monotonic() < end:
            body = {"model": models[n], "messages": [{"role": "user", "content": next(questions)}]}
            began = time.monotonic()
            answer = await client.post(
                f"{url}/v1/chat/completions", json=body | {"max_tokens": given.tokens, "temperature": 1.0}
            )
            latency[n].append(time.monotonic() - began)
            tokens[n] += answer.raise_for_status().json()["usage"]["completion_tokens"]

    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        for n in models:  # to warm up
            await ask(client, n, time.monotonic() + 5)
        latency.update({n: [] for n in models})
        tokens.update(dict.fromkeys(models, 0))
        for n in turns:
            began, before, cpu = time.monotonic(), await prefixes(client), cpu_seconds(pid)
            await asyncio.gather(*(ask(client, n, began + given.seconds / len(turns)) for _ in range(given.clients)))
            spent[n] += time.monotonic() - began
            cached[n] += await prefixes(client) - before
            used[n] += cpu_seconds(pid) - cpu
    for n, values in latency.items():
        hits, queries = cached[n]
        print(
            f"N={n}: {len(values):,} answers to {given.clients} clients in {spent[n]:.0f} s, {len(values) / spent[n]:.2f} a second; "
            f"{percentiles(values)}; {tokens[n] / spent[n]:,.0f} tokens a second, {tokens[n] / len(values):.0f} an answer; vLLM's CPU {1000 * used[n] / len(values):.0f} ms an answer; "
            f"{hits / queries:.1%} of {queries / len(values):.0f} prompt tokens an answer were cached"
        )


def before_vllm(given: argparse.Namespace) -> None:
    port = free_port()
    options = ("--max-num-seqs", str(given.clients * given.n), "--block-size", str(given.block))
    vllm, gateway = start_vllm(given.vllm, port, *options), None
    try:
        gateway, url = start_gateway(given.vllm, port)
        asyncio.run(cost(url, f"http://127.0.0.1:{port}", vllm.pid, given))
    finally:
        if gateway is not None:
            gateway.terminate()
            gateway.wait(60)
        os.killpg(vllm.pid, signal.SIGTERM)
        vllm.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="CHECKPOINT")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--block", type=int, default=128, help="tokens that vLLM's prefix cache keeps or finds together"
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=20)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--delay", type=float, default=1.0)
    given = parser.parse_args()
    if given.vllm is not None:
        before_vllm(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        upstream, port = start_upstream(Path(folder) / "planted", given.tokens, given.delay)
        gateway = None
        try:
            gateway, url = start_gateway(str(Path(folder) / "planted"), port)
            asyncio.run(load(url, gateway.pid, given))
        finally:
            if gateway is not None:
                gateway.terminate()
                gateway.wait(60)
            upstream.kill()
            upstream.wait()


if __name__ == "__main__":
    main()
