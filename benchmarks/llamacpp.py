"""How far llama.cpp's routing agrees with transformers', and how fast it samples.

    python -m benchmarks.llamacpp [--problems 3] [-n 16]

Lab models, written as GGUF files, sample math-1 with one thread. Every rollout is then run through a float32
transformers pass over the same tokens, and (token, layer) expert sets are compared; rollouts are compared with those
transformers samples by the same seed. Tokens/s are of the wall and of this process's CPU time. Prints the table of
packages/radmoe-llamacpp/docs/llamacpp.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A lab model as a GGUF file of one kind, with one kind of KV cache; `rounded` rounds YaRN's ramp in transformers."""

    label: str
    model: str
    kind: str
    cache: str
    rounded: bool = False


CASES = (
    Case("lab-qwen, F32", "lab-qwen", "F32", "f32"),
    Case("lab-qwen, F32", "lab-qwen", "F32", "f16"),
    Case("lab-qwen, matrices in Q8_0", "lab-qwen", "Q8_0", "f16"),
    Case("lab-oss, F32", "lab-oss", "F32", "f32"),
    Case("lab-oss, F32, YaRN rounded in transformers too", "lab-oss", "F32", "f32", rounded=True),
)


def reference(case: Case) -> Any:
    """The transformers engine a case is compared with."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe_lab.models import weights

    path = weights(case.model)
    config = AutoConfig.from_pretrained(path)
    if case.rounded:
        config.rope_parameters["truncate"] = True
    model = AutoModelForCausalLM.from_pretrained(path, config=config, dtype="float32")
    return TransformersEngine(model, tokenizer=AutoTokenizer.from_pretrained(path), threads=1)


def compare(case: Case, path: Path, limit: int, n: int) -> dict[str, float]:
    """Sets and rollouts that are equal, of how many, and tokens/s."""
    from radmoe.engines.base import Sampling
    from radmoe_lab.gguf import write_gguf
    from radmoe_lab.tasks import problems
    from radmoe_llamacpp.engine import LlamaCppEngine

    theirs = reference(case)
    engine = LlamaCppEngine(
        write_gguf(theirs.model, theirs.tokenizer, path, kind=case.kind), cache=case.cache, threads=1
    )
    prompts = [theirs.encode(problem.prompt) for problem in problems("math-1", limit=limit)]
    sampling = Sampling(max_tokens=400)
    wall, cpu = time.perf_counter(), time.process_time()
    mine = list(engine.generate(prompts, n, sampling=sampling, batch_size=limit * n))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sampled = {
        (c.prompt_index, c.rollout_index): c.rollout.token_ids.tolist()
        for c in theirs.generate(prompts, n, sampling=sampling, batch_size=limit * n)
    }
    same = []
    for done in mine:
        prompt, tokens = prompts[done.prompt_index], done.rollout.token_ids.tolist()
        ids, _ = theirs.teacher_forced(prompt + tokens)
        forced = ids[len(prompt) - 1 :][: len(tokens)]  # R(t) is input position P-1+t
        same.append((np.sort(done.rollout.expert_ids, -1) == np.sort(forced, -1)).all(-1).ravel())
    sets = np.concatenate(same)
    count = sum(len(c.rollout) for c in mine)
    return {
        "equal": int(sets.sum()),
        "sets": sets.size,
        "rollouts_equal": sum(sampled[c.prompt_index, c.rollout_index] == c.rollout.token_ids.tolist() for c in mine),
        "rollouts": len(mine),
        "tokens_s": count / wall,
        "tokens_cpu_s": count / cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--problems", type=int, default=3)
    parser.add_argument("-n", type=int, default=16)
    options = parser.parse_args()

    from transformers.utils import logging

    logging.disable_progress_bar()
    print("| model | KV cache | sets equal | rollouts equal to transformers' | tokens/s | per CPU second |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as scratch:
        for i, case in enumerate(CASES):
            row = compare(case, Path(scratch) / f"{i}.gguf", options.problems, options.n)
            print(
                f"| {case.label} | {case.cache} | {row['equal']:,} of {row['sets']:,} "
                f"| {row['rollouts_equal']} of {row['rollouts']} | {row['tokens_s']:,.0f} | {row['tokens_cpu_s']:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
