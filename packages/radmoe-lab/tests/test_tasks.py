"""The tasks: seeded, disjoint, always right."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe_lab.tasks import STYLES, TASKS, problems, stream, training_example
from radmoe_lab.tasks.chains import Chain, Op, draw_chain
from radmoe_lab.tasks.draw import between, is_test, shuffled
from radmoe_lab.tasks.maths import choice_problem, math_problem
from radmoe_lab.tasks.steps import reason, step

SIZES = {
    "math-1": 30,
    "math-2": 30,
    "math-3": 30,
    "math-4": 30,
    "choice": 198,
    "code": 167,
    "code-wide": 120,
    "explain": 120,
}
MATHS = [name for name in TASKS if name.startswith("math")]
seeds = st.integers(0, 2**32)
chains = st.builds(
    Chain,
    st.integers(0, 999),
    st.lists(
        st.builds(Op, st.sampled_from("+-"), st.integers(1, 999)) | st.builds(Op, st.just("*"), st.integers(2, 9)),
        min_size=1,
        max_size=9,
    ).map(tuple),
)


@pytest.mark.slow
def test_every_task_has_its_size_and_its_own_ids() -> None:
    assert {name: len(problems(name)) for name in TASKS} == SIZES
    ids = [p.problem_id for name in TASKS for p in problems(name)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        ("math-1", "9088f5beb8bbe9b0"),
        ("math-2", "9322c346bc0b6a10"),
        ("math-3", "ec4576641240696f"),
        ("math-4", "5ba2c5f31a0ba45e"),
        ("choice", "4ea007001a582ef6"),
        ("code", "c4c2a3f722c72fa0"),
    ],
)
def test_the_problems_behind_published_figures_stay_what_they_are(task: str, digest: str) -> None:
    """A draw that is moved or added changes every problem after it, and with them every table."""
    content = repr([(p.problem_id, p.prompt, p.answer, p.tests) for p in problems(task)])
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == digest


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_problems_are_the_same_for_a_seed_and_fresh_for_another(task: str) -> None:
    again, other = problems(task, seed=0), problems(task, seed=90210)
    assert problems(task) == again
    assert problems(task, limit=7) == again[:7]
    assert not {p.prompt for p in again} & {p.prompt for p in other}
    assert not {p.problem_id for p in again} & {p.problem_id for p in other}


def test_problems_are_the_same_in_another_process() -> None:
    code = "from radmoe_lab.tasks import *; print([(p.prompt, p.answer) for t in TASKS for p in problems(t, limit=5)])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str([(p.prompt, p.answer) for t in TASKS for p in problems(t, limit=5)])


def test_an_unknown_task_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"unknown task 'maths': use one of math-1, math-2, .* code"):
        problems("maths")
    with pytest.raises(InputError, match="limit must be at least 1, got 0"):
        problems("code", limit=0)
    with pytest.raises(InputError, match="unknown style 'lengthy': use one of low, medium"):
        training_example(Random(0), style="lengthy")


@given(seeds, st.booleans(), st.sampled_from([*MATHS, "choice"]))
@settings(max_examples=300, deadline=None)
def test_the_content_of_a_chain_decides_its_side(seed: int, test: bool, task: str) -> None:
    rng = Random(seed)
    made = choice_problem(rng, "id", test=test) if task == "choice" else math_problem(rng, task, "id", test=test)
    assert is_test(made[1].canonical) == test


def test_no_training_chain_is_a_test_problem_however_it_is_worded() -> None:
    tested = set()
    for task in (*MATHS, "choice"):
        for problem in islice(stream(task, seed=5), 200):
            tested.add(_numbers(problem.prompt))
    rng = Random(1)
    for _ in range(4000):
        example = training_example(rng, style="medium", task="choice" if rng.random() < 0.5 else "math-1")
        assert _numbers(example.problem.prompt) not in tested


def _numbers(prompt: str) -> str:
    """A chain as its words give it: read back from the prompt, not taken from the generator."""
    words = prompt.split("\nA)")[0]
    start = re.search(r"\d+", words)
    assert start
    found = [start[0]]
    for verb, n in re.findall(r"(?i)([a-z]+(?: [a-z]+){0,2}) (\d+)(?! ?[.\n]*A\))", words[start.end() :]):
        if n != "1000":
            found.append(f"{_sign(verb.lower())}{n}")
    return "chain " + " ".join(found)


def _sign(verb: str) -> str:
    if re.search(r"multipl|scale|take$|make it$|^.*\btake$", verb):
        return "*"
    return "-" if re.search(r"subtract|away|decrease|lower|down|remove", verb) else "+"


@given(seeds, st.sampled_from(MATHS))
@settings(max_examples=200, deadline=None)
def test_the_words_of_a_prompt_say_what_the_chain_is(seed: int, task: str) -> None:
    problem, chain = math_problem(Random(seed), task, "id", test=True)
    assert _numbers(problem.prompt) == chain.canonical


@given(chains, seeds, st.sampled_from(STYLES))
@settings(max_examples=500, deadline=None)
def test_written_arithmetic_is_right_and_ends_at_the_result(chain: Chain, seed: int, style: str) -> None:
    text = reason(Random(seed), chain, style)
    for line in filter(None, text.split("\n")):
        work = re.search(r"[(\d].*?(?=\.$)", line)
        assert work, line
        sums, _, left = work[0].replace(" gives ", ", leaving ").partition(", leaving ")
        values = [eval(side) for side in sums.split("=")]
        assert len(set(values)) == 1, line
        assert not left or int(left) == values[0] % 1000
    assert int(re.findall(r"\d+", text)[-1]) == chain.result


@given(chains)
def test_a_step_in_parts_adds_up(chain: Chain) -> None:
    text = step(chain.start, chain.ops[0], parts=True).partition(",")[0]
    assert len({eval(side) for side in text.split("=")}) == 1


@given(seeds, st.sampled_from(STYLES), st.sampled_from([*MATHS, "choice"]))
@settings(max_examples=300, deadline=None)
def test_an_example_says_its_own_answer(seed: int, style: str, task: str) -> None:
    example = training_example(Random(seed), style=style, task=task)
    assert re.findall(r"\\boxed\{(\w+)\}", example.final) == [example.problem.answer]
    assert bool(example.reasoning) == (style != "instruct")
    assert example.style == style
    assert example.problem.task == task


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_a_choice_has_four_ranges_and_the_letter_names_the_result_s(seed: int) -> None:
    problem, chain = choice_problem(Random(seed), "id", test=True)
    ranges = {
        letter: (int(low), int(high)) for letter, low, high in re.findall(r"\n([A-D])\) (\d+) to (\d+)", problem.prompt)
    }
    assert list(ranges) == list("ABCD")
    inside = [letter for letter, (low, high) in ranges.items() if low <= chain.result <= high]
    assert inside == [problem.answer]


def test_choice_letters_are_spread() -> None:
    letters = [p.answer for p in problems("choice")]
    assert all(30 < letters.count(letter) < 70 for letter in "ABCD")


@pytest.mark.parametrize(
    ("task", "steps"), [("math-1", {2, 3}), ("math-2", {4, 5}), ("math-3", {6, 7}), ("math-4", {8, 9})]
)
def test_difficulty_rises_by_steps(task: str, steps: set[int]) -> None:
    assert {_numbers(p.prompt).count(" ") - 1 for p in problems(task)} == steps


def test_a_harder_effort_writes_more() -> None:
    def length(style: str) -> float:
        rng = Random(2)
        return sum(len(training_example(rng, style=style).reasoning) for _ in range(600))

    low, medium, high = map(length, ("low", "medium", "high"))
    assert low * 1.2 < medium < high / 1.2


def test_training_draws_every_task_by_its_share() -> None:
    rng = Random(3)
    drawn = [training_example(rng, style="low").problem.task for _ in range(2000)]
    assert sum(task.share for task in TASKS.values()) == pytest.approx(1.0)
    assert all(abs(drawn.count(name) / 2000 - task.share) < 0.04 for name, task in TASKS.items())


@given(seeds, st.integers(-5, 5), st.integers(0, 9))
def test_draws_stay_in_range(seed: int, low: int, span: int) -> None:
    rng = Random(seed)
    assert all(low <= between(rng, low, low + span) <= low + span for _ in range(20))
    assert sorted(shuffled(rng, range(span))) == list(range(span))


def test_one_chain_in_ten_is_a_test_problem() -> None:
    rng = Random(4)
    sides = [
        is_test(Chain(between(rng, 0, 999), draw_chain(rng, (3, 5), 0.1, test=False).ops).canonical)
        for _ in range(3000)
    ]
    assert 0.07 < sum(sides) / 3000 < 0.13
