"""How much of vLLM's routing a transformers replay gives again, for the shipped lab models; docs/engines.md has the tables.

    .engines/venv/bin/python -m benchmarks.agreement                     # 20 problems x 6 rollouts each, some ten minutes
    .engines/venv/bin/python -m benchmarks.agreement --compiled          # vLLM as it runs without --enforce-eager
    .engines/venv/bin/python -m benchmarks.agreement lab-next --problems 4

vLLM samples with its own routed experts and the plugin's side by side. The same tokens are then computed again: by
transformers in float32 and in bfloat16; and by vLLM itself, as one prompt. A set is the K experts of one row and layer; it agrees or it does not, and all rows count.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}

import numpy as np
import torch
from numpy.typing import NDArray

from radmoe import select
from radmoe.engines.base import Sampling
from radmoe.engines.torch.routers import find_routers
from radmoe.grading.answers import extract
from radmoe.types import Rollout, RolloutGroup
from radmoe_lab.inference.engine import LabEngine
from radmoe_lab.models import weights
from radmoe_lab.tasks import problems

CASES = {"lab-qwen": ("float32", "bfloat16"), "lab-oss": ("float32", "bfloat16"), "lab-next": ("bfloat16",)}
EXACT, OWN, ITSELF = "float32", "bfloat16", "vLLM, as a prompt"
Routing = tuple[NDArray[Any], NDArray[Any]]


@dataclass
class Sampled:
    """A rollout with the plugin's routing; ids [T, L, K] of vLLM's own, and of vLLM given the tokens as a prompt."""

    problem: int
    prompt: list[int]
    rollout: Rollout
    stock: NDArray[Any] | None = None
    again: NDArray[Any] | None = None

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.rollout.token_ids.tolist()]

    @property
    def rows(self) -> slice:
        return slice(len(self.prompt) - 1, len(self.prompt) - 1 + len(self.rollout))


def sampled(name: str, dtype: str, chosen: argparse.Namespace) -> tuple[Any, list[Sampled]]:
    """A vLLM engine's shape and vocabulary, and what it sampled."""
    from radmoe.engines.vllm.engine import VllmEngine, from_vllm, request_parameters, taken
    from radmoe.engines.vllm.plugin import TAKE

    engine = VllmEngine(
        weights(name),
        dtype=dtype,
        enable_return_routed_experts=not chosen.compiled,  # zeros, where vLLM 0.30 compiles for a CPU
        enable_prefix_caching=False,  # tokens given as a prompt are to be computed again
        max_model_len=1024,
        max_num_seqs=64,
        max_num_batched_tokens=64 * 256,  # prompts in one piece: a seeded one in parts kills vLLM 0.30 on CPU
        enforce_eager=not chosen.compiled,
    )
    if dtype == "float32":
        engine.llm.apply_model(bfloat16_sinks)
    prompts = [engine.encode(p.prompt) for p in problems("math-2", limit=chosen.problems)]
    sampling = Sampling(temperature=chosen.temperature, max_tokens=160, topk_logprobs=0)
    parameters = [request_parameters(sampling, chosen.n, key=f"k{i}", seed=i) for i in range(len(prompts))]
    outputs = engine.llm.generate([{"prompt_token_ids": p} for p in prompts], parameters, use_tqdm=False)
    rollouts = []
    for i, output in enumerate(outputs):
        routing = taken(engine.llm.collective_rpc(TAKE, args=({"key": f"k{i}", "n": chosen.n},)))
        group = from_vllm(output, engine.llm, kind="math", routing=routing)
        rollouts += [Sampled(i, prompts[i], rollout) for rollout in group.rollouts]
        if not chosen.compiled:
            for one, stock in zip(rollouts[-chosen.n :], from_vllm(output, engine.llm).rollouts, strict=True):
                one.stock = stock.expert_ids
    if not chosen.compiled:
        once = request_parameters(Sampling(max_tokens=1, topk_logprobs=0), 1, seed=0)
        given = [{"prompt_token_ids": one.tokens} for one in rollouts]
        for one, output in zip(
            rollouts, engine.llm.generate(given, [once] * len(rollouts), use_tqdm=False), strict=True
        ):
            one.again = np.asarray(output.outputs[0].routed_experts)[one.rows].astype(np.int16)
    engine.close()
    return engine, rollouts


def bfloat16_sinks(model: Any) -> None:
    """vLLM's CPU attention reads gpt-oss's sinks as bfloat16, which is what the checkpoint holds: nothing is lost."""
    for module in model.modules():
        if getattr(getattr(module, "impl", None), "sinks", None) is not None:
            module.impl.sinks = module.impl.sinks.detach().to(torch.bfloat16)


def same(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """[T, L]: which sets agree."""
    equal: NDArray[np.bool_] = (np.sort(a, -1) == np.sort(b, -1)).all(-1)
    return equal


def replayed(engine: LabEngine, rollouts: list[Sampled]) -> list[Routing]:
    def one(s: Sampled) -> Routing:
        ids, mass = engine.teacher_forced(s.tokens)
        return ids[s.rows], mass[s.rows].astype(np.float16)

    return [one(s) for s in rollouts]


def margins(engine: LabEngine, rollouts: list[Sampled]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Per set: the gap from the K-th logit to the next, and one bfloat16 step at the K-th."""
    logits: list[torch.Tensor] = []
    hooks = [
        r.register_forward_hook(lambda _, args, out: logits.append(out[0].float())) for r in find_routers(engine.model)
    ]
    gaps, steps, k = [], [], engine.shape.top_k
    for s in rollouts:
        logits.clear()
        engine.teacher_forced(s.tokens)
        top = torch.stack(logits, 1)[s.rows].topk(k + 1).values.numpy()
        gaps.append(top[..., k - 1] - top[..., k])
        steps.append(2.0 ** (np.floor(np.log2(np.abs(top[..., k - 1]).clip(1e-30))) - 7))
    for hook in hooks:
        hook.remove()
    return np.concatenate(gaps), np.concatenate(steps)


def picks(engine: Any, rollouts: list[Sampled], routing: list[Routing]) -> tuple[int, list[str]]:
    """Problems on which RAD picks the same rollout from both routings, and how near a tie the others were."""
    equal, others = 0, []
    for problem in sorted({s.problem for s in rollouts}):
        at = [i for i, s in enumerate(rollouts) if s.problem == problem]
        captured = [rollouts[i].rollout for i in at]
        again = [Rollout(rollouts[i].rollout.token_ids, *routing[i]) for i in at]
        mine, theirs = (
            select(RolloutGroup("p", g, engine.shape, engine.vocab, "math"), k=3) for g in (captured, again)
        )
        equal += mine.index == theirs.index
        if mine.index != theirs.index and mine.index is not None and theirs.index is not None:
            gap = 1 - mine.density[theirs.index] / mine.density[mine.index]
            moved = np.nanmax(np.abs(1 - theirs.density / mine.density))
            text = [engine.tokenizer.decode(captured[x.index].token_ids.tolist()) for x in (mine, theirs)]
            answer = "the same" if extract("math", text[0]) == extract("math", text[1]) else "another"
            others.append(f"{gap:.2%} of density apart, moved by up to {moved:.2%}, {answer} answer")
    return equal, others


def measure(
    name: str, dtype: str, chosen: argparse.Namespace
) -> tuple[list[str], list[tuple[str, NDArray[Any]]], list[str]]:
    """A row of the first table, rows of the second (agreement per layer), and remarks."""
    engine, rollouts = sampled(name, dtype, chosen)
    exact = LabEngine(weights(name), dtype="float32", streams=1)
    routings = {EXACT: replayed(exact, rollouts)}
    if dtype == "bfloat16":
        routings[OWN] = replayed(LabEngine(weights(name), dtype=dtype, streams=1), rollouts)

    def agree(other: Callable[[int], NDArray[Any]]) -> NDArray[np.bool_]:
        return np.concatenate([same(s.rollout.expert_ids, other(i)) for i, s in enumerate(rollouts)])

    shares = {kind: agree(lambda i, r=routing: r[i][0]) for kind, routing in routings.items()}  # type: ignore[misc]
    if not chosen.compiled:
        shares[ITSELF] = agree(lambda i: rollouts[i].again)  # type: ignore[arg-type,return-value]
    between = ""
    if OWN in routings:
        pairs = zip(routings[OWN], routings[EXACT], strict=True)
        between = percent(np.concatenate([same(a[0], b[0]) for a, b in pairs]))
    cells = [percent(shares[kind]) if kind in shares else "" for kind in (EXACT, OWN, ITSELF)]
    stock = "all" if all(np.array_equal(s.rollout.expert_ids, s.stock) for s in rollouts) else "NOT ALL"
    stock = "" if chosen.compiled else stock
    row = [name, dtype, f"{shares[EXACT].size:,}", stock, *cells, between]
    print("measured:", *row, file=sys.stderr, flush=True)
    layers = [(kind, share.mean(0)) for kind, share in shares.items()] if dtype == "bfloat16" else []
    return row, layers, list(remarks(engine, rollouts, routings, shares, exact, dtype))


def remarks(
    engine: Any,
    rollouts: list[Sampled],
    routings: dict[str, list[Routing]],
    shares: dict[str, NDArray[Any]],
    exact: LabEngine,
    dtype: str,
) -> Iterator[str]:
    for kind, routing in routings.items():
        apart = np.concatenate(
            [
                weights_apart((s.rollout.expert_ids, s.rollout.weights), r)
                for s, r in zip(rollouts, routing, strict=True)
            ]
        )
        equal, others = picks(engine, rollouts, routing)
        yield (
            f"{kind} replay: weights of sets that agree differ by {np.median(apart):.1e} in the median, {apart.max():.1e} at "
            f"most; {equal} of {len({s.problem for s in rollouts})} picks agree" + "".join(f"; one {o}" for o in others)
        )
    if dtype == "bfloat16":
        gaps, steps = margins(exact, rollouts)
        gaps, lost = gaps / steps, ~shares[EXACT]
        yield (
            f"gap between the K-th and the next logit in float32, in bfloat16 steps: median {np.median(gaps):.0f} over all sets, "
            f"{np.median(gaps[lost]):.1f} over those vLLM chose otherwise; below 1 {(gaps < 1).mean():.1%} and "
            f"{(gaps[lost] < 1).mean():.0%}, below 8 {(gaps < 8).mean():.0%} and {(gaps[lost] < 8).mean():.0%}"
        )


def weights_apart(a: Routing, b: Routing) -> NDArray[np.float32]:
    """Differences in weight where the sets agree."""
    left, right = (np.take_along_axis(mass.astype(np.float32), np.argsort(ids), -1) for ids, mass in (a, b))
    apart: NDArray[np.float32] = np.abs(left - right)[same(a[0], b[0])]
    return apart


def percent(agree: NDArray[Any]) -> str:
    return "100%" if agree.all() else f"{agree.mean():.1%}" if agree.mean() < 0.9995 else f"{agree.mean():.3%}"


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * 2 + ["---:"] * (len(head) - 2)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(CASES), help="of lab-qwen, lab-oss, lab-next")
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("-n", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--compiled", action="store_true", help="bfloat16, the plugin's routing only")
    chosen = parser.parse_args()
    results = {
        (name, dtype): measure(name, dtype, chosen)
        for name in chosen.models
        for dtype in CASES[name][-1 if chosen.compiled else 0 :]
    }
    kind = "compiled" if chosen.compiled else "eager"
    bits = "with" if torch.cpu._is_avx512_bf16_supported() else "without"
    print(
        f"\n{chosen.problems} problems x {chosen.n}, temperature {chosen.temperature:g}; {kind}, on a CPU {bits} AVX512-BF16\n"
    )
    head = ["model", "dtype", "sets", "plugin = stock", *(f"vLLM and {k}" for k in (EXACT, OWN, ITSELF))]
    print(table([*head, "bfloat16 and float32"], [row for row, _, _ in results.values()]))
    print("\nPer layer, in percent:\n")
    layers = [
        [name, kind, *(f"{100 * x:.1f}" for x in share)] for (name, _), r in results.items() for kind, share in r[1]
    ]
    most = max((len(line) for line in layers), default=2)
    print(
        table(["model", "vLLM and", *map(str, range(most - 2))], [line + [""] * (most - len(line)) for line in layers])
    )
    print()
    for (name, dtype), (_, _, lines) in results.items():
        for line in lines:
            print(f"- {name} in {dtype}, {line}.")


if __name__ == "__main__":
    main()
