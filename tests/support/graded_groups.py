"""Graded problems in memory whose rollouts say nothing in particular."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from radmoe.evaluation.methods import GradedProblem
from radmoe.evaluation.problem import Marks
from radmoe.selection.rule import Rule
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted

SHAPE = RouterShape(2, 4, 1)


def problem_of(
    answers: Sequence[str | None],
    *,
    truth: str,
    kind: Kind = "math",
    k: int | None = None,
    likelihoods: Sequence[float] | None = None,
    logprobs: bool = True,
) -> GradedProblem:
    """A problem with these answers. Rollout i has i + 3 tokens, and each of them the log-probability `likelihoods[i]`."""
    rollouts = []
    for i in range(len(answers)):
        tokens = i + 3
        sampled = np.full(tokens, -1.0 if likelihoods is None else likelihoods[i], np.float32)
        rollouts.append(
            Rollout(
                np.full(tokens, 7, np.int32),
                np.zeros((tokens, SHAPE.layers, SHAPE.top_k), np.int16),
                sampled_logprobs=sampled if logprobs else None,
                topk_logprobs=np.full((tokens, 2), -1.0 - i, np.float32) if logprobs else None,
            )
        )
    group = RolloutGroup("problem", rollouts, SHAPE, planted.vocab(), kind)
    marks = Marks(tuple(answers), tuple(answer == truth for answer in answers))
    return GradedProblem(group, Rule(k=k).settle(kind), marks)
