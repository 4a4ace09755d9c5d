# pyright: strict
"""A program of somebody who uses radmoe: what pyright infers of its public names is what this file asserts."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from radmoe import (
    Plan,
    Pool,
    PoolWriter,
    Question,
    RadmoeError,
    Rollout,
    RolloutGroup,
    RouterShape,
    Sampling,
    Selection,
    capture_pool,
    evaluate_pool,
    grade_pool,
    load_questions,
    open_engine,
    open_pool,
    select,
    select_many,
)


def picks(path: Path) -> dict[str, int | None]:
    pool = open_pool(path)
    assert_type(pool, Pool)
    group = pool.group(pool.problems[0])
    assert_type(group, RolloutGroup)
    pick = select(group, preset="best")
    assert_type(pick, Selection)
    assert_type(pick.index, int | None)
    assert_type(pick.density, NDArray[np.float64])
    assert_type(pool.texts(group.problem_id), list[str])
    return {name: one.index for name, one in zip(pool.problems, select_many(pool.groups(), threads=2), strict=True)}


def made_by_hand(token_ids: NDArray[np.int32], experts: NDArray[np.int16], pool: Pool) -> Selection | None:
    rollout = Rollout(token_ids, experts)
    group = RolloutGroup("mine", [rollout, rollout], RouterShape(48, 128, 8), pool.vocab, kind="math")
    try:
        return select(group, k=4)
    except RadmoeError as error:
        print(error)
        return None


def captured(out: Path) -> Pool:
    questions, task = load_questions("math-2", limit=2)
    assert_type(questions, list[Question])
    engine = open_engine("transformers", "lab-qwen")
    done = capture_pool(Plan(questions, engine, Sampling(max_tokens=64), task=task, n=4), out)
    assert_type(done.rollouts, int)
    grade_pool(out)
    evaluate_pool(out)
    with PoolWriter(out / "copy", shape=engine.shape, vocab=engine.vocab, model="mine") as writer:
        for group in open_pool(out).groups():
            for rollout in group.rollouts:
                writer.add(group.problem_id, rollout, kind=group.kind)
    return open_pool(out / "copy")
