"""Grading a pool: what counts as right."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import samples
from radmoe.errors import InputError, PoolNotFound
from radmoe.grading import grade_pool
from radmoe.grading.grade import answer_key
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool
from radmoe.problems import Problem
from radmoe.problems.gold import load_problems
from radmoe.types import Kind
from radmoe_lab.chat import render
from radmoe_lab.tasks import Example, problems
from radmoe_lab.tasks.meaning import meaning, operations
from radmoe_lab.tasks.pipelines import Pipeline
from radmoe_lab.tasks.sentences import say
from text_pools import write_texts

# -- a pool -----------------------------------------------------------------------------------------


def answered(problem: Problem, answer: str) -> str:
    fence = f"```python\n{answer}\n```" if problem.task == "code" else f"It is $\\boxed{{{answer}}}$."
    return render(Example(problem, "So.", fence, "thinking"), "chatml")[1]


def test_a_pool_of_every_kind_is_graded_by_the_ids_of_its_problems(tmp_path: Path) -> None:
    math, choice, code = (problems(task, limit=2)[1] for task in ("math-3", "choice", "code"))
    other = problems("math-1", seed=90210, limit=3)[2]
    texts = [
        (math.problem_id, answered(math, math.answer)),
        (math.problem_id, answered(math, str((int(math.answer) + 1) % 1000))),
        (math.problem_id, "I cannot tell."),
        (choice.problem_id, answered(choice, choice.answer.lower())),
        (code.problem_id, answered(code, code.answer)),
        (code.problem_id, answered(code, "def f(xs):\n    return 'no'")),
        (code.problem_id, "no code"),
        (other.problem_id, answered(other, other.answer)),
    ]
    path = write_texts(tmp_path / "pool", texts)
    summary = grade_pool(path, jobs=2)
    assert (summary.problems, summary.rollouts, summary.graded, summary.parseable, summary.right) == (4, 8, 8, 6, 4)
    assert summary.average == pytest.approx((1 / 3 + 1 + 1 / 3 + 1) / 4)
    labels = read_labels(path)
    assert [label.correct for label in labels[math.problem_id].values()] == [True, False, False]
    assert labels[math.problem_id][2].answer is None
    assert labels[choice.problem_id][0].answer == choice.answer
    assert labels[code.problem_id][0].answer == code.answer
    assert [label.correct for label in labels[code.problem_id].values()] == [True, False, False]
    assert grade_pool(path) == summary


def test_text_that_was_not_kept_is_read_from_the_tokens(tmp_path: Path) -> None:
    problem = problems("math-1", limit=1)[0]
    path = write_texts(tmp_path / "pool", [(problem.problem_id, answered(problem, problem.answer))], keep_text=False)
    assert open_pool(path).runs(["text"])["text"].to_pylist() == [None]
    assert grade_pool(path).right == 1


def test_progress_is_told_of_every_rollout(tmp_path: Path) -> None:
    problem = problems("choice", limit=1)[0]
    path = write_texts(tmp_path / "pool", [(problem.problem_id, answered(problem, letter)) for letter in "ABCD"])
    done: list[int] = []
    assert grade_pool(path, [problem], progress=done.append).right == 1
    assert sum(done) == 4


def test_a_pool_of_unknown_problems_says_what_to_give(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "pool", [("aime-1", "\\boxed{3}")])
    with pytest.raises(
        InputError,
        match=r"problems \('aime-1'\) that are not among the 0 known \(none\): give the --task, --data or --answers",
    ):
        grade_pool(path)
    assert not (path / "labels.parquet").exists()
    with pytest.raises(PoolNotFound):
        grade_pool(tmp_path / "nowhere")


# -- data sets -------------------------------------------------------------------------------------


def load(name: str, tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> dict[str, Problem]:
    return load_problems(name, samples.write(tmp_path / f"{name}.jsonl", rows), **options)


def marks(path: Path) -> dict[str, list[tuple[str | None, bool]]]:
    return {i: [(label.answer, label.correct) for label in rows.values()] for i, rows in read_labels(path).items()}


def test_integers_are_right_whatever_their_ornament(tmp_path: Path) -> None:
    known = load("aime_2024", tmp_path, samples.INTEGERS)
    first, second = known
    texts = [
        (first, rf"so $\boxed{{{answer}}}$.") for answer in ("204", r"\text{204}", "{204}", "m+n = 204", "0204", "402")
    ]
    texts += [(first, "204"), (second, r"\boxed{25^\circ}")]
    path = write_texts(tmp_path / "pool", texts)
    assert grade_pool(path, known).right == 6
    assert marks(path)[first] == [("204", True)] * 5 + [("402", False), (None, False)]


@pytest.mark.skipif(os.name != "posix", reason="the algebra process needs POSIX")
def test_latex_answers_are_sorted_into_classes(tmp_path: Path) -> None:
    """What stands in the labels is what stands for the class, so that a majority counts equal answers together."""
    known = load("hmmt_feb_2025", tmp_path, samples.LATEX)
    first, second = known
    wrong = [r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}", r"\sqrt{0.5}"]
    right = [r"\sqrt{12}", r"2\sqrt3\text{ cm}", r"x = \sqrt{12}"]
    texts = [(first, rf"\boxed{{{answer}}}") for answer in (*wrong, *right, "9^{9^{9^{9}}}")]
    texts += [(second, r"\boxed{x=\dfrac{1\pm\sqrt5}{2}}"), (second, r"\boxed{\frac{1+\sqrt{5}}{2}}")]
    path = write_texts(tmp_path / "pool", texts)
    started = time.monotonic()
    summary = grade_pool(path, known, timeout=1)
    assert time.monotonic() - started < 30
    assert summary.right == 4
    found = marks(path)
    assert found[first][:3] == [(wrong[0], False)] * 3
    assert found[first][3:6] == [(r"2\sqrt{3}", True)] * 3
    assert found[first][6] == ("9^{9^{9^{9}}}", False)
    assert [correct for _, correct in found[second]] == [True, False]


def test_letters_mean_what_the_prompt_showed(tmp_path: Path) -> None:
    known = load("gpqa_diamond", tmp_path, samples.CHOICES, seed=7)
    problem = next(iter(known.values()))
    texts = [(problem.problem_id, rf"\boxed{{\text{{({letter})}}}}") for letter in "ABCD"]
    path = write_texts(tmp_path / "pool", texts, prompt=f"<|user|>{problem.prompt}<|end|>")
    assert grade_pool(path, known).right == 1
    assert [letter for letter, correct in marks(path)[problem.problem_id] if correct] == [problem.answer]
    with pytest.raises(
        InputError, match=r"problems \('gpqa_diamond-rec3-s7'\) that are not among the 6 known \('gpqa_"
    ):
        grade_pool(path, load("gpqa_diamond", tmp_path, samples.CHOICES))
    other = write_texts(tmp_path / "other", texts, prompt=f"{problem.prompt}".replace("A) ", "B) "))
    with pytest.raises(InputError, match="does not show its options as they are now shuffled: give the --seed"):
        grade_pool(other, known)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
def test_contests_are_run_against_their_tests(tmp_path: Path) -> None:
    known = load("livecodebench_v5", tmp_path, samples.CONTESTS)
    reads, calls = known
    right = "class Solution:\n    def back(self, xs: List[int]) -> List[int]:\n        return xs[::-1]"
    programs = [
        (reads, "input()\nprint(sum(map(int, input().split())))"),
        (reads, "print(3)"),
        (reads, "import os\nos.fork()"),
    ]
    programs += [(calls, right), (calls, right.replace("[::-1]", "")), (calls, "while True: pass")]
    path = write_texts(tmp_path / "pool", [(i, f"Here:\n```python\n{program}\n```") for i, program in programs])
    grade_pool(path, known, jobs=2, timeout=1)
    assert {i: [correct for _, correct in rows] for i, rows in marks(path).items()} == {
        reads: [True, False, False],
        calls: [True, False, False],
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
def test_programs_of_one_s_own_problems_are_run_against_their_tests(tmp_path: Path) -> None:
    rows = [
        {
            "id": "reads",
            "prompt": "Add.",
            "tests": [{"input": "2 3\n", "output": "5\n"}, {"input": "1 1", "output": "2"}],
        },
        {"id": "calls", "prompt": "Sort.", "tests": [{"args": [[3, 1]], "expected": [1, 3]}], "entry": "order"},
    ]
    known = load_problems(data=samples.write(tmp_path / "own.jsonl", rows))
    programs = [
        ("reads", "print(sum(map(int, input().split())))"),
        ("reads", "print(5)"),
        ("calls", "def order(xs):\n    return sorted(xs)"),
        ("calls", "class Solution:\n    def order(self, xs):\n        return sorted(xs)"),
        ("calls", "def order(xs):\n    return xs"),
        ("calls", "def sort(xs):\n    return sorted(xs)"),
    ]
    texts = [(problem_id, f"```python\n{program}\n```") for problem_id, program in programs]
    path = write_texts(tmp_path / "pool", texts, kind="code")
    assert grade_pool(path, known, jobs=2).right == 3
    assert {i: [correct for _, correct in rows] for i, rows in marks(path).items()} == {
        "reads": [True, False],
        "calls": [True, True, False, False],
    }


# -- kinds -------------------------------------------------------------------------------------------


def test_a_text_is_compared_with_the_response_behind_the_thinking(tmp_path: Path) -> None:
    problem = Problem("capital", "own", "The capital of France?", "Paris", kind="text")
    texts = [
        "<think>Oslo?</think>\n\n Paris\n<|im_end|>",
        "Paris",
        "paris.",
        "It is Paris.",
        "it is Paris",
        "<think>Paris",
    ]
    path = write_texts(tmp_path / "pool", [("capital", text) for text in texts], kind="text")
    assert grade_pool(path, [problem]).right == 3
    assert marks(path)["capital"] == [
        ("Paris", True),
        ("Paris", True),
        ("Paris", True),
        ("It is Paris.", False),
        ("It is Paris.", False),
        (None, False),
    ]


@pytest.mark.parametrize(("kind", "right"), [("math", 0), ("text", 1), ("choice", 1), (None, 0)])
def test_the_recorded_kind_decides_where_the_problem_does_not_say(
    tmp_path: Path, kind: Kind | None, right: int
) -> None:
    """A small letter is a variable where nobody says otherwise, and `B` is another one than `b`; a choice is either."""
    text = "B" if kind == "text" else "\\boxed{B}"
    path = write_texts(tmp_path / "pool", [("p", text)], kind=kind)
    assert grade_pool(path, [Problem("p", "own", "", "B" if kind == "text" else "b")]).right == right


def test_a_kind_that_the_pool_records_otherwise_is_one_clear_line(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "pool", [("p", "\\boxed{1}")], kind="code")
    with pytest.raises(InputError) as caught:
        grade_pool(path, [Problem("p", "aime_2025", "", "1", kind="math")])
    assert "records that problem 'p' is of kind code, but in aime_2025 it is of kind math" in str(caught.value)
    assert "--kind math" in str(caught.value)
    assert not (path / "labels.parquet").exists()


def test_patches_cannot_be_graded_yet(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "pool", [("p", "done")], kind="agent")
    with pytest.raises(InputError, match="of kind agent: patches cannot be graded yet"):
        grade_pool(path)
    path = write_texts(tmp_path / "unsaid", [("p", "done")])
    with pytest.raises(InputError, match="problem 'p' is of kind agent: patches cannot be graded yet"):
        grade_pool(path, [Problem("p", "own", "", "diff", kind="agent")])


def test_what_a_kind_needs_must_be_there(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "pool", [("p", "```\nx\n```")], kind="code")
    with pytest.raises(InputError, match="only tests can tell whether a program is right: give --task or --data"):
        grade_pool(path, [Problem("p", "answers", "", "x")])
    path = write_texts(tmp_path / "other", [("p", "x")], kind="text")
    with pytest.raises(InputError, match="'p' is of kind text and has no answer"):
        grade_pool(path, [Problem("p", "own", "", "", ((("",), ""),))])


def test_how_answers_are_compared_follows_from_kind_data_set_and_answer() -> None:
    def compared(answer: str, *tests: Any, recorded: Kind | None = None, **fields: Any) -> tuple[Kind, bool]:
        key = answer_key(Problem("p", "own", "", answer, tests, **fields), recorded)
        return key.kind, key.integer

    assert compared("x", (([],), 0)) == ("code", False)
    assert compared("B") == ("choice", False)
    assert compared("b") == ("math", False)
    assert compared("X") == ("math", False)
    assert compared("12") == ("math", True)
    assert compared(r"\frac{1}{2}") == ("math", False)
    assert compared("12", kind="math", integer=False) == ("math", False)
    assert compared(r"\frac{1}{2}", kind="math", integer=True) == ("math", True)
    assert compared("B", recorded="math") == ("math", False)
    assert compared("B", recorded="math", kind="text") == ("text", False)


@pytest.mark.parametrize(
    ("prompt", "answer", "kind"),
    [
        ("Which one?\nA) 1\nB) 2\nC) 3", "c", "choice"),
        ("Which one?\n(A) 1 (B) 2 (C) 3", "C", "choice"),
        ("Which one?\nA) 1\nB) 2", "C", "math"),
        ("Which of the vertices is it?", "B", "math"),
        (None, "B", "choice"),
        (None, "n", "math"),
    ],
)
def test_a_single_letter_is_a_choice_where_the_prompt_lists_options(
    tmp_path: Path, prompt: str | None, answer: str, kind: Kind
) -> None:
    """Where there is no prompt, a capital from A to J is taken for an option."""
    assert answer_key(Problem("p", "answers", "", answer), None, prompt).kind == kind
    path = write_texts(tmp_path / "pool", [("p", rf"\boxed{{\text{{({answer.swapcase()})}}}}")], prompt=prompt)
    assert grade_pool(path, [Problem("p", "answers", "", answer)]).right == (kind == "choice")


@pytest.mark.skipif(os.name != "posix", reason="the algebra process needs POSIX")
@pytest.mark.parametrize("integer", [None, True], ids=["own", "AIME"])
def test_whole_numbers_get_arithmetic_and_algebra(tmp_path: Path, integer: bool | None) -> None:
    """As a real model writes them. Before, each was another answer, and a vote was tied by it."""
    right = [
        r"\frac{\sqrt{144}}{\sqrt{4}}",
        r"2\cdot 3",
        r"6 \pmod{1000}",
        r"\sqrt{2}\cdot\sqrt{18}",
        "m+n=6",
        "6.0",
        r"6\text{ ways}",
    ]
    wrong = [r"\sqrt{6}", "x+6", r"6 \pm 1", "7", "66"]
    texts = [("p", rf"\boxed{{{answer}}}") for answer in (*right, *wrong)]
    path = write_texts(tmp_path / "pool", texts, kind="math")
    grade_pool(path, [Problem("p", "own", "", "6", kind="math", integer=integer)])
    labels = marks(path)["p"]
    assert labels[: len(right)] == [("6", True)] * len(right)
    assert [correct for _, correct in labels[len(right) :]] == [False] * len(wrong)


def test_texts_are_right_by_their_meaning_where_the_data_set_says_what_they_mean(tmp_path: Path) -> None:
    (problem,) = (p for p in load_problems("explain").values() if p.problem_id == "explain-000")
    assert meaning(problem.answer) is not None
    other_words = next(text for text in _rewordings(problem.answer) if text != problem.answer)
    answers = [problem.answer, other_words, other_words + " Then it sings.", "It returns the sum."]
    path = write_texts(tmp_path / "pool", [("explain-000", text) for text in answers], task="explain", kind="text")
    summary = grade_pool(path)
    labels = list(read_labels(path)["explain-000"].values())
    assert [label.correct for label in labels] == [True, True, False, False]
    assert (summary.graded, summary.right) == (4, 2)
    assert len({label.answer for label in labels}) == 4, "votes count strings, not meanings"


def _rewordings(text: str) -> Iterator[str]:
    """Texts in other words, by the lab's own writer, that name the same operations."""
    ops = operations(text)
    assert ops is not None
    rng = Random(0)
    while True:
        yield say(rng, Pipeline(ops))


@pytest.mark.parametrize(
    ("prompt", "options", "shown", "letters"),
    [
        ("Which?\nA) 1\nB) 2\nC) 3", (), None, "ABC"),
        ("Which?", ("1", "2", "3", "4"), None, "ABCD"),
        ("", (), "Which?\n(A) 1\n(B) 2", "AB"),
        ([{"role": "user", "content": "Which? A. 1 B. 2 C. 3"}], (), None, "ABC"),
        ("Which?\n(B) 1\n(C) 2", (), None, ""),  # nothing tells what A is
        ("Which?", (), None, ""),
        ("", (), None, ""),
    ],
)
def test_the_letters_of_the_options_are_those_that_are_listed(
    prompt: Any, options: tuple[str, ...], shown: str | None, letters: str
) -> None:
    problem = Problem("p", "own", prompt, "B", options=options, kind="choice")
    assert answer_key(problem, None, shown).letters == letters
    assert answer_key(replace(problem, answer="H", kind="choice"), None, shown).letters == ""  # the list is not whole
    assert answer_key(replace(problem, answer="7", kind="math"), None, shown).letters == ""


def test_a_letter_beyond_the_options_does_not_hide_the_answer(tmp_path: Path) -> None:
    text = r"Call it $\boxed{P}$. The answer is (B)."
    for name, prompt, right in (("listed", "Which?\nA) 1\nB) 2", 1), ("unknown", "Which?", 0)):
        path = write_texts(tmp_path / name, [("p", text)], kind="choice", prompt=prompt)
        assert grade_pool(path, [Problem("p", "answers", "", "B")]).right == right
