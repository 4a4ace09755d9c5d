r"""The benchmarks of the paper, as problems to ask and to grade: from the hub by id, or from a local JSONL file.

    python -m radmoe.grading.benchmarks aime_2024 --data aime_2024.jsonl --out prompts.jsonl

writes the prompts for `radmoe capture --prompts`. A problem's id holds the dataset's own id for it, or where there is
none a digest of the question, so that no answer is ever held against another problem whatever the order of the rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from radmoe.errors import InputError, RadmoeError
from radmoe.grading.livecode import hidden_tests
from radmoe.lab.tasks import Problem

DEFAULT_SEED = 0
_LETTERS = "ABCDEFGHIJ"
_ASK = "Reason step by step and put the final answer in \\boxed{}."
_ASK_LETTER = "Reason step by step and put the letter of the right option in \\boxed{}."
_ASK_PROGRAM = (
    "Write a Python program that solves this. It reads from standard input and prints to standard output. "
    "Give the whole program in one ```python block."
)
_ASK_METHOD = "Complete this Python class. Give the whole program in one ```python block."
_SEEDED = re.compile(r".+-s(-?\d+)")
_IDS = ("id", "problem_idx", "question_id", "Record ID")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A dataset: where the hub has it, what kind of answer it asks for, how a row becomes a problem."""

    name: str
    hub: str
    config: str | None
    split: str
    kind: str  # math, latex, choice or code
    make: Callable[[Row, str, str, int, str], Problem]


def _asked(row: Row, name: str, problem_id: str, seed: int, where: str) -> Problem:
    question, answer = _text(row, ("question", "problem", "Question"), where), row.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise InputError(f"{where}: answer must be a text or a number, got {answer!r}")
    return Problem(problem_id, name, f"{question}\n\n{_ASK}", str(answer).strip())


def _choice(row: Row, name: str, problem_id: str, seed: int, where: str) -> Problem:
    """Options are shuffled by seed and id; under another seed than the default the id names it."""
    question = _text(row, ("Question", "question"), where)
    right = _text(row, ("Correct Answer",), where)
    options = [right, *(_text(row, (f"Incorrect Answer {i}",), where) for i in (1, 2, 3))]
    Random(f"{seed} {problem_id}").shuffle(options)
    if seed != DEFAULT_SEED:
        problem_id = f"{problem_id}-s{seed}"
    prompt = f"{question}\n\n{listed(options)}\n\n{_ASK_LETTER}"
    return Problem(problem_id, name, prompt, _LETTERS[options.index(right)], options=tuple(options))


def listed(options: Iterable[str]) -> str:
    """Options as a prompt shows them."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(_LETTERS, options, strict=False))


def _contest(row: Row, name: str, problem_id: str, seed: int, where: str) -> Problem:
    question = _text(row, ("question_content", "question"), where)
    tests, entry = hidden_tests(row, where)
    starter = str(row.get("starter_code") or "").strip("\n")
    ask = f"{_ASK_METHOD}\n\n```python\n{starter}\n```" if starter else _ASK_PROGRAM
    return Problem(problem_id, name, f"{question}\n\n{ask}", "", tests, entry)


BENCHMARKS: dict[str, Benchmark] = {
    made.name: made
    for made in (
        Benchmark("aime_2024", "HuggingFaceH4/aime_2024", None, "train", "math", _asked),
        Benchmark("aime_2025", "math-ai/aime25", None, "test", "math", _asked),
        Benchmark("hmmt_feb_2025", "MathArena/hmmt_feb_2025", None, "train", "latex", _asked),
        Benchmark("brumo_2025", "MathArena/brumo_2025", None, "train", "latex", _asked),
        Benchmark("gpqa_diamond", "Idavidrein/gpqa", "gpqa_diamond", "train", "choice", _choice),
        # v5 alone is the paper's 167 problems; release_v5 would be all 880 up to then
        Benchmark("livecodebench_v5", "lighteval/code_generation_lite", "v5", "test", "code", _contest),
    )
}


def benchmark_named(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise InputError(f"unknown dataset {name!r}: use one of {', '.join(BENCHMARKS)}, or --data with a file")
    return BENCHMARKS[name]


def load_problems(
    name: str | None = None, data: str | Path | None = None, *, seed: int = DEFAULT_SEED
) -> dict[str, Problem]:
    """A dataset's problems by id: from a file if one is given, else from the hub.

    Without a name the file tells: by its own name, or by its columns. `seed` is that of the order of options.
    """
    if data is None:
        if name is None:
            raise InputError("give a dataset's name, or a JSONL file of problems")
        made = benchmark_named(name)
        rows: Iterable[tuple[str, Row]] = ((f"{made.hub} row {i}", row) for i, row in enumerate(_from_hub(made), 1))
        label = made.name
    else:
        rows = read = list(_from_file(Path(data)))
        label = name or Path(data).stem
        made = benchmark_named(name) if name else _recognised(label, read[0][1])
    found: dict[str, Problem] = {}
    for where, row in rows:
        problem = made.make(row, made.name, _problem_id(label, row, where), seed, where)
        if problem.problem_id in found:
            raise InputError(f"{where}: problem {problem.problem_id!r} is there twice")
        found[problem.problem_id] = problem
    return found


def seed_in(problem_ids: Iterable[str]) -> int:
    """The seed that ids of shuffled problems name; the default where none does."""
    found = {int(made[1]) for made in map(_SEEDED.fullmatch, problem_ids) if made}
    return found.pop() if len(found) == 1 else DEFAULT_SEED


def _recognised(stem: str, row: Row) -> Benchmark:
    if stem in BENCHMARKS:
        return BENCHMARKS[stem]
    if "Correct Answer" in row:
        return BENCHMARKS["gpqa_diamond"]
    if "public_test_cases" in row or "private_test_cases" in row:
        return BENCHMARKS["livecodebench_v5"]
    return Benchmark(stem, "", None, "", "", _asked)  # its kind is told by each answer


def _problem_id(label: str, row: Row, where: str) -> str:
    if isinstance(row.get("problem_id"), str) and row["problem_id"]:
        return str(row["problem_id"])
    for column in _IDS:
        own = row.get(column)
        if isinstance(own, str | int) and not isinstance(own, bool) and str(own).strip():
            return f"{label}-{str(own).strip()}"
    question = _text(row, ("question", "problem", "Question", "question_content"), where)
    return f"{label}-{hashlib.sha256(' '.join(question.split()).encode()).hexdigest()[:10]}"


def _text(row: Row, columns: tuple[str, ...], where: str) -> str:
    for column in columns:
        if isinstance(row.get(column), str) and row[column].strip():
            return str(row[column]).strip()
    raise InputError(f"{where} has no {' or '.join(columns)}: it has {', '.join(map(str, row)) or 'no fields'}")


def _from_file(path: Path) -> Iterable[tuple[str, Row]]:
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"cannot read {path} ({reason}): pass a JSONL file of problems") from None
    found = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path} line {number} is not an object, but {line.strip()[:40]}")
        found = True
        yield f"{path} line {number}", row
    if not found:
        raise InputError(
            f'{path} holds no problems: write one object per line, such as {{"question": "...", "answer": "8"}}'
        )


def _from_hub(made: Benchmark) -> Iterable[Row]:
    instead = "pass --data with a JSONL file of its rows"
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{made.name} is loaded with the package datasets: pip install datasets, or {instead}"
        ) from None
    try:
        return [dict(row) for row in load_dataset(made.hub, made.config, split=made.split)]
    except Exception as error:  # no network, a gated dataset, a changed one: the hub's client raises what it likes
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"cannot load {made.hub} from the hub ({reason[:200]}): {instead}") from None


# -- prompts ---------------------------------------------------------------------------------------------------------


def write_prompts(problems: Iterable[Problem], path: str | Path, *, seed: int = DEFAULT_SEED) -> int:
    """Prompts as `radmoe capture` reads them, one object per line; of a shuffled choice the options and seed too."""
    lines = []
    for problem in problems:
        row: dict[str, Any] = {"problem_id": problem.problem_id, "prompt": problem.prompt}
        if problem.options:
            row |= {"options": list(problem.options), "seed": seed}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    try:
        Path(path).write_text("".join(lines), "utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    return len(lines)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m radmoe.grading.benchmarks", description="Write a dataset's prompts."
    )
    parser.add_argument("dataset", nargs="?", help=", ".join(BENCHMARKS))
    parser.add_argument("--data", type=Path, help="a JSONL file of the dataset's rows, instead of the hub")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the order of options (GPQA)")
    parser.add_argument("--out", type=Path, required=True, help="the JSONL file of prompts to write")
    given = parser.parse_args(words)
    try:
        problems = load_problems(given.dataset, given.data, seed=given.seed)
        count = write_prompts(problems.values(), given.out, seed=given.seed)
    except RadmoeError as error:
        print(f"radmoe: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"{given.out}: {count} prompts")


if __name__ == "__main__":
    main()
