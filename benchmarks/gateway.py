"""What the gateway adds to vLLM's own latency: n=16 asked of vLLM directly, and of the gateway before it, in turn.

    .engines/venv/bin/python -m benchmarks.gateway CHECKPOINT [-n 16] [--rounds 20] [--tokens 128]

It starts `vllm serve` with the plugin and `radmoe serve` before it, both on this machine's CPU. Every round asks both, in
an order that changes, with the same seed and length (`ignore_eos`), so that both sample the same tokens. The direct arm asks
for n choices without any routing. Printed are the medians and the median of the paired differences.
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
from pathlib import Path

import httpx

QUESTION = [{"role": "user", "content": "Start with 4. Add 17. What do you get?"}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_vllm(checkpoint: str, port: int) -> subprocess.Popen[bytes]:
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
    command += ["--served-model-name", "lab", "--no-enable-chunked-prefill", "--additional-config", '{"radmoe": {}}']
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


def ask(client: httpx.Client, url: str, body: dict[str, object]) -> tuple[float, dict[str, object]]:
    began = time.perf_counter()
    answer = client.post(f"{url}/v1/chat/completions", json=body).raise_for_status().json()
    return time.perf_counter() - began, answer


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
        direct = f"http://127.0.0.1:{port}"
        common = {"messages": QUESTION, "max_tokens": given.tokens, "ignore_eos": True}
        times: dict[str, list[float]] = {"vLLM": [], "gateway": []}
        own: list[float] = []
        cpu: dict[str, list[float]] = {"vLLM, asked directly": [], "vLLM behind": [], "gateway": []}
        with httpx.Client(timeout=600) as client:
            for round_number in range(-2, given.rounds):  # two rounds to warm up
                arms = [
                    ("vLLM", direct, {"model": "lab", "n": given.n}),
                    ("gateway", behind, {"model": f"lab#rad-{given.n}"}),
                ]
                for name, url, wanted in arms if round_number % 2 else reversed(arms):
                    before = cpu_seconds(vllm.pid), cpu_seconds(gateway.pid)
                    seconds, answer = ask(client, url, common | wanted | {"seed": round_number + 2})
                    spent_vllm, spent_gateway = cpu_seconds(vllm.pid) - before[0], cpu_seconds(gateway.pid) - before[1]
                    if round_number >= 0:
                        times[name].append(seconds)
                        cpu["vLLM behind" if name == "gateway" else "vLLM, asked directly"].append(spent_vllm)
                        if name == "gateway":
                            cpu["gateway"].append(spent_gateway)
                            spent = answer["radmoe"]["seconds"]  # type: ignore[index]
                            own.append(spent["total"] - spent["upstream"] - spent["queue"])
        medians = {name: statistics.median(values) for name, values in times.items()}
        differences = [b - a for a, b in zip(*times.values(), strict=True)]
        print(f"n={given.n}, {given.tokens} tokens each, {given.rounds} rounds")
        for name, value in medians.items():
            print(
                f"{name:8} median {1000 * value:8.1f} ms, from {1000 * min(times[name]):.1f} to {1000 * max(times[name]):.1f}"
            )
        added = statistics.median(differences)
        print(f"added    median {1000 * added:8.1f} ms, {added / medians['vLLM']:+.1%} of vLLM's")
        for name, values in cpu.items():
            print(f"CPU of {name}: mean {1000 * statistics.mean(values):.1f} ms a request")
        print(f"own time median {1000 * statistics.median(own):8.1f} ms")
    finally:
        if gateway is not None:
            gateway.terminate()
            gateway.wait(60)
        os.killpg(vllm.pid, signal.SIGTERM)
        vllm.wait(60)


if __name__ == "__main__":
    main()
