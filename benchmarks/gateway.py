"""What the gateway adds to vLLM's own latency: n=16 asked of vLLM directly, and of the gateway before it, in turn.

    .engines/venv/bin/python -m benchmarks.gateway CHECKPOINT [-n 16] [--rounds 20] [--tokens 128]

It starts `vllm serve` with the plugin and `radmoe serve` before it, both on this machine's CPU. Every round asks both, in
an order that changes, with the same seed and length (`ignore_eos`), so that both sample the same tokens. One direct arm asks
for n choices without any routing, another has it captured and fetches it, which is vLLM's and the plugin's own cost. Printed
are the medians, and the medians of the paired differences from the first arm.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

QUESTION = [{"role": "user", "content": "Start with 4. Add 17. What do you get?"}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_vllm(checkpoint: str, port: int, *options: str) -> subprocess.Popen[bytes]:
    """vLLM with the plugin; `options` take the place of those given here."""
    variables = {
        "VLLM_PLUGINS": "radmoe",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
    }
    fixed = "--host 127.0.0.1 --dtype float32 --max-model-len 1024 --max-num-seqs 32 --enforce-eager"
    command = [str(Path(sys.executable).with_name("vllm")), "serve", checkpoint, "--port", str(port), *fixed.split()]
    command += [
        "--served-model-name",
        "lab",
        "--no-enable-chunked-prefill",
        "--additional-config",
        '{"radmoe": {}}',
        *options,
    ]
    process = subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
            return process
        except httpx.TransportError:
            time.sleep(0.5)
    raise SystemExit("vLLM did not start")


def start_gateway(checkpoint: str, upstream: int) -> tuple[subprocess.Popen[str], str]:
    named = ["--upstream", f"http://127.0.0.1:{upstream}", "--model", checkpoint, "--port", "0"]
    command = [sys.executable, "-m", "radmoe", "serve", *named]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[3].rstrip(",").removesuffix("/v1")


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process and its living descendants have used."""
    ticks, family = 0.0, {pid}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(folder.name) in family or int(fields[1]) in family:
            family.add(int(folder.name))
            ticks += float(fields[11]) + float(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ask(client: httpx.Client, url: str, body: dict[str, Any]) -> dict[str, Any]:
    return dict(client.post(f"{url}/v1/chat/completions", json=body).raise_for_status().json())


def capture(client: httpx.Client, url: str, body: dict[str, Any], n: int) -> dict[str, Any]:
    """What a client does by hand to get the routing of all tokens."""
    key = uuid.uuid4().hex
    answer = ask(client, url, body | {"return_token_ids": True, "vllm_xargs": {"radmoe": key}})
    client.post(f"{url}/v1/radmoe/routing", json={"key": key, "n": n}).raise_for_status().read()
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    port = free_port()
    vllm = start_vllm(given.checkpoint, port)
    gateway = None
    try:
        gateway, behind = start_gateway(given.checkpoint, port)
        with httpx.Client(timeout=600) as client:
            measure(client, f"http://127.0.0.1:{port}", behind, vllm.pid, gateway.pid, given)
    finally:
        if gateway is not None:
            gateway.terminate()
            gateway.wait(60)
        os.killpg(vllm.pid, signal.SIGTERM)
        vllm.wait(60)


def measure(client: httpx.Client, direct: str, behind: str, vllm: int, gateway: int, given: argparse.Namespace) -> None:
    common = {"messages": QUESTION, "max_tokens": given.tokens, "ignore_eos": True}
    asked = common | {"model": "lab", "n": given.n}
    arms: dict[str, Callable[[int], dict[str, Any]]] = {
        "vLLM": lambda seed: ask(client, direct, asked | {"seed": seed}),
        "vLLM and its routing": lambda seed: capture(client, direct, asked | {"seed": seed}, given.n),
        "gateway": lambda seed: ask(client, behind, common | {"model": f"lab#rad-{given.n}", "seed": seed}),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    cpu: dict[str, list[float]] = {name: [] for name in arms}
    own: list[float] = []
    gateway_cpu = 0.0
    for round_number in range(-2, given.rounds):  # two rounds to warm up
        order = list(arms)[round_number % 3 :] + list(arms)[: round_number % 3]
        for name in order:
            before, gateway_before, began = cpu_seconds(vllm), cpu_seconds(gateway), time.perf_counter()
            answer = arms[name](round_number + 2)
            took = time.perf_counter() - began
            if round_number < 0:
                continue
            seconds[name].append(took)
            cpu[name].append(cpu_seconds(vllm) - before)
            if name == "gateway":
                spent = answer["radmoe"]["seconds"]
                own.append(spent["total"] - spent["upstream"] - spent["queue"])
                gateway_cpu += cpu_seconds(gateway) - gateway_before
    print(f"n={given.n}, {given.tokens} tokens each, {given.rounds} rounds")
    base = statistics.median(seconds["vLLM"])
    for name, values in seconds.items():
        added = statistics.median(b - a for a, b in zip(seconds["vLLM"], values, strict=True))
        print(
            f"{name:21} median {1000 * statistics.median(values):7.1f} ms, from {1000 * min(values):.1f} to "
            f"{1000 * max(values):.1f}; paired {1000 * added:+.1f} ms ({added / base:+.1%}); "
            f"CPU of vLLM {1000 * statistics.mean(cpu[name]):.0f} ms"
        )
    print(
        f"gateway's own time: median {1000 * statistics.median(own):.1f} ms; CPU {1000 * gateway_cpu / given.rounds:.1f} ms"
    )


if __name__ == "__main__":
    main()
