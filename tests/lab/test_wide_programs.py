"""The task code-wide: programs that compute the same and have little text in common."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.lab.tasks import STYLES, named, problems, training_example
from radmoe.lab.tasks.pipelines import Pipeline, draw_list, draw_pipeline
from radmoe.lab.tasks.programs import write
from radmoe.lab.tasks.wide import write_wide
from radmoe.lab.tokenizer import build

seeds = st.integers(0, 2**32)


def run(program: str) -> Any:
    names: dict[str, Any] = {}
    exec(program, names)  # our own generator wrote it
    return names["f"]


@given(seeds, st.booleans())
@settings(max_examples=400, deadline=None)
def test_every_wide_program_computes_its_pipeline(seed: int, test: bool) -> None:
    rng = Random(seed)
    pipeline = draw_pipeline(rng, test=test)
    f = run(write_wide(rng, pipeline))
    for _ in range(10):
        xs = draw_list(rng, 0, 9)
        before = list(xs)
        if pipeline(xs) is not None:
            assert f(xs) == pipeline(xs)
            assert xs == before, "the argument was changed"


@given(seeds, st.sampled_from(STYLES))
@settings(max_examples=100, deadline=None)
def test_training_answers_pass_their_hidden_tests(seed: int, style: str) -> None:
    example = training_example(Random(seed), style=style, task="code-wide")
    (program,) = re.findall(r"```python\n(.*?)\n```", example.final, re.DOTALL)
    assert program == example.problem.answer
    f = run(program)
    assert all(f(*args) == expected for args, expected in example.problem.tests)


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
