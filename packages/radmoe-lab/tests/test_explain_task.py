"""The task explain: a program is described in free words, and the words are read back to what they mean."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.grading.answers import extract
from radmoe_lab.chat import STYLES as CHAT_STYLES
from radmoe_lab.chat import render
from radmoe_lab.tasks import problems, training_example
from radmoe_lab.tasks.explain import explain_problem
from radmoe_lab.tasks.meaning import meaning, operations
from radmoe_lab.tasks.pipelines import KEEP, Pipeline, PipelineOp, draw_list, draw_pipeline, signature
from radmoe_lab.tasks.sentences import say

seeds = st.integers(0, 2**32)
FAMILY = {style: family for family, styles in CHAT_STYLES.items() for style in styles}


@given(seeds, st.booleans())
@settings(max_examples=500, deadline=None)
def test_what_is_said_means_the_pipeline(seed: int, test: bool) -> None:
    rng = Random(seed)
    pipeline = draw_pipeline(rng, test=test)
    assert meaning(say(rng, pipeline)) == signature(pipeline)


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_other_pipelines_are_told_apart(seed: int) -> None:
    rng = Random(seed)
    one, other = draw_pipeline(rng, test=False), draw_pipeline(rng, test=False)
    same = signature(one) == signature(other)
    assert (meaning(say(rng, one)) == meaning(say(rng, other))) == same


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_the_program_that_is_shown_computes_what_is_to_be_said(seed: int) -> None:
    rng = Random(seed)
    problem, (pipeline, constants) = explain_problem(rng, "p", test=True)
    (program,) = re.findall(r"```python\n(.*?)\n```", str(problem.prompt), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # our own generator wrote it
    for _ in range(10):
        xs = draw_list(rng, 0, 9)
        if pipeline(xs) is not None:
            assert names["f"](xs) == pipeline(xs)
    assert [constant.value for constant in constants] == [op.c for op in dict.fromkeys(pipeline.ops) if op.c]


@given(seeds, st.sampled_from(sorted(FAMILY)))
@settings(max_examples=200, deadline=None)
def test_a_worked_answer_is_right_in_every_style(seed: int, style: str) -> None:
    example = training_example(Random(seed), style=style, task="explain")
    _, completion = render(example, FAMILY[style])
    answer = extract("text", completion)
    assert answer is not None
    assert meaning(answer) == meaning(example.problem.answer) is not None


EVEN_TRIPLE_SUM = (PipelineOp("even"), PipelineOp("times", 3), PipelineOp("sum"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Keeps only even values, then multiplies each one by three and returns their total.", EVEN_TRIPLE_SUM),
        ("First, remove the odd numbers; next scale all the numbers by 3; lastly sum up what remains", EVEN_TRIPLE_SUM),
        ("By dropping odd numbers and multiplying every element with 3, it outputs the sum.", EVEN_TRIPLE_SUM),
        ("k: 36*11=396, 396-393=3. It keeps the even numbers, multiplies each by 3 and returns the sum.", EVEN_TRIPLE_SUM),
        ("It removes duplicates, sorts them in ascending order and returns the last 2.",
         (PipelineOp("unique"), PipelineOp("ascending"), PipelineOp("last", 2), KEEP)),
        ("We discard zero and negative numbers and count the rest.", (PipelineOp("positive"), PipelineOp("len"))),
        ("Adds 4 to each.", (PipelineOp("add", 4), KEEP)),
    ],
)  # fmt: skip
def test_words_that_the_generator_does_not_write_are_understood(text: str, expected: tuple[PipelineOp, ...]) -> None:
    assert operations(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "It does something with the list.",
        "It returns the sum and keeps the even numbers.",
        "It keeps the even numbers, adds 3 to each, and sings.",
        "It adds k to each and returns the list.",
        "It adds 99999999999999999999 to each.",
        "def f(xs): return sum(xs)",
    ],
)
def test_texts_that_name_no_pipeline_mean_nothing(text: str) -> None:
    assert meaning(text) is None


def test_another_way_to_the_same_values_means_the_same() -> None:
    assert meaning("It sorts them in ascending order, reverses the list and returns it all.") is None
    one = meaning("It sorts them in ascending order, reverses the list and returns the list.")
    assert one == meaning("Sort the list from large to small.") == signature(Pipeline((PipelineOp("descending"), KEEP)))


def test_test_problems_ask_for_texts_that_mean_something() -> None:
    chosen = problems("explain", limit=30)
    assert all(problem.kind == "text" and meaning(problem.answer) is not None for problem in chosen)
    assert len({problem.prompt for problem in chosen}) == 30
