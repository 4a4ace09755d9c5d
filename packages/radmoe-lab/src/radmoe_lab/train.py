"""Train a lab model from a seed: `python -m radmoe_lab.train lab-qwen --seconds 420 --out DIR`.

Training takes one GPU and some minutes. The learning rate follows the clock, so a run always ends on time and completes
its schedule. `--tiny --steps 20` does the same on a CPU in seconds with a model a hundredth of the size. The output is
the checkpoint in bfloat16, the tokenizer, and training.json: the recipe, loss and accuracy over time, and how evenly
the experts are used.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radmoe.errors import InputError
from radmoe.system.printing import say
from radmoe_lab.corpus import IGNORE, batches
from radmoe_lab.delta_rule import matrix_products
from radmoe_lab.dense import make_trainable
from radmoe_lab.models import Model, model_named
from radmoe_lab.tasks import TASKS, task_named
from radmoe_lab.tokenizer import fast_tokenizer

BALANCE = 0.01  # weight of the load-balancing loss
LEARNING_RATE = 1.5e-3
WARMUP = 200  # steps
UNTIMED = 4  # the first steps, which compile, run before the clock starts
LOG_EVERY = 100


def expert_load(path: Path, batch: Tensor) -> dict[str, float]:
    """How evenly a saved checkpoint uses its experts on a batch.

    `entropy_min` is that of the least even layer, relative to even use; `rarest_expert` is the rarest expert's share
    of even use, 0 for a dead one.
    """
    from transformers import AutoModelForCausalLM

    network = (
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, trust_remote_code=False).to(batch.device).eval()
    )
    counts: list[Tensor] = []
    for module in network.modules():
        if type(module).__name__.endswith("TopKRouter"):
            experts = module.weight.shape[0]
            module.register_forward_hook(
                lambda _m, _a, out, n=experts: counts.append(torch.bincount(out[2].reshape(-1), minlength=n).float())
            )
    with torch.no_grad():
        network(input_ids=batch, use_cache=False)
    share = torch.stack(counts)
    share = share / share.sum(1, keepdim=True)
    entropy = -(share * share.clamp_min(1e-12).log()).sum(1) / math.log(share.shape[1])
    return {"entropy_min": float(entropy.min()), "rarest_expert": float(share.min() * share.shape[1])}


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of the completions' tokens that are the model's first choice.

    Every batch is new, so the model has not been trained on it.
    """
    completion = labels[:, 1:] != IGNORE
    return float((logits[:, :-1].argmax(-1) == labels[:, 1:])[completion].float().mean())


def train(
    model: Model,
    out: Path,
    *,
    seconds: float | None,
    steps: int | None,
    seed: int,
    tiny: bool,
    workers: int,
    tokens: int,
    compiled: bool,
    start_from: Path | None = None,
    learning_rate: float = LEARNING_RATE,
    snapshots: int = 0,
) -> dict[str, Any]:
    """Train until the time or the steps are used up, write everything to `out`, and return what training.json holds.

    `snapshots` more checkpoints, of the second half of the run, go to `out`/snapshot-50 and so on, by percent done.
    """
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    config = model.config(tiny=tiny)
    source = batches(model, tokens=tokens, pad=config.pad_token_id, seed=seed, workers=workers)
    first = next(source)  # so that workers are started before the clock is
    if start_from is None:
        network = AutoModelForCausalLM.from_config(config).to(device).train()
    else:
        network = (
            AutoModelForCausalLM.from_pretrained(start_from, dtype=torch.float32, trust_remote_code=False)
            .to(device)
            .train()
        )
    make_trainable(network, balance=BALANCE)
    if compiled and device == "cuda":
        for layer in network.model.layers:
            # Linear attention is a loop over chunks, which would be compiled anew for every length.
            part = layer.mlp if hasattr(layer, "linear_attn") else layer
            part.forward = torch.compile(part.forward, dynamic=True)
    decay = [p for p in network.parameters() if p.ndim > 1]
    other = [p for p in network.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=device == "cuda")
    log: list[dict[str, float]] = []
    marks = [50 + 50 * i // snapshots for i in range(snapshots)]
    start, step, trained_tokens, progress = time.perf_counter(), 0, 0, 0.0
    with matrix_products(network):
        while progress < 1.0:
            inputs, labels = (
                torch.from_numpy(a).to(device, non_blocking=True) for a in (first if step == 0 else next(source))
            )
            for group in optimizer.param_groups:
                cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))
                group["lr"] = learning_rate * min(1.0, (step + 1) / WARMUP) * cosine
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = network(input_ids=inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]).float(), labels[:, 1:].reshape(-1), ignore_index=IGNORE
            )
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step, trained_tokens = step + 1, trained_tokens + inputs.numel()
            if step == UNTIMED:
                start, trained_tokens = time.perf_counter(), 0
            elapsed = time.perf_counter() - start if step > UNTIMED else 0.0
            progress = step / steps if steps is not None else elapsed / (seconds or 1.0)
            if marks and 100 * progress >= marks[0]:
                save(network, model, out / f"snapshot-{marks.pop(0)}")
            if step % LOG_EVERY == 0 or progress >= 1.0:
                log.append(
                    {
                        "step": step,
                        "seconds": round(elapsed, 1),
                        "tokens": trained_tokens,
                        "loss": round(loss.item(), 4),
                    }
                    | {"accuracy": round(accuracy(logits, labels), 4)}
                )
                say(f"{model.name} {json.dumps(log[-1])}")
    source.close()
    result = {
        "model": model.name,
        "seed": seed,
        "parameters": sum(p.numel() for p in network.parameters()),
        "recipe": {
            "optimizer": "AdamW 0.9/0.95, weight decay 0.05, cosine by progress",
            "learning_rate": learning_rate,
            "start_from": start_from and start_from.name,
            "tokens_per_step": tokens,
            "balance": BALANCE,
            "styles": model.styles,
            "shares": {} if model.agent else {name: task.share for name, task in TASKS.items()} | dict(model.shares),
        },
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "steps": step,
        "seconds": time.perf_counter() - start,
        "log": log,
    }
    save(network, model, out)
    result["load"] = expert_load(out, inputs[:64])
    (out / "training.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def save(network: Any, model: Model, out: Path) -> None:
    """Write the checkpoint as transformers stores it, in bfloat16, with its tokenizer."""
    out.mkdir(parents=True, exist_ok=True)
    rounded = type(network)(network.config).to(torch.bfloat16)  # a copy, because training may go on
    rounded.load_state_dict(network.state_dict())
    rounded.generation_config.update(
        do_sample=True,
        temperature=model.temperature,
        top_p=model.top_p,
        top_k=0,
        max_new_tokens=model.max_new_tokens,
    )
    rounded.save_pretrained(out)
    fast_tokenizer(model.tokenizer).save_pretrained(out)


def parse_shares(given: list[str]) -> dict[str, float]:
    """Parse `["choice=0.2"]` into {"choice": 0.2}."""
    shares = {}
    for item in given:
        task, _, share = item.partition("=")
        if not re.fullmatch(r"\d*\.?\d+", share):
            raise InputError(f"--share {item}: write a task and a share, as in --share choice=0.2")
        shares[task_named(task).name] = float(share)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--start-from", type=Path, help="go on from this checkpoint, with a new optimizer")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="TASK=SHARE",
        help="of a task in training; default: the model's own",
    )
    parser.add_argument("--snapshots", type=int, default=0, help="so many checkpoints on the way, of the second half")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--eager", action="store_true", help="do not compile (recurrent layers take long to compile)")
    options = parser.parse_args()
    tokens = min(options.tokens, 2048) if options.tiny else options.tokens
    workers = 0 if options.tiny else options.workers
    model = model_named(options.model)
    train(
        replace(model, shares={**model.shares, **parse_shares(options.share)}),
        options.out,
        seconds=options.seconds,
        steps=options.steps,
        seed=options.seed,
        tiny=options.tiny,
        workers=workers,
        tokens=tokens,
        compiled=not options.eager,
        start_from=options.start_from,
        learning_rate=options.learning_rate,
        snapshots=options.snapshots,
    )


if __name__ == "__main__":
    main()
