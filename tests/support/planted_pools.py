"""Pools of planted rollouts on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from radmoe.errors import PoolError
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import PoolWriter, open_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup

RECIPE = Planted(problems=4, rollouts=12, tokens=120)


def write_pool(path: Path, groups: list[PlantedGroup], *, record_kind: bool = True, **options: object) -> Path:
    """A pool of planted groups, texts included, and their kind unless it shall say none."""
    options = {"shape": groups[0].group.shape, "vocab": planted.vocab(), "model": "planted"} | options
    with PoolWriter(path, **options) as writer:  # type: ignore[arg-type]
        for made in groups:
            for i, (rollout, text) in enumerate(zip(made.group.rollouts, made.texts, strict=True)):
                writer.add(
                    made.group.problem_id,
                    rollout,
                    kind=made.group.kind if record_kind else None,
                    rollout_index=i,
                    text=text,
                    finish_reason="stop",
                )
    return path


def graded_pool(path: Path, groups: list[PlantedGroup], **options: Any) -> Path:
    """A planted pool with its labels."""
    write_pool(path, groups, **options)
    write_labels(path, labels(groups))
    return path


def labels(groups: list[PlantedGroup]) -> list[Label]:
    return [
        Label(made.group.problem_id, i, answer, answer == made.truth)
        for made in groups
        for i, answer in enumerate(made.answers)
    ]


def faults_of(path: Path) -> list[str]:
    """What is wrong with a pool, in words; a pool that does not open is one fault."""
    try:
        return [str(fault) for fault in open_pool(path).verify()]
    except PoolError as error:
        return [str(error)]
