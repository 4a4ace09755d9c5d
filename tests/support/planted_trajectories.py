"""Trajectories of an agent whose verdicts and routing are known, because they were put there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from radmoe.pool import PoolWriter, Profile
from radmoe.types import Rollout, RouterShape, Step
from radmoe_agent.candidates import POOL, Candidate, write_candidates
from radmoe_lab import planted

SHAPE = RouterShape(4, 32, 2)
Verdicts = dict[tuple[str, int], bool]


def write_runs(
    out: Path,
    *,
    issues: int = 40,
    n: int = 16,
    right: float = 0.6,
    signal: float = 0.9,
    steps: tuple[int, int] = (2, 6),
    weights: bool = True,
    logprobs: bool = True,
    profile: Profile | None = None,
    model: str = "planted",
    seed: int = 0,
) -> Verdicts:
    """Write a pool of trajectories and their candidates; returns the verdicts.

    At a boundary, a right trajectory takes the experts of its issue's right basin with the chance `signal`, and any
    experts otherwise; a wrong one always takes any. Elsewhere all take any.
    """
    rng, vocab = np.random.default_rng(seed), planted.vocab()
    boundary = vocab.added["</think>"]
    verdicts: Verdicts = {}
    candidates = []
    with PoolWriter(out / POOL, shape=SHAPE, vocab=vocab, model=model, profile=profile) as writer:
        for issue in range(issues):
            basin = rng.integers(0, SHAPE.experts // 2, (SHAPE.layers, SHAPE.top_k)) * 2 + np.arange(2)
            for run in range(n):
                name, resolved = f"issue-{issue:03d}", bool(rng.random() < right)
                turns = int(rng.integers(*steps))
                lengths = rng.integers(8, 20, turns)
                ends = np.cumsum(lengths)
                tokens = rng.integers(0, 90, int(ends[-1])).astype(np.int32)
                at = ends - 4
                tokens[at] = boundary
                ids = np.argsort(rng.random((len(tokens), SHAPE.layers, SHAPE.experts)), -1)[..., : SHAPE.top_k]
                if resolved:
                    for place in at:
                        if rng.random() < signal:
                            ids[place] = basin
                mass = rng.dirichlet(np.ones(SHAPE.top_k), ids.shape[:2]).astype(np.float16)
                top = -np.sort(rng.exponential(size=(len(tokens), 3)), axis=-1)
                rollout = Rollout(
                    tokens,
                    ids.astype(np.int16),
                    mass if weights else None,
                    top[:, 0] if logprobs else None,
                    top if logprobs else None,
                    steps=tuple(Step((1, 2), int(end - size)) for end, size in zip(ends, lengths, strict=True)),
                )
                patch = f"+fix {issue} by {run % 3 if resolved else run}\n"
                writer.add(name, rollout, kind="agent", rollout_index=run, problem_index=issue, text=patch)
                candidates.append(Candidate(name, run, "Submitted", patch, model))
                verdicts[name, run] = resolved
    write_candidates(out, candidates)
    return verdicts
