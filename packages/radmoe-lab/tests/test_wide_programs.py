"""The task code-wide: programs that compute the same and have little text in common."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random
from typing import Any

from radmoe_lab.tasks import named, problems
from radmoe_lab.tasks.pipelines import Pipeline, draw_pipeline
from radmoe_lab.tasks.programs import write
from radmoe_lab.tasks.wide import write_wide
from radmoe_lab.tokenizer import build


def _shared(write_program: Any, pipelines: list[Pipeline]) -> float:
    """The mean Jaccard of token bigrams over pairs of programs for the same pipeline."""
    rng, tokenizer, shares = Random(1), build("chatml"), []
    for pipeline in pipelines:
        ids = [tokenizer.encode(write_program(rng, pipeline)).ids for _ in range(6)]
        sets = [set(pairwise(one)) for one in ids]
        shares += [len(a & b) / len(a | b) for a, b in combinations(sets, 2)]
    return sum(shares) / len(shares)


def test_right_programs_share_few_token_bigrams_and_far_fewer_than_those_of_code() -> None:
    rng = Random(0)
    pipelines = [draw_pipeline(rng, test=True) for _ in range(60)]
    wide, one_author = _shared(write_wide, pipelines), _shared(write, pipelines)
    assert wide < 0.15
    assert one_author > 1.5 * wide


def test_problems_are_named_by_task_and_seed() -> None:
    ids = [problem.problem_id for problem in problems("code-wide", limit=3)]
    assert ids == ["code-wide-000", "code-wide-001", "code-wide-002"]
    fresh = problems("code-wide", seed=7, limit=2)
    assert [problem.problem_id for problem in fresh] == ["code-wide-s7-000", "code-wide-s7-001"]
    assert named(["code-wide-s7-001", "code-wide-9"]) == {"code-wide-s7-001": fresh[1]}
