"""Small rollouts with random routing, and a writer for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from radmoe.pool import PoolWriter
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted

SHAPE = RouterShape(3, 8, 2)


def rollout(length: int, seed: int = 0, shape: RouterShape = SHAPE, *, weights: bool = True, topk: int = 0) -> Rollout:
    rng = np.random.default_rng([seed, length])
    ids = np.argsort(rng.random((length, shape.layers, shape.experts)), axis=-1)[..., : shape.top_k].astype(np.int16)
    mass = rng.dirichlet(np.ones(shape.top_k), (length, shape.layers)).astype(np.float16) if weights else None
    logprobs = -rng.gamma(2.0, 1.0, (length, topk)).astype(np.float32) if topk else None
    return Rollout(rng.integers(500, size=length).astype(np.int32), ids, mass, None, logprobs)


def writer(path: Path, **options: object) -> PoolWriter:
    return PoolWriter(path, shape=SHAPE, vocab=planted.vocab(), model="test", **options)  # type: ignore[arg-type]


def same(a: Rollout, b: Rollout) -> bool:
    return all(
        (x is None and y is None) or (x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y))
        for x, y in (
            (getattr(a, name), getattr(b, name)) for name in ("token_ids", "expert_ids", "weights", "sampled_logprobs")
        )
    )
