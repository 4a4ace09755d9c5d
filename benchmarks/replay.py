"""What replay costs: rollouts/s in batches that share the prompt, against one rollout after another, in the same run.

    python -m benchmarks.replay [--model lab-qwen] [--problems 4] [--task math-2] [--rounds 3]

Rollouts of a lab model are sampled, N=64, and then passed again from their tokens alone: one at a time on one core, as
`teacher_forced` does it, without log-probabilities, with transformers' own experts and with radmoe's; and by
`radmoe.engines.replay.replay` on all cores, with them and into a pool. The three take turns, and the table has the
medians. It says how many (row, layer) expert sets and how many picks of RAD are equal to those of transformers' experts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

N = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="lab-qwen")
    parser.add_argument("--task", default="math-2")
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    from radmoe import select
    from radmoe.engines.base import Sampling
    from radmoe.engines.replay import replay
    from radmoe.pool import open_pool
    from radmoe.types import Rollout, RolloutGroup
    from radmoe_lab.inference.engine import LabEngine
    from radmoe_lab.models import weights
    from radmoe_lab.tasks import problems

    engine = LabEngine(weights(options.model), dtype="float32")
    asked = problems(options.task, limit=options.problems)
    prompts = [engine.encode(problem.prompt) for problem in asked]
    sampling = Sampling(temperature=engine.suggested("temperature", 1.0), max_tokens=512, topk_logprobs=0)
    tokens: dict[int, list[list[int]]] = {i: [] for i in range(len(asked))}
    for done in engine.generate(prompts, N, sampling=sampling, batch_size=128):
        tokens[done.prompt_index].append(done.rollout.token_ids.tolist())
    kind = asked[0].kind
    assert kind is not None

    plain = LabEngine(weights(options.model), dtype="float32")
    for module in plain.model.modules():
        vars(module).pop("forward", None)  # transformers' own again
    rates: dict[str, list[float]] = {"transformers": [], "alone": [], "replay": []}
    costs: dict[str, list[float]] = {name: [] for name in rates}  # CPU ms per rollout: others may be at work too

    def note(name: str, rollouts: int, start: float, cpu: float) -> None:
        rates[name].append(rollouts / (time.perf_counter() - start))
        costs[name].append(1000 * (time.process_time() - cpu) / rollouts)

    def one_at_a_time(name: str, own: LabEngine) -> dict[int, list[Any]]:
        start, cpu = time.perf_counter(), time.process_time()
        passed = {
            i: [own.teacher_forced([*prompts[i], *tail[:-1]]) for tail in tails[: N // 4]]
            for i, tails in tokens.items()
        }
        note(name, len(passed) * (N // 4), start, cpu)
        return passed

    engine.force(prompts[0], [tokens[0][0][:4]], topk_logprobs=1)  # compiles
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch) / "rollouts.jsonl", Path(scratch) / "pool"
        with source.open("w") as f:
            for i, tails in tokens.items():
                for tail in tails:
                    line = {"id": asked[i].problem_id, "kind": kind, "prompt_ids": prompts[i], "token_ids": tail}
                    f.write(json.dumps(line) + "\n")
        for _ in range(options.rounds):
            shutil.rmtree(out, ignore_errors=True)
            alone = one_at_a_time("transformers", plain)
            one_at_a_time("alone", engine)
            start, cpu = time.perf_counter(), time.process_time()
            replayed = replay(source, engine, out)
            note("replay", replayed.rollouts, start, cpu)
        same = of = picks = 0
        for i, group in enumerate(open_pool(out).groups()):
            ours = group.rollouts[: N // 4]
            theirs = []
            for rollout, (ids, mass) in zip(ours, alone[i], strict=True):
                rows = slice(len(prompts[i]) - 1, None)
                equal = (np.sort(rollout.expert_ids, -1) == np.sort(ids[rows], -1)).all(-1)
                same, of = same + int(equal.sum()), of + equal.size
                theirs.append(Rollout(rollout.token_ids, ids[rows], mass[rows].astype(np.float16)))
            pair = [
                select(RolloutGroup(group.problem_id, tuple(members), engine.shape, engine.vocab, kind))
                for members in (ours, theirs)
            ]
            picks += pair[0].index == pair[1].index
    print(
        f"{options.model}, {options.task}: {len(asked)} problems x {N}, {replayed.tokens:,} tokens, {engine.streams} streams"
    )
    print("| replay | rollouts/s | ratio | CPU ms per rollout |\n| --- | ---: | ---: | ---: |")
    labels = (
        "one at a time, transformers' experts, no log-probabilities",
        "one at a time, radmoe's experts, no log-probabilities",
        "as a tree or in batches, with log-probabilities and a pool",
    )
    for label, (name, rate) in zip(labels, rates.items(), strict=True):
        ratio = median(a / b for a, b in zip(rate, rates["transformers"], strict=True))
        print(f"| {label} | {median(rate):.1f} | {ratio:.1f} | {median(costs[name]):.0f} |")
    print(f"\n{same:,} of {of:,} expert sets are equal ({same / of:.4%}), and {picks} of {len(asked)} picks.")


if __name__ == "__main__":
    main()
