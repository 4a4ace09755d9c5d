"""Pools of given texts, with routing that means nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from radmoe.pool import PoolWriter
from radmoe.types import Kind, Rollout, RouterShape
from radmoe_lab.tokenizer import build

SHAPE = RouterShape(2, 8, 2)


def write_texts(
    path: Path,
    answers: Iterable[tuple[str, str | None]],
    *,
    keep_text: bool = True,
    task: str | None = None,
    kind: Kind | None = None,
    prompt: str | None = None,
) -> Path:
    """A pool of (problem id, text) rollouts."""
    rng, tokenizer = np.random.default_rng(0), build("chatml")
    with PoolWriter(path, shape=SHAPE, vocab=tokenizer, model="none", task=task) as pool:
        for problem_id, text in answers:
            ids = np.array(tokenizer.encode(text or "").ids or [0], np.int32)
            experts = np.argsort(rng.random((len(ids), 2, 8)), axis=2)[:, :, :2].astype(np.int16)
            rollout = Rollout(ids, experts)
            pool.add(problem_id, rollout, kind=kind, text=text if keep_text else None, prompt=prompt)
    return path
