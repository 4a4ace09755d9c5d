"""Benchmarks: rows become problems, files are recognised, prompts are written as capture reads them."""

from __future__ import annotations

import json
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grading import samples
from grading.samples import CHOICES, CONTESTS, INTEGERS, LATEX
from radmoe.engines.prompts import read_prompts
from radmoe.errors import InputError
from radmoe.grading.benchmarks import BENCHMARKS, benchmark_named, load_problems, main, seed_in, write_prompts
from radmoe.grading.grade import kind_of


def test_the_six_of_the_paper_are_there() -> None:
    assert {name: made.kind for name, made in BENCHMARKS.items()} == {
        "aime_2024": "math",
        "aime_2025": "math",
        "hmmt_feb_2025": "latex",
        "brumo_2025": "latex",
        "gpqa_diamond": "choice",
        "livecodebench_v5": "code",
    }
    with pytest.raises(InputError, match="unknown dataset 'aime': use one of aime_2024, aime_2025, hmmt"):
        benchmark_named("aime")


# -- problems ---------------------------------------------------------------------------------------


def test_a_question_with_an_answer(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "any.jsonl", INTEGERS)
    found = list(load_problems("aime_2024", file).values())
    assert [problem.answer for problem in found] == ["204", "25"]
    assert found[1].prompt.startswith("How many divisors has $2^{24}$?\n\n")
    assert "\\boxed{}" in found[1].prompt
    assert [kind_of(problem) for problem in found] == ["math", "math"]


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
            assert f"\n{problem.answer}) {right}\n" in problem.prompt
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


def test_contests_have_their_tests_and_their_starter_code(tmp_path: Path) -> None:
    reads, calls = load_problems("livecodebench_v5", samples.write(tmp_path / "lcb.jsonl", CONTESTS)).values()
    assert (reads.problem_id, reads.entry, len(reads.tests)) == ("livecodebench_v5-sum_a", "<stdin>", 2)
    assert "standard input" in reads.prompt
    assert (calls.entry, calls.tests) == ("Solution.back", ((([1, 2],), [2, 1]), (([],), [])))
    assert "```python\nclass Solution:\n    def back" in calls.prompt


@pytest.mark.parametrize(
    ("name", "rows", "kinds"),
    [
        ("aime_2025.jsonl", INTEGERS, ["math", "math"]),
        ("hmmt_feb_2025.jsonl", INTEGERS, ["latex", "latex"]),
        ("some.jsonl", CHOICES[:1], ["choice"]),
        ("some.jsonl", CONTESTS, ["code", "code"]),
        ("own.jsonl", [INTEGERS[0], LATEX[0], {"question": "Which?", "answer": "B"}], ["math", "latex", "choice"]),
    ],
)
def test_a_file_alone_tells_what_it_is(tmp_path: Path, name: str, rows: list[dict[str, Any]], kinds: list[str]) -> None:
    found = load_problems(data=samples.write(tmp_path / name, rows))
    assert [kind_of(problem) for problem in found.values()] == kinds


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
            "line 1 has no question or problem or Question or question_content: it has answer",
        ),
        ("aime_2024", '{"question": "x"}', "line 1: answer must be a text or a number, got None"),
        ("aime_2024", '{"question": "x", "answer": 1}\n' * 2, "line 2: problem 'aime_2024-.*' is there twice"),
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
    with pytest.raises(InputError, match="give a dataset's name, or a JSONL file"):
        load_problems()


# -- the hub ----------------------------------------------------------------------------------------


def hub(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    """In place of the hub's client, which needs a network."""
    module = types.ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_rows_come_from_the_hub_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(*args: Any, split: str) -> list[dict[str, Any]]:
        asked.append((*args, split))
        return CHOICES

    hub(monkeypatch, load)
    assert len(load_problems("gpqa_diamond")) == len(CHOICES)
    assert asked == [("Idavidrein/gpqa", "gpqa_diamond", "train")]


def test_without_the_package_or_a_network_one_line_says_to_pass_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="pip install datasets, or pass --data"):
        load_problems("aime_2024")

    def load(*args: Any, split: str) -> None:
        raise ConnectionError("no route\nto the hub")

    hub(monkeypatch, load)
    with pytest.raises(InputError, match=r"cannot load math-ai/aime25 from the hub \(no route\): pass --data"):
        load_problems("aime_2025")


# -- prompts ----------------------------------------------------------------------------------------


def test_prompts_are_written_as_capture_reads_them(tmp_path: Path) -> None:
    found = load_problems("gpqa_diamond", samples.write(tmp_path / "gpqa.jsonl", CHOICES), seed=7)
    out = tmp_path / "prompts.jsonl"
    assert write_prompts(found.values(), out, seed=7) == len(found)
    assert [(p.problem_id, p.content) for p in read_prompts(out)] == [(p.problem_id, p.prompt) for p in found.values()]
    first = json.loads(out.read_text().splitlines()[0])
    assert first["seed"] == 7
    assert first["options"] == list(next(iter(found.values())).options)
    assert "answer" not in first


def test_the_command_writes_prompts_or_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = samples.write(tmp_path / "aime_2024.jsonl", INTEGERS), tmp_path / "prompts.jsonl"
    main(["aime_2024", "--data", str(file), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}: 2 prompts\n"
    assert len(read_prompts(out)) == 2
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(file), "--out", str(tmp_path / "no" / "where")])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("radmoe: error: cannot write")
