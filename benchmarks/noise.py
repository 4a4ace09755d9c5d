"""Whether numeric noise, as `radmoe doctor` measures it, tells which picks a second pass changes; docs/engines.md has the table.

    python -m benchmarks.noise [lab-qwen lab-oss] [--problems 20] [-n 16] [--seed 0]

Rollouts of math-2 are sampled in bfloat16 at temperature 1, and their routing is computed again in bfloat16 and in float32. The
noise is that of a check-up of the same engine against the same second pass. Printed are the picks that are within it, those
that changed, those that changed and were not within it, and those that changed their basin.
"""

from __future__ import annotations

import argparse
import re

import numpy as np

from radmoe import select
from radmoe.engines import EngineOptions, open_engine
from radmoe.engines.base import Engine, Sampling
from radmoe.engines.doctor import examine
from radmoe.types import Rollout, RolloutGroup
from radmoe_lab.tasks import problems


class Captured:
    """An engine that a check-up takes for one without weights to replay with, so that it is compared with another."""

    replays = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


def measured(engine: Engine, reference: Engine) -> float:
    """The noise that a check-up finds."""
    findings = examine(lambda: Captured(engine), "transformers", open_reference=lambda _: reference, seed=0)  # type: ignore[arg-type, return-value]
    (seen,) = [finding.seen for finding in findings if finding.check == "noise"]
    return float(re.findall(r"--noise (\S+)", seen)[0])


def again(group: RolloutGroup, engine: Engine, prompt: list[int]) -> RolloutGroup:
    """The same rollouts with the routing of a second pass."""
    rollouts = []
    for rollout in group.rollouts:
        ids, weights = engine.teacher_forced([*prompt, *rollout.token_ids.tolist()][:-1])
        rows = slice(len(prompt) - 1, None)
        rollouts.append(Rollout(rollout.token_ids, ids[rows], weights[rows].astype(np.float16)))
    return RolloutGroup(group.problem_id, rollouts, group.shape, group.vocab, group.kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["lab-qwen", "lab-oss"])
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for model in given.models:
        passes = {
            dtype: open_engine("transformers", model, EngineOptions(dtype=dtype)) for dtype in ("bfloat16", "float32")
        }
        engine = passes["bfloat16"]
        asked = [problem.prompt for problem in problems("math-2", limit=given.problems)]
        done: dict[int, dict[int, Rollout]] = {i: {} for i in range(len(asked))}
        for one in engine.generate(
            asked, given.n, sampling=Sampling(temperature=1.0, max_tokens=200, seed=given.seed), batch_size=64
        ):
            done[one.prompt_index][one.rollout_index] = one.rollout
        groups = [
            RolloutGroup(str(i), [own[r] for r in range(given.n)], engine.shape, engine.vocab, "math")
            for i, own in done.items()
        ]
        picks = [select(group) for group in groups]
        for dtype, second in passes.items():
            noise = measured(engine, second)
            others = [select(again(g, second, engine.encode(asked[i]))) for i, g in enumerate(groups)]
            pairs = [(a.with_noise(noise), b) for a, b in zip(picks, others, strict=True) if a.index is not None]
            within = [bool(a.within_noise) for a, _ in pairs]
            changed = [a.index != b.index for a, b in pairs]
            elsewhere = sum(b.index not in a.basin for a, b in pairs)
            missed = sum(c and not w for c, w in zip(changed, within, strict=True))
            moved = [float(np.nanmax(b.density - a.density) - np.nanmin(b.density - a.density)) for a, b in pairs]
            print(
                f"{model}, second pass in {dtype}: noise {noise:.4f}; differences of densities move by {np.median(moved):.4f} in the "
                f"median problem, {max(moved):.4f} at most; of {len(pairs)} picks {sum(within)} are within noise, {sum(changed)} change, "
                f"{missed} of these not within noise, {elsewhere} to another basin"
            )


if __name__ == "__main__":
    main()
