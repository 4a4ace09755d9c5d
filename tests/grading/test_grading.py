"""Grading a pool: what counts as right."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grading import samples
from radmoe.errors import InputError, PoolNotFound
from radmoe.grading.benchmarks import load_problems
from radmoe.grading.grade import grade_pool, kind_of, problems_of, read_answers
from radmoe.grading.labels import read_labels
from radmoe.lab.chat import render
from radmoe.lab.tasks import TASKS, Example, Problem, named, problems
from radmoe.lab.tokenizer import build
from radmoe.pool import PoolWriter, open_pool
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab

SHAPE = RouterShape(2, 8, 2)


def write(path: Path, answers: list[tuple[str, str | None]], *, keep_text: bool = True, **sampling: object) -> Path:
    """A pool of the given texts with routing of no meaning."""
    rng, prompt = np.random.default_rng(0), sampling.pop("prompt", None)
    tokenizer = build("chatml")
    with PoolWriter(
        path, shape=SHAPE, vocab=Vocab.from_tokenizer(tokenizer), model="none", sampling=sampling or None
    ) as pool:
        for problem_id, text in answers:
            ids = np.array(tokenizer.encode(text or "").ids or [0], np.int32)
            experts = np.argsort(rng.random((len(ids), 2, 8)), axis=2)[:, :, :2].astype(np.int16)
            pool.add(problem_id, Rollout(ids, experts), text=text if keep_text else None, prompt=prompt)
    return path


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
    path = write(tmp_path / "pool", texts)
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
    path = write(tmp_path / "pool", [(problem.problem_id, answered(problem, problem.answer))], keep_text=False)
    assert open_pool(path).texts(problem.problem_id) == [None]
    assert grade_pool(path).right == 1


def test_progress_is_told_of_every_rollout(tmp_path: Path) -> None:
    problem = problems("choice", limit=1)[0]
    path = write(tmp_path / "pool", [(problem.problem_id, answered(problem, letter)) for letter in "ABCD"])
    done: list[int] = []
    assert grade_pool(path, [problem], progress=done.append).right == 1
    assert sum(done) == 4


def test_a_pool_of_unknown_problems_says_what_to_give(tmp_path: Path) -> None:
    path = write(tmp_path / "pool", [("aime-1", "\\boxed{3}")])
    with pytest.raises(
        InputError,
        match=r"problems \('aime-1'\) that are not among the 0 known \(none\): give the --dataset, --task or --answers",
    ):
        grade_pool(path)
    assert not (path / "labels.parquet").exists()
    with pytest.raises(PoolNotFound):
        grade_pool(tmp_path / "nowhere")


def test_problems_of_a_pool_come_from_its_ids_its_sampling_or_the_caller(tmp_path: Path) -> None:
    by_ids = open_pool(
        write(tmp_path / "a", [("math-2-s7-004", "x"), ("choice-000", "x"), ("code", "x"), ("math-9-000", "x")])
    )
    assert problems_of(by_ids) == {p.problem_id: p for p in (problems("math-2", seed=7)[4], problems("choice")[0])}
    said = open_pool(write(tmp_path / "b", [("own", "x")], task="math-4", seed=7))
    assert problems_of(said) == {p.problem_id: p for p in problems("math-4", seed=7)}
    assert problems_of(said, task="math-1") == {p.problem_id: p for p in problems("math-1", seed=7)}
    assert problems_of(said, task="math-1", seed=0) == {p.problem_id: p for p in problems("math-1")}


def test_ids_name_their_problems() -> None:
    made = [p for task in TASKS for seed in (0, -3) for p in problems(task, seed=seed, limit=3)]
    assert named(p.problem_id for p in made) == {p.problem_id: p for p in made}
    assert named(["math-1", "math-1-0001x", "nothing-000", "code-99999999"]) == {}


# -- benchmarks -------------------------------------------------------------------------------------


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
    path = write(tmp_path / "pool", texts)
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
    path = write(tmp_path / "pool", texts)
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
    path = write(tmp_path / "pool", texts, prompt=f"<|user|>{problem.prompt}<|end|>")
    assert grade_pool(path, known).right == 1
    assert [letter for letter, correct in marks(path)[problem.problem_id] if correct] == [problem.answer]
    with pytest.raises(
        InputError, match=r"problems \('gpqa_diamond-rec3-s7'\) that are not among the 6 known \('gpqa_"
    ):
        grade_pool(path, load("gpqa_diamond", tmp_path, samples.CHOICES))
    other = write(tmp_path / "other", texts, prompt=f"{problem.prompt}".replace("A) ", "B) "))
    with pytest.raises(InputError, match="does not show its options as they are now shuffled: give the --seed"):
        grade_pool(other, known)


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
    path = write(tmp_path / "pool", [(i, f"Here:\n```python\n{program}\n```") for i, program in programs])
    grade_pool(path, known, jobs=2, timeout=1)
    assert {i: [correct for _, correct in rows] for i, rows in marks(path).items()} == {
        reads: [True, False, False],
        calls: [True, False, False],
    }


# -- answers of one's own ---------------------------------------------------------------------------


def test_any_pool_is_graded_against_a_file_of_answers(tmp_path: Path) -> None:
    rows = [("a", 1204), ("b", "c"), ("c", r"\frac{1}{2}"), ("unused", "x")]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps({"problem_id": i, "answer": a}) for i, a in rows) + "\n\n")
    texts = [("a", "\\boxed{1,204}"), ("b", "\\boxed{C}"), ("c", "$\\boxed{ \\frac{1}{2} }$"), ("d", "\\boxed{1}")]
    summary = grade_pool(write(tmp_path / "pool", texts), read_answers(file))
    assert (summary.problems, summary.rollouts, summary.graded, summary.right) == (3, 4, 3, 3)


@pytest.mark.parametrize("line", ["{", "[]", '{"problem_id": 3, "answer": "x"}', '{"problem_id": "a"}', '{"problem_id": "a", "answer": true}'])  # fmt: skip
def test_a_line_that_is_no_answer_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"problem_id": "a", "answer": 1}\n' + line)
    with pytest.raises(InputError, match=r"answers.jsonl, line 2: give \{"):
        read_answers(file)


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    with pytest.raises(InputError, match="cannot be read"):
        read_answers(file)
    file.write_text("\n")
    with pytest.raises(InputError, match="holds no answers"):
        read_answers(file)
    file.write_text('{"problem_id": "a", "answer": " "}')
    with pytest.raises(InputError, match="the answer to 'a' is empty"):
        read_answers(file)


def test_a_problem_of_one_s_own_is_known_by_its_tests_or_answer() -> None:
    assert kind_of(Problem("p", "own", "", "x", ((([],), 0),))) == "code"
    assert kind_of(Problem("p", "own", "", "b")) == "choice"
    assert kind_of(Problem("p", "own", "", "12")) == "math"
    assert kind_of(Problem("p", "own", "", r"\frac{1}{2}")) == "latex"
    assert kind_of(Problem("p", "hmmt_feb_2025", "", "12")) == "latex"
