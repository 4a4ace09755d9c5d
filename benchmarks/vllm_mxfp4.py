"""What vLLM's kernels for gpt-oss in MXFP4 choose, as the plugin hears it: random weights in gpt-oss's shape.

    python -m benchmarks.vllm_mxfp4 [--layers 4] [--experts 32] [--backends triton,marlin]
    python -m benchmarks.vllm_mxfp4 --interpret vllm-0.30.0-*.whl     a small model, `triton` alone, on a CPU (benchmarks/interpreted.py)

`triton` is OpenAI's kernel, which routes by itself; `marlin` asks the router. Each backend is a vLLM in a process of its own
and answers, for its MoE layers called alone and for whole rollouts under CUDA graphs:

    is a layer's output the sum over the experts that were heard, weighed as was heard?   (and over others: the control)
    are these the experts that the layer's router would choose, which `marlin` asks?
    do the same hidden states give the same experts in eager passes, in replayed CUDA graphs and under the other backend?
    does a rollout that was decoded in graphs have the experts that its tokens have as a prompt?
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import interpreted

os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # of E2M1; the fourth bit is the sign
STEP, GRAPHS = 2.0**-8, 20  # STEP: of bfloat16


class Sizes(NamedTuple):
    """Positions of the layers' passes, and rollouts, tokens of their prompts and of theirs."""

    batches: tuple[int, ...] = (1, 17, 256, 2048)
    prompts: int = 16
    prompt: int = 96
    tokens: int = 64


INTERPRETED = Sizes((1, 17, 256), 4, 24, 16)
KERNELS = "vllm/third_party"  # in the wheel


def config(layers: int, experts: int, small: bool) -> dict[str, Any]:
    sizes = {"hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8}
    if small:
        sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2}
    return sizes | {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "head_dim": 64,
        "num_hidden_layers": layers,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "layer_types": [("sliding_attention", "full_attention")[i % 2] for i in range(layers)],
        "sliding_window": 128,
        "attention_bias": True,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "max_position_embeddings": 131072,
        "vocab_size": 8192,
        "eos_token_id": 8191,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
        },
    }


def write_checkpoint(path: Path, shape: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    hidden, inner, experts = shape["hidden_size"], shape["intermediate_size"], shape["num_local_experts"]
    q, kv = shape["num_attention_heads"] * 64, shape["num_key_value_heads"] * 64

    def normal(*size: int, scale: float = 0.02) -> torch.Tensor:
        return (torch.randn(size, device=device) * scale).to(torch.bfloat16).cpu()

    def codes(*size: int, low: int = 0, high: int = 256) -> torch.Tensor:
        return torch.randint(low, high, size, dtype=torch.uint8, device=device).cpu()

    tensors = {
        "model.embed_tokens.weight": normal(shape["vocab_size"], hidden, scale=1.0),
        "lm_head.weight": normal(shape["vocab_size"], hidden, scale=0.05),
        "model.norm.weight": torch.ones(hidden, dtype=torch.bfloat16),
    }
    for i in range(shape["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, columns in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)):
            tensors[f"{at}self_attn.{name}_proj.weight"] = normal(rows, columns)
            tensors[f"{at}self_attn.{name}_proj.bias"] = normal(rows)
        tensors[f"{at}self_attn.sinks"] = normal(shape["num_attention_heads"], scale=1.0)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
        tensors[f"{at}mlp.router.weight"] = normal(experts, hidden)
        tensors[f"{at}mlp.router.bias"] = normal(experts)
        for name, rows, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            tensors[f"{at}mlp.experts.{name}_blocks"] = codes(experts, rows, columns // 32, 16)
            tensors[f"{at}mlp.experts.{name}_scales"] = codes(experts, rows, columns // 32, low=118, high=122)
            tensors[f"{at}mlp.experts.{name}_bias"] = normal(experts, rows)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(shape))


def matrix(stored: Any, name: str, expert: int, device: Any) -> torch.Tensor:
    """The float32 matrix [rows, columns] of one expert."""
    blocks, scales = (stored.get_slice(f"{name}_{part}")[expert].to(device) for part in ("blocks", "scales"))
    values = torch.cat([VALUES, -VALUES]).to(device)
    pairs = torch.stack([values[(blocks & 15).long()], values[(blocks >> 4).long()]], -1)  # low half first
    return (pairs.flatten(-2) * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)


def mixture(path: Path, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> Any:
    """The sum [N, H] over these experts [N, K], and that of the sizes of its terms, which bounds the rounding."""
    from safetensors import safe_open

    total, size = (torch.zeros(x.shape, device=x.device) for _ in range(2))
    with safe_open(path / "model.safetensors", "pt") as stored:
        for expert in ids.unique().tolist():
            rows, place = (ids == expert).nonzero(as_tuple=True)
            at = f"model.layers.{layer}.mlp.experts."
            up_bias, down_bias = (
                stored.get_slice(f"{at}{n}_bias")[expert].to(x.device).float() for n in ("gate_up_proj", "down_proj")
            )
            both = x[rows].float() @ matrix(stored, f"{at}gate_up_proj", expert, x.device).T + up_bias
            gate, up = both[:, ::2].clamp(max=7), both[:, 1::2].clamp(-7, 7)
            inner = ((up + 1) * gate * torch.sigmoid(1.702 * gate)).to(torch.bfloat16).float()
            term = inner @ matrix(stored, f"{at}down_proj", expert, x.device).T + down_bias
            term *= weights[rows, place, None]
            total.index_add_(0, rows, term)
            size.index_add_(0, rows, term.abs())
    return total, size


def layers_alone(llm: Any, path: Path, sizes: Sizes) -> dict[str, np.ndarray]:
    """What the MoE layers choose for the same hidden states, and whether their output is the sum over that."""
    from vllm.forward_context import set_forward_context

    from radmoe.engines.vllm.plugin.layers import moe_layers
    from radmoe.engines.vllm.plugin.tape import UNWRITTEN, Tape

    torch.backends.cuda.matmul.allow_tf32 = False
    saved: dict[str, np.ndarray] = {}

    @torch.inference_mode()
    def check(model: Any) -> None:
        blocks = [layer.mlp for layer in model.model.layers]
        kernels = {type(block.experts._quant_method.moe_kernel.fused_experts).__name__ for block in blocks}
        print(f"kernel: {', '.join(sorted(kernels))}", flush=True)
        found, device = moe_layers(model, weights=True), next(model.parameters()).device
        tape = Tape(len(found), max(sizes.batches), found[0].top_k, weights=True, device=device)
        for i, one in enumerate(found):
            one.listen(partial(tape.write, i))

        def states(seed: int, n: int) -> torch.Tensor:
            made = torch.randn(n, blocks[0].hidden_size, generator=torch.Generator().manual_seed(seed))
            return made.to(torch.bfloat16).to(device)

        def heard(n: int) -> tuple[torch.Tensor, torch.Tensor]:
            snapshot = tape.read(np.arange(n))
            snapshot.wait()
            assert (snapshot.ids != UNWRITTEN).all(), "a layer was not heard"
            return snapshot.ids.clone(), snapshot.weights.float().clone()

        def eager(x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
            tape.arm(len(x))
            with set_forward_context(None, llm.llm_engine.vllm_config, num_tokens=len(x)):
                out = [block(x.clone()).clone() for block in blocks]
            return out, *heard(len(x))

        for n in sizes.batches:
            x = states(n, n)
            out, ids, weights = eager(x)
            saved[f"ids{n}"], saved[f"weights{n}"] = ids.numpy(), weights.numpy()
            saved[f"out{n}"] = torch.stack(out, 1).float().cpu().numpy() if n <= 256 else np.empty(0)
            low, high = (float(f(weights.sum(-1))) for f in (torch.min, torch.max))
            logits = torch.stack([block.router(x) for block in blocks], 1).cpu()
            asked = [block.experts.router._compute_routing(x, block.router(x), None)[1].cpu() for block in blocks]
            theirs, own = torch.stack(asked, 1).long().sort(-1).values, ids.long().sort(-1).values
            other = (theirs != own).any(-1)
            tied = (logits.gather(-1, theirs).sort(-1).values == logits.gather(-1, own).sort(-1).values).all(-1)
            print(
                f"{n} positions: {other.numel():,} (position, layer) sets, {int(other.sum())} other than those of "
                f"{type(blocks[0].experts.router).__name__}, of which {int((other & tied).sum())} differ among experts of equal "
                f"logits alone; weights sum to {low:.4f} .. {high:.4f}",
                flush=True,
            )
            if n != 256:
                continue
            for i in (0, len(blocks) - 1):
                chosen, mass = ids[:, i].to(device).long(), weights[:, i].to(device)
                others = chosen.clone()
                logits = blocks[i].router(x).float()
                others[:, mass.argmin(-1)[0]] = logits.topk(found[i].top_k + 1).indices[:, -1]  # the next best for one
                for what, which in (("heard", chosen), ("control, one expert another", others)):
                    total, size = mixture(path, i, x, which, mass)
                    steps = (out[i].float() - total).abs() / (size * STEP)
                    print(
                        f"layer {i}: output less the sum over the experts {what}, in bfloat16 steps of its terms: median "
                        f"{float(steps.median()):.3f}, 99.9% {float(steps.flatten()[::7].quantile(0.999)):.2f}, "
                        f"largest {float(steps.max()):.2f}",
                        flush=True,
                    )
        if device.type != "cuda":
            return
        n, equal = 64, []
        x = states(0, n)
        eager(x)  # compiles
        graph = torch.cuda.CUDAGraph()
        with set_forward_context(None, llm.llm_engine.vllm_config, num_tokens=n), torch.cuda.graph(graph):
            for block in blocks:
                block(x)
        for seed in range(GRAPHS):
            x.copy_(states(1000 + seed, n))
            tape.arm(n)
            graph.replay()
            ids, weights = heard(n)
            _, same, mass = eager(x)
            equal.append(float((ids == same).all(-1).float().mean()))
            assert torch.allclose(weights, mass, atol=2e-3)
        print(
            f"CUDA graph: {np.mean(equal):.2%} of {GRAPHS * n * len(blocks):,} (position, layer) as in eager passes",
            flush=True,
        )

    llm.apply_model(check)
    return saved


def rollouts(llm: Any, sizes: Sizes) -> dict[str, np.ndarray]:
    """Rollouts decoded by the engine, and the same tokens as prompts."""
    from radmoe.engines.vllm.engine import taken
    from radmoe.engines.vllm.plugin import TAKE
    from vllm import SamplingParams

    def rows(prompts: list[list[int]], tokens: int, name: str) -> tuple[list[list[int]], list[np.ndarray]]:
        asked = [
            SamplingParams(
                temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, extra_args={"radmoe": f"{name}{i}"}
            )
            for i in range(len(prompts))
        ]
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], asked, use_tqdm=False)
        routing = [
            taken(llm.collective_rpc(TAKE, args=({"key": f"{name}{i}", "n": 1},)))[0] for i in range(len(prompts))
        ]
        whole = [p + list(o.outputs[0].token_ids) for p, o in zip(prompts, outputs, strict=True)]
        return whole, [each.ids[: len(w) - 1] for each, w in zip(routing, whole, strict=True)]

    prompts = [[(7919 * (i + 1) + 31 * j) % 8000 for j in range(sizes.prompt)] for i in range(sizes.prompts)]
    whole, sampled = rows(prompts, sizes.tokens, "sampled")
    _, again = rows([w[:-1] for w in whole], 1, "again")
    pairs = [(np.sort(a), np.sort(b[: len(a)])) for a, b in zip(sampled, again, strict=True)]
    for what, part in (("prompt", slice(0, sizes.prompt)), ("decoded", slice(sizes.prompt, None))):
        same = np.concatenate([(a == b).all(-1)[part] for a, b in pairs])
        by_layer = ", ".join(f"{share:.1%}" for share in same.mean(0))
        print(
            f"rollouts, {what} positions against the same tokens as a prompt: {same.size:,} sets, by layer {by_layer}",
            flush=True,
        )
    return {"prompt": np.stack([s[: sizes.prompt] for s in sampled])}


def one_backend(path: Path, backend: str, sizes: Sizes) -> None:
    from vllm import LLM

    gpu = {"attention_backend": "TRITON_ATTN", "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32]}
    options = gpu if torch.cuda.is_available() else {"enforce_eager": True}
    llm = LLM(
        str(path),
        skip_tokenizer_init=True,
        moe_backend=backend,
        max_model_len=1024,
        max_num_seqs=32,
        max_num_batched_tokens=max(sizes.batches),
        kv_cache_memory_bytes=1 << 30,
        enable_prefix_caching=False,
        additional_config={"radmoe": {"rows": "all"}},
        disable_log_stats=True,
        **options,
    )
    print(llm.collective_rpc("radmoe_status")[0], flush=True)
    saved = {}
    for stage in (partial(layers_alone, llm, path, sizes), partial(rollouts, llm, sizes)):
        try:
            saved |= stage()
        except Exception:  # the other stage may still say something
            traceback.print_exc()
    np.savez(path / f"{backend}.npz", **saved)


def compare(path: Path, a: str, b: str) -> None:
    """Ids and outputs of two backends on the same hidden states."""
    one, two = np.load(path / f"{a}.npz"), np.load(path / f"{b}.npz")
    for n in Sizes().batches:
        if f"ids{n}" not in one.files or f"ids{n}" not in two.files:
            continue
        same = (np.sort(one[f"ids{n}"]) == np.sort(two[f"ids{n}"])).all(-1)
        line = f"{a} and {b}, {n} positions: {same.mean():.4%} of {same.size:,} (position, layer) sets equal"
        if one[f"out{n}"].size:
            apart = np.abs(one[f"out{n}"] - two[f"out{n}"])[same] / np.abs(one[f"out{n}"])[same].mean()
            line += f"; their outputs differ by {apart.mean():.2%} in the mean and {apart.max():.1%} at most of the mean size"
        print(line, flush=True)
    if "prompt" in one.files and "prompt" in two.files:
        same = (np.sort(one["prompt"]) == np.sort(two["prompt"])).all(-1)
        shares = ", ".join(f"{share:.1%}" for share in same.mean((0, 1)))
        print(f"{a} and {b}, whole passes over the same prompts (rounding adds up), by layer: {shares}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=32, help="32 as gpt-oss-20b, 128 as gpt-oss-120b")
    parser.add_argument("--backends", default="triton,marlin")
    parser.add_argument(
        "--interpret",
        metavar="WHEEL",
        help="a small model on a CPU, with the kernels in vLLM's CUDA wheel in Triton's interpreter",
    )
    parser.add_argument("--limit", type=int, default=600, help="seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        if chosen.interpret:
            interpreted.install(chosen.interpret)
        one_backend(Path(chosen.path), chosen.one, INTERPRETED if chosen.interpret else Sizes())
        return
    backends = ["triton"] if chosen.interpret else chosen.backends.split(",")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        shape = config(chosen.layers, chosen.experts, small=bool(chosen.interpret))
        write_checkpoint(path, shape)
        print(
            f"gpt-oss in MXFP4, {chosen.layers} layers of {chosen.experts} experts, hidden size {shape['hidden_size']}",
            flush=True,
        )
        options = ["--path", folder]
        if chosen.interpret:
            with zipfile.ZipFile(chosen.interpret) as wheel:
                wheel.extractall(
                    path, [name for name in wheel.namelist() if name.startswith(f"{KERNELS}/triton_kernels/")]
                )
            options += ["--interpret", str(path / KERNELS)]
            os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # passes are tiny
        command = [sys.executable, "-m", "benchmarks.vllm_mxfp4", *options, "--one"]
        logs = {backend: (path / f"{backend}.log").open("w+") for backend in backends}
        running = {b: subprocess.Popen([*command, b], stdout=log, stderr=subprocess.STDOUT) for b, log in logs.items()}
        deadline = time.monotonic() + chosen.limit
        for backend, process in running.items():
            try:
                process.wait(max(deadline - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                print(f"FAILED: {backend} took more than {chosen.limit} s", flush=True)
            print(f"--- {backend}\n{(path / f'{backend}.log').read_text()}", flush=True)
        done = [b for b in backends if (path / f"{b}.npz").exists()]
        for other in done[1:]:
            compare(path, done[0], other)


if __name__ == "__main__":
    main()
