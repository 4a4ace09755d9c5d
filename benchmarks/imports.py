"""What an import costs: MB/s and peak memory of `radmoe import`, of rollouts of 2,000 tokens from a 48x128 top-8 router.

    python -m benchmarks.imports [--rollouts 256] [--files 4] [--formats slime,prime-rl]

Files of made-up rollouts are written, and imported by a process of their own: half of the files, and all of them. MB are those of
the routing as a pool has it (int16); a file of slime has twice as many (int32), and prime-rl's two thirds (uint8 as base64).
The rate per CPU second is one core's share, whatever else is at work. What memory grows with the number of rollouts says what
10,000 would take.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, EXPERTS, TOP_K = 48, 128, 8
PROMPT, TOKENS, GROUP = 100, 2000, 16
WHOLE = 10_000
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from radmoe_integrations.imports.work import ImportWork, import_rollouts
from radmoe.engines.checkpoint import Checkpoint
form, model, out, *files = sys.argv[1:]
Checkpoint(model)  # transformers and torch are loaded with the first one
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, cpu = time.perf_counter(), time.process_time()
work = ImportWork(form, [Path(file) for file in files], model)
checked = time.perf_counter()
done = import_rollouts(work, Path(out))
ended = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"rollouts": done.rollouts, "check": checked - began, "write": ended - checked, "peak": peak * 1024, "base": base * 1024, "cpu": time.process_time() - cpu}))
"""


def checkpoint(path: Path) -> Path:
    """A directory with the configuration of a 48x128 top-8 router, and lab-qwen's tokenizer."""
    from radmoe.engines.models import resolve_model

    source = resolve_model("lab-qwen")
    path.mkdir()
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, path)
    config = json.loads((path / "config.json").read_text())
    config |= {"num_hidden_layers": LAYERS, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K}
    (path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "layer_types"}))
    return path


def samples(count: int, seed: int) -> list[dict[str, Any]]:
    """Rollouts in groups of one prompt. They part at their first token, whose routing, of the prompt's last one, is the same."""
    rng = np.random.default_rng(seed)
    noise = rng.random((PROMPT + TOKENS + 512, LAYERS, EXPERTS), np.float32)
    rows = np.argpartition(noise, TOP_K, -1)[..., :TOP_K].astype(np.uint8)
    made = []
    for i in range(count):
        group = seed * WHOLE + i // GROUP
        at = int(rng.integers(512))
        routing = np.concatenate([rows[group % 512 : group % 512 + PROMPT], rows[at : at + TOKENS - 1]])
        first = np.full(PROMPT, 50 + group % 50)
        tokens = rng.integers(10, 250, TOKENS)
        tokens[0] = 10 + i % GROUP
        made.append(
            {
                "group": group,
                "tokens": np.concatenate([first, tokens]).tolist(),
                "rows": routing,
                "reward": float(i % 2),
            }
        )
    return made


def write(form: str, path: Path, count: int, seed: int) -> Path:
    """A file of rollouts, as slime or as prime-rl's clients write it."""
    every = samples(count, seed)
    if form == "slime":
        import torch

        logs = np.linspace(-1, 0, TOKENS).tolist()
        shared = {"response_length": TOKENS, "status": "completed", "loss_mask": [1] * TOKENS}
        listed = [
            shared
            | {
                "group_index": one["group"],
                "tokens": one["tokens"],
                "reward": one["reward"],
                "rollout_log_probs": [*logs],
            }
            | {"rollout_routed_experts": torch.from_numpy(one["rows"].astype(np.int32)), "loss_mask": [1] * TOKENS}
            for one in every
        ]
        torch.save({"rollout_id": seed, "samples": listed}, path)
        return path
    with path.open("w") as file:
        for one in every:
            data = base64.b64encode(one["rows"].tobytes()).decode()
            routed = {"data": data, "shape": one["rows"].shape, "start": 0, "dtype": "uint8"}
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "token_ids": one["tokens"][PROMPT:],
                "routed_experts": routed,
            }
            line = {"problem_id": one["group"], "reward": one["reward"], "prompt_token_ids": one["tokens"][:PROMPT]}
            file.write(json.dumps(line | {"choices": [choice]}) + "\n")
    return path


def imported(form: str, model: Path, out: Path, files: list[Path]) -> dict[str, float]:
    """Import files in a process of its own, and say what it took."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, form, model, out, *files], stdout=subprocess.PIPE, text=True, check=True
    )
    shutil.rmtree(out)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--formats", default="slime,prime-rl")
    options = parser.parse_args()
    megabytes = TOKENS * LAYERS * TOP_K * 2 / 1e6  # of a rollout, as int16
    print(
        f"{options.rollouts} rollouts in {options.files} files; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    with tempfile.TemporaryDirectory() as scratch:
        model = checkpoint(Path(scratch) / "model")
        for form in options.formats.split(","):
            each = options.rollouts // options.files
            files = [write(form, Path(scratch) / f"{form}-{i}", each, i) for i in range(options.files)]
            half, whole = (
                imported(form, model, Path(scratch) / "pool", part) for part in (files[: len(files) // 2], files)
            )
            seconds = whole["check"] + whole["write"]
            rate = whole["rollouts"] * megabytes / seconds
            disk = sum(file.stat().st_size for file in files) / 1e6
            growth = (whole["peak"] - half["peak"]) / (whole["rollouts"] - half["rollouts"])
            then = whole["peak"] + growth * (WHOLE - whole["rollouts"])
            print(
                f"{form}: {rate:.0f} MB/s of routing ({whole['rollouts'] * megabytes / whole['cpu']:.0f} per CPU second), {disk / seconds:.0f} MB/s "
                f"of the files' {disk:,.0f} MB (checking {whole['check']:.1f} s, writing {whole['write']:.1f} s); peak {whole['peak'] / 1e6:.0f} MB, of which {whole['base'] / 1e6:.0f} before; "
                f"{WHOLE:,} rollouts at this rate: {WHOLE * megabytes / rate:.0f} s, {then / 1e6:.0f} MB"
            )
            for file in files:
                file.unlink()


if __name__ == "__main__":
    main()
