"""The code task: what is asked, what is shown, and programs that do it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.problems import Problem
from radmoe_lab.tasks import STYLES, problems, stream, training_example
from radmoe_lab.tasks.code import code_problem
from radmoe_lab.tasks.draw import is_test
from radmoe_lab.tasks.pipelines import FAMILIES, KEEP, Pipeline, draw_list, draw_pipeline, draw_tests, signature
from radmoe_lab.tasks.programs import write
from radmoe_lab.tasks.wide import write_wide

seeds = st.integers(0, 2**32)


def function(program: str) -> Any:
    names: dict[str, Any] = {}
    exec(program, names)  # our own generator wrote it
    return names["f"]


@pytest.mark.slow
@pytest.mark.parametrize("write_program", [write, write_wide])
@given(seeds, st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_program_written_for_a_pipeline_computes_it(write_program: Any, seed: int, test: bool) -> None:
    rng = Random(seed)
    pipeline = draw_pipeline(rng, test=test)
    f = function(write_program(rng, pipeline))
    for _ in range(10):
        xs = draw_list(rng, 0, 9)
        before = list(xs)
        if pipeline(xs) is not None:
            assert f(xs) == pipeline(xs)
            assert xs == before, "the argument was changed"


@pytest.mark.parametrize("task", ["code", "code-wide"])
@given(seeds, st.sampled_from(STYLES))
@settings(max_examples=150, deadline=None)
def test_every_training_solution_passes_its_hidden_tests(task: str, seed: int, style: str) -> None:
    example = training_example(Random(seed), style=style, task=task)
    (program,) = re.findall(r"```python\n(.*?)\n```", example.final, re.DOTALL)
    assert program == example.problem.answer
    assert len(example.problem.tests) >= 8
    f = function(program)
    assert all(f(*args) == expected for args, expected in example.problem.tests)


def test_test_problems_are_solved_by_their_own_answer_and_examples_hold() -> None:
    for problem in problems("code"):
        f = function(problem.answer)
        assert len(problem.tests) >= 8
        assert all(f(*args) == expected for args, expected in problem.tests)
        shown = re.findall(r"^f\((.*)\) == (.*)$", problem.prompt, re.MULTILINE)
        assert len(shown) == 2
        assert all(f(ast.literal_eval(xs)) == ast.literal_eval(value) for xs, value in shown)


def test_functions_that_behave_alike_are_on_the_same_side() -> None:
    rng = Random(0)
    trained = {signature(draw_pipeline(rng, test=False)) for _ in range(1500)}
    tested = {signature(draw_pipeline(rng, test=True)) for _ in range(500)}
    assert not trained & tested
    assert not any(map(is_test, trained))
    assert all(map(is_test, tested))


def test_training_text_never_asks_for_a_test_function() -> None:
    tested = {_behaviour(p) for seed in (0, 1) for p in islice(stream("code", seed=seed), 60)}
    rng = Random(7)
    trained = {_behaviour(training_example(rng, style="low", task="code").problem) for _ in range(600)}
    assert not tested & trained


def _behaviour(problem: Problem) -> str:
    f = function(problem.answer)
    out: list[Any] = []
    for seed in range(40):
        try:
            out.append(f(draw_list(Random(seed), 3, 9)))
        except (ValueError, IndexError):
            out.append(None)
    return repr(out)


def test_hidden_tests_tell_other_pipelines_apart() -> None:
    rng = Random(11)
    missed = total = 0
    lists = [draw_list(rng, 1, 9) for _ in range(60)]
    for _ in range(40):
        pipeline = draw_pipeline(rng, test=True)
        tests = draw_tests(rng, pipeline, thorough=True)
        for _ in range(200):
            other = _mutant(rng, pipeline)
            if any(
                value is not None and other(xs) != value for xs, value in zip(lists, map(pipeline, lists), strict=True)
            ):
                total += 1
                missed += all(other(*args) == value for args, value in tests)
    assert total > 4000
    assert missed / total < 0.002


def _mutant(rng: Random, pipeline: Pipeline) -> Pipeline:
    ops = list(pipeline.ops)
    for _ in range(1 + int(rng.random() * 2)):
        at = int(rng.random() * len(ops))
        every = [op for name, family in FAMILIES.items() if (name == "end") == (at == len(ops) - 1) for op in family]
        ops[at] = (every + [KEEP] * (at == len(ops) - 1))[int(rng.random() * len(every))]
    return Pipeline(tuple(ops))


def test_a_left_out_operation_follows_from_the_examples() -> None:
    unsaid = re.compile(
        r"keep only some numbers|change each number|put them in another order|shorten|return one number"
    )
    asked = [p for p in problems("code") if unsaid.search(p.prompt)]
    assert 0.3 < len(asked) / 167 < 0.6


def test_the_same_function_is_written_in_many_ways() -> None:
    rng = Random(5)
    for _ in range(20):
        pipeline = draw_pipeline(rng, test=False)
        counts = Counter(write(rng, pipeline) for _ in range(64))
        assert counts.most_common(1)[0][1] <= 12
    whole = Counter(training_example(rng, style="medium", task="code").final for _ in range(300))
    assert len(whole) == 300


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_a_problem_depends_on_its_generator_alone(seed: int) -> None:
    assert code_problem(Random(seed), "id", test=True) == code_problem(Random(seed), "id", test=True)
