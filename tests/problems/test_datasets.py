"""Data sets: rows become questions and problems, names and paths are looked up, files are recognised."""

from __future__ import annotations

import subprocess
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import samples
from radmoe.errors import InputError
from radmoe.problems import Question, dataset_named, load_questions, task_names
from radmoe.problems.gold import load_problems
from radmoe.problems.records import seed_in
from radmoe_lab.tasks import ALL_TASKS, TASKS, problems
from samples import CHOICES, CONTESTS, INTEGERS, LATEX


def test_the_lab_s_tasks_and_the_six_of_the_paper_are_there() -> None:
    kinds = {name: dataset_named(name).kind for name in task_names()}
    assert kinds == {task.name: task.kind for task in ALL_TASKS.values()} | {
        "aime_2024": "math",
        "aime_2025": "math",
        "hmmt_feb_2025": "math",
        "brumo_2025": "math",
        "gpqa_diamond": "choice",
        "livecodebench_v5": "code",
    }
    assert [dataset_named(name).name for name in task_names()] == list(task_names())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aime", "unknown task 'aime': use one of math-1, .*, aime_2024, .*; or leave --task out and give --data FILE"),
        ("no_such_package.data.SET", r"task 'no_such_package.data.SET' cannot be imported \(No module named"),
        ("radmoe.problems.NOTHING", r"cannot be imported \(module 'radmoe.problems' has no attribute 'NOTHING'\)"),
        (
            "radmoe.problems.datasets.BENCHMARKS",
            "task 'radmoe.problems.datasets.BENCHMARKS' is a dict, not a radmoe.problems.Dataset",
        ),
        (".", "task '.' cannot be imported|unknown task '.'"),
        ("", "unknown task ''"),
    ],
)
def test_a_name_that_is_no_data_set_says_what_is(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        dataset_named(name)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_lab_s_problems_are_drawn_as_before(task: str) -> None:
    drawn = problems(task, seed=7)
    assert list(load_problems(task, seed=7).values()) == drawn
    asked, name = load_questions(task, seed=7, limit=3)
    assert name == task
    assert asked == [Question(p.problem_id, p.prompt, TASKS[task].kind) for p in drawn[:3]]
    with pytest.raises(InputError, match=f"task '{task}' draws its own problems and reads no file"):
        load_questions(task, "rows.jsonl")


# -- problems ---------------------------------------------------------------------------------------


def test_a_question_with_an_answer(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "any.jsonl", INTEGERS)
    found = list(load_problems("aime_2024", file).values())
    assert [problem.answer for problem in found] == ["204", "25"]
    assert str(found[1].prompt).startswith("How many divisors has $2^{24}$?\n\n")
    assert "\\boxed{}" in str(found[1].prompt)
    assert {(problem.task, problem.kind, problem.integer) for problem in found} == {("aime_2024", "math", True)}


def test_an_id_is_the_dataset_s_own_or_told_by_the_question(tmp_path: Path) -> None:
    assert list(load_problems("brumo_2025", samples.write(tmp_path / "a", LATEX))) == ["brumo_2025-1", "brumo_2025-2"]
    once = load_problems("aime_2024", samples.write(tmp_path / "b", INTEGERS))
    again = load_problems("aime_2024", samples.write(tmp_path / "c", INTEGERS[::-1]))
    assert once == again
    assert all(problem_id.startswith("aime_2024-") for problem_id in once)
    own = load_problems("aime_2024", samples.write(tmp_path / "d", [INTEGERS[0] | {"problem_id": "mine"}]))
    assert list(own) == ["mine"]


def test_a_choice_is_shuffled_by_the_seed_and_keeps_its_right_letter(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "gpqa.jsonl", CHOICES)
    orders: Counter[tuple[str, ...]] = Counter()
    for seed in range(12):
        found = load_problems("gpqa_diamond", file, seed=seed)
        assert found == load_problems("gpqa_diamond", file, seed=seed)
        for row, problem in zip(CHOICES, found.values(), strict=True):
            right = problem.options["ABCD".index(problem.answer)]
            assert right == row["Correct Answer"]
            assert f"\n{problem.answer}) {right}\n" in str(problem.prompt)
            assert sorted(problem.options) == sorted(str(row[k]).strip() for k in row if "Answer" in k)
        orders.update("".join(problem.answer for problem in found.values()))
    assert set(orders) == set("ABCD")
    assert min(orders.values()) > 5


def test_a_part_of_the_file_is_shuffled_alike(tmp_path: Path) -> None:
    whole = load_problems("gpqa_diamond", samples.write(tmp_path / "a", CHOICES), seed=3)
    part = load_problems("gpqa_diamond", samples.write(tmp_path / "b", CHOICES[4:1:-1]), seed=3)
    assert part.items() <= whole.items()


def test_another_seed_is_named_in_the_ids(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "gpqa.jsonl", CHOICES)
    assert next(iter(load_problems("gpqa_diamond", file))) == "gpqa_diamond-rec3"
    seven = load_problems("gpqa_diamond", file, seed=7)
    assert next(iter(seven)) == "gpqa_diamond-rec3-s7"
    assert seed_in(seven) == 7
    assert seed_in(["gpqa_diamond-rec3", "x"]) == 0
    assert seed_in(["math-2-s-3-004", "math-2-s-3-005"]) == -3
    assert seed_in(["a-s1", "a-s2"]) == 0


def test_contests_have_their_tests_and_their_starter_code(tmp_path: Path) -> None:
    reads, calls = load_problems("livecodebench_v5", samples.write(tmp_path / "lcb.jsonl", CONTESTS)).values()
    assert (reads.problem_id, reads.entry, len(reads.tests)) == ("livecodebench_v5-sum_a", "<stdin>", 2)
    assert "standard input" in str(reads.prompt)
    assert (calls.entry, calls.tests) == ("Solution.back", ((([1, 2],), [2, 1]), (([],), [])))
    assert "```python\nclass Solution:\n    def back" in str(calls.prompt)


@pytest.mark.parametrize(
    ("name", "rows", "kinds"),
    [
        ("aime_2025.jsonl", INTEGERS, [("math", True), ("math", True)]),
        ("hmmt_feb_2025.jsonl", INTEGERS, [("math", False), ("math", False)]),
        ("some.jsonl", CHOICES[:1], [("choice", None)]),
        ("some.jsonl", CONTESTS, [("code", None), ("code", None)]),
        ("own.jsonl", [INTEGERS[0], LATEX[0]], [(None, None), (None, None)]),
    ],
)
def test_a_file_alone_tells_what_it_is(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], kinds: list[tuple[str | None, bool | None]]
) -> None:
    file = samples.write(tmp_path / name, rows)
    known = load_problems(data=file)
    assert [(problem.kind, problem.integer) for problem in known.values()] == kinds
    asked, task = load_questions(data=file)
    assert task == file.stem
    assert [(q.problem_id, q.content, q.kind) for q in asked] == [
        (p.problem_id, p.prompt, p.kind) for p in known.values()
    ]
    assert all(problem_id.startswith(f"{file.stem}-") for problem_id in known)


# -- questions without answers ----------------------------------------------------------------------


def test_questions_are_asked_without_looking_at_what_is_right(tmp_path: Path) -> None:
    """Rows may come without answers and tests, or with ones that cannot be read: capture never looks."""
    contests = [row | {"private_test_cases": "garbage"} for row in CONTESTS]
    with pytest.raises(InputError, match="private_test_cases cannot be read"):
        load_problems("livecodebench_v5", samples.write(tmp_path / "lcb.jsonl", contests))
    asked, task = load_questions("livecodebench_v5", tmp_path / "lcb.jsonl", limit=1)
    assert (task, [question.problem_id for question in asked]) == ("livecodebench_v5", ["livecodebench_v5-sum_a"])
    rows = [{"id": 1, "problem": "1 + 1?"}]
    asked, _ = load_questions("aime_2025", samples.write(tmp_path / "aime.jsonl", rows))
    assert asked[0].kind == "math"
    with pytest.raises(InputError, match="line 1: answer must be a text or a number, got None"):
        load_problems("aime_2025", tmp_path / "aime.jsonl")


def test_asking_loads_neither_gold_nor_grading(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "own.jsonl", [{"id": 1, "prompt": "?", "answer": 3}])
    code = (
        "import sys; from radmoe.problems import load_questions; "
        f"load_questions('math-1', limit=1); load_questions(data={str(file)!r}); "
        "print(sorted(name for name in sys.modules if name.startswith(('radmoe.grading', 'radmoe.problems.gold'))))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="limit must be at least 1, got 0"):
        load_questions("math-1", limit=0)


# -- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("aime_2024", "", "holds no problems: write one object per line"),
        ("aime_2024", "{", "line 1 is not JSON"),
        ("aime_2024", "[1]", r"line 1 is not an object, but \[1\]"),
        (
            "aime_2024",
            '{"answer": 1}',
            "line 1 has no question or problem or Question: it has answer",
        ),
        ("aime_2024", '{"question": "x"}', "line 1: answer must be a text or a number, got None"),
        ("aime_2024", '{"question": "x", "answer": 1}\n' * 2, "line 2: problem 'aime_2024-.*' is already on line 1"),
        ("gpqa_diamond", '{"question": "x", "answer": "A"}', "line 1 has no Correct Answer: it has question, answer"),
        ("livecodebench_v5", '{"question": "x"}', "line 1 has no tests"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_problems(name, file)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere.jsonl"):
        load_problems("aime_2024", tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="give the problems: --task math-2"):
        load_problems()


# -- the hub ----------------------------------------------------------------------------------------


def hub(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    """In place of the hub's client, which needs a network."""
    module = types.ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_rows_come_from_the_hub_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def load(*args: Any, split: str) -> list[dict[str, Any]]:
        calls.append((*args, split))
        return CHOICES

    hub(monkeypatch, load)
    assert len(load_problems("gpqa_diamond")) == len(CHOICES)
    assert load_questions("gpqa_diamond", limit=2)[0][0].problem_id == "gpqa_diamond-rec3"
    assert calls == [("Idavidrein/gpqa", "gpqa_diamond", "train")] * 2


def test_without_the_package_or_a_network_one_line_says_to_pass_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="pip install datasets, or pass --data"):
        load_questions("aime_2024")

    def load(*args: Any, split: str) -> None:
        raise ConnectionError("no route\nto the hub")

    hub(monkeypatch, load)
    with pytest.raises(InputError, match=r"cannot load math-ai/aime25 from the hub \(no route\): pass --data"):
        load_problems("aime_2025")
