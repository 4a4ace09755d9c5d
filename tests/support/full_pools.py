"""Pools that hold everything that a rollout may bring, and all that a pool says of a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from radmoe.pool import Pool, Profile, schema
from radmoe.types import Rollout, Step
from radmoe_lab import planted
from small_pools import rollout, writer

PROBLEMS = ("a", "b", "c", "d")
KINDS: dict[str, dict[str, Any]] = {
    "whole": {},
    "windows": {"profile": Profile(readouts=("boundary@4",), layers=(0, 2))},
    "sorted ids": {"profile": Profile(sort_experts=True)},
}


def fill(path: Path, kind: str = "whole", *, shard_bytes: int = 4_000, n: int = 4) -> Path:
    """A pool of several shards, with everything that a rollout may bring; a problem lies in more than one of them."""
    with writer(path, shard_bytes=shard_bytes, provenance={"host": "first"}, **KINDS[kind]) as pool:
        for i in range(n):
            for place, problem in enumerate(PROBLEMS):
                made = rollout(12 + 3 * i + place, seed=place, weights=kind != "sorted ids", topk=3)
                logprobs = np.linspace(-1, 0, len(made), dtype=np.float32)
                steps = (Step((1, 2), 0, None), Step((7, 8, 9), 5, 4)) if problem == "c" else ()
                made.token_ids[6] = planted.vocab().added["</think>"]
                made = Rollout(made.token_ids, made.expert_ids, made.weights, logprobs, made.topk_logprobs, steps=steps)
                pool.add(
                    problem,
                    made,
                    kind="agent" if steps else "math",
                    rollout_index=i,
                    problem_index=place,
                    text=f"the secret of {problem}, told {i} times",
                    prompt=f"ask {problem}",
                    finish_reason="stop",
                    extra={"n": 4, "of": problem},
                    prompt_routing=(made.expert_ids[:5], None if made.weights is None else made.weights[:5]),
                )
    return path


def content(pool: Pool, problem: str) -> list[tuple[object, ...]]:
    """Everything that a pool says of a problem, but for where it lies."""
    rows = {row["rollout_index"]: row for row in pool.runs(where={"problem_id": problem}).to_pylist()}
    found = []
    for index in pool.rollout_indices(problem):
        row = rows[index]
        shard = pool.shards[row["shard"]]
        columns = {c.name: shard.read(c, row["row"]).tobytes() for c in schema.COLUMNS if c.name in shard.columns}
        fields = {name: value for name, value in row.items() if name not in ("run_id", "shard", "row")}
        found.append((fields, columns, shard.meta["provenance"]))
    return found
