"""The long tasks: worked examples that search, check and begin again, and always come to the right answer."""

from __future__ import annotations

import re
from itertools import islice, permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe_lab.tasks import LONG_TASKS, named, problems, stream, training_example
from radmoe_lab.tasks.chains import draw_chain
from radmoe_lab.tasks.draw import is_test
from radmoe_lab.tasks.long_choice import ITEMS, draw_puzzle
from radmoe_lab.tasks.long_code import long_code_problem
from radmoe_lab.tasks.long_math import CARE, STEPS, reason
from radmoe_lab.tasks.pipelines import signature
from radmoe_lab.tokenizer import build

STYLES = ("thinking", "low", "medium", "high")
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("task", LONG_TASKS)
def test_problems_are_the_same_for_a_seed_fresh_for_another_and_found_by_their_ids(task: str) -> None:
    some = problems(task, seed=7, limit=3)
    assert problems(task, seed=7, limit=3) == some
    assert not {p.prompt for p in some} & {p.prompt for p in problems(task, seed=8, limit=3)}
    assert named([some[2].problem_id]) == {some[2].problem_id: some[2]}


@given(seeds, st.booleans())
@settings(max_examples=40, deadline=None)
def test_content_decides_whether_a_problem_is_for_tests(seed: int, test: bool) -> None:
    assert is_test(draw_puzzle(Random(seed), test=test).canonical) == test
    _, (pipeline, _, _), _ = long_code_problem(Random(seed), "id", test=test)
    assert is_test(signature(pipeline)) == test


def test_no_training_chain_is_a_test_problem() -> None:
    rng = Random(3)
    assert not any(is_test(draw_chain(rng, STEPS, 0.2, test=False).canonical) for _ in range(50))


@given(seeds, st.sampled_from(list(CARE)))
@settings(max_examples=100, deadline=None)
def test_a_chain_ends_at_its_result_whatever_went_wrong_on_the_way(seed: int, care: str) -> None:
    rng = Random(seed)
    chain = draw_chain(rng, STEPS, 0.2, test=False)
    text = reason(rng, chain, care)
    lines = re.findall(r"^.*?(\d+)([+*-])(\d+)=(?:[\d+-]*=)?(-?\d+)(?:, leaving (\d+))?\.$", text, re.MULTILINE)
    assert len(lines) >= len(chain.ops)
    assert int(lines[-1][4] or lines[-1][3]) == chain.result
    wrong = [line for line in lines if eval("".join(line[:3])) != int(line[3])]
    assert len(wrong) <= len(re.findall(r"no:|not right|[Nn]ot \d", text))


def test_what_is_checked_makes_a_chain_longer() -> None:
    chain = draw_chain(Random(1), STEPS, 0.2, test=False)
    quick, careful = (len(reason(Random(1), chain, care)) for care in ("quick", "careful"))
    assert careful > 2 * quick


@given(seeds, st.sampled_from(STYLES))
@settings(max_examples=40, deadline=None)
def test_a_search_ends_at_an_operation_that_explains_the_examples(seed: int, style: str) -> None:
    example = training_example(Random(seed), style=style, task="long-code")
    *_, fits = (line for line in example.reasoning.split("\n") if "Example 2:" in line)
    assert fits.endswith(", fits.")
    assert f"So the missing step: {fits.split(': ')[0]}." in example.reasoning
    (program,) = re.findall(r"```python\n(.*?)\n```", example.final, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # our own generator wrote it
    assert all(names["f"](*args) == expected for args, expected in example.problem.tests)
    shown = re.findall(r"^f\((.*)\) == (.*)$", str(example.problem.prompt), re.MULTILINE)
    assert all(names["f"](eval(xs)) == eval(value) for xs, value in shown)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_the_clues_of_a_row_leave_one_order(seed: int) -> None:
    puzzle = draw_puzzle(Random(seed), test=False)
    rows = ["".join(row) for row in permutations(ITEMS)]
    assert [row for row in rows if all(_holds(str(clue), row) for clue in puzzle.clues)] == [puzzle.row]
    for clue in puzzle.clues:
        for row in rows[::7]:
            prefixes = [row[:end] for end in range(1, len(row) + 1)]
            assert clue.allows(row) == all(clue.allows(prefix) for prefix in prefixes)
            assert clue.allows(row) == _holds(str(clue), row)


def _holds(clue: str, row: str) -> bool:
    """Whether a clue holds, read from its words."""
    a, *words, b = clue.split()
    at = row.index(a)
    if b.isdigit():
        return at != int(b) - 1
    if words == ["is", "before"]:
        return at < row.index(b)
    return (abs(at - row.index(b)) == 1) != ("not" in words)


@given(seeds, st.sampled_from(STYLES))
@settings(max_examples=40, deadline=None)
def test_a_search_for_an_order_ends_at_the_one_there_is(seed: int, style: str) -> None:
    example = training_example(Random(seed), style=style, task="long-choice")
    *_, row = re.findall(r"^((?:[a-z] ){5}[a-z])\.$", example.reasoning, re.MULTILINE)
    place = int(re.findall(r"place (\d)", str(example.problem.prompt).split("D) p")[1])[0])
    assert "ABCD"[ITEMS.index(row.split()[place - 1])] == example.problem.answer


@pytest.mark.parametrize("task", ["long-math", "long-code"])
def test_some_worked_examples_are_longer_than_a_rollout_may_be(task: str) -> None:
    tokenizer, rng = build("chatml"), Random(2)
    lengths = [
        len(tokenizer.encode(training_example(rng, style="thinking", task=task).reasoning).ids) for _ in range(150)
    ]
    assert 0.1 < sum(length > 1024 for length in lengths) / len(lengths) < 0.34


def test_answers_are_not_one_letter() -> None:
    answers = [problem.answer for problem in islice(stream("long-choice", seed=4), 40)]
    assert set(answers) == set("ABCD")
    assert max(map(answers.count, "ABCD")) < 24
