"""What programs return for the examples in their prompts: found there, run in the sandbox, written down and read again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planted_pools import faults_of
from radmoe.errors import InputError, PoolCorrupt
from radmoe.evaluation import cache
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.pools import open_graded
from radmoe.grading import grade_pool
from radmoe.grading.behaviours import behaviour, read_behaviours, visible_calls, write_behaviours
from radmoe.grading.labels import Label, write_labels
from radmoe.pool.schema import BEHAVIOURS
from radmoe.problems import Problem
from radmoe.sandbox import Sandbox
from text_pools import write_texts

REPEATED = [("f(" * 50_000, 0), ("f(1) " * 20_000, 1), ("f(x)" * 20_000, 0), ("f(x, (1" + ")" * 90_000, 0)]
PROMPT = "Write f(xs) in Python: add them up.\nExamples:\nf([1, 2]) == 3\nf([]) == 0\nAnswer with a code block."
PROBLEM = Problem("sum-0", "mine", PROMPT, "", ((([1, 2, 3],), 6), (([],), 0)), kind="code")
SUM, LOOP = "def f(xs):\n    return sum(xs)", "def f(xs):\n    t = 0\n    for x in xs:\n        t += x\n    return t"
WRONG = "def f(xs):\n    return len(xs) + sum(xs[1:]) - 1 if xs else 0"  # 3 and 0 too: right on what is shown
BROKEN, ENDLESS = "def f(xs):\n    return 1 / 0", "def f(xs):\n    while True: pass"


@pytest.mark.parametrize(("prompt", "calls"), REPEATED)
def test_calls_in_a_prompt_that_repeats_itself_are_found_in_time(prompt: str, calls: int) -> None:
    began = time.process_time()
    assert len(visible_calls(prompt, "f")) == calls
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("prompt", "entry", "calls"),
    [
        (PROMPT, "f", [([1, 2],), ([],)]),
        (">>> f(1, 'a)')\n2\n>>> f(1, 'a)')\n2", "f", [(1, "a)")]),  # a parenthesis in a string; each call once
        ("f((1, 2), {'a': [3]}) -> 4", "f", [((1, 2), {"a": [3]})]),
        ("Complete def f(xs): return f(xs)", "f", []),  # a signature is no call of plain values
        ("self.f(1) and g(2) and half(3)", "f", []),
        ("f(x=1) == 2", "f", []),
        ("f([1, 2", "f", []),
        ("g(7) == 1", "g", [(7,)]),
        ([{"role": "user", "content": "f(1) == 1"}, {"role": "user", "content": "f(2) == 1"}], "f", [(1,), (2,)]),
        ("3\n1 2 3", "<stdin>", []),
        ("", "f", []),
    ],
)
def test_calls_of_plain_values_are_found_in_a_prompt(prompt: Any, entry: str, calls: list[tuple[Any, ...]]) -> None:
    assert visible_calls(prompt, entry) == calls


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


@pytest.mark.slow
def test_programs_that_return_the_same_behave_alike(sandbox: Sandbox) -> None:
    calls = visible_calls(PROMPT, "f")
    acts = [behaviour(sandbox, program, calls, "f") for program in (SUM, LOOP, WRONG, "def f(xs):\n    return xs")]
    assert acts[0] == acts[1] == acts[2] is not None
    assert acts[3] not in (None, acts[0])
    for program in (BROKEN, ENDLESS, "def f(xs:", "", "raise SystemExit(0)"):
        assert behaviour(sandbox, program, calls, "f") is None, program
    half = behaviour(sandbox, "def f(xs):\n    return xs[0]", calls, "f")  # an exception is an act, if not the only one
    assert half is not None
    assert half.split("\n")[1].startswith("!IndexError")


def fenced(program: str) -> str:
    return f"<think>hm</think>\n\n```python\n{program}\n```\n"


def test_a_pool_is_grouped_by_behaviour(tmp_path: Path) -> None:
    texts = [fenced(program) for program in (BROKEN, SUM, "def f(xs):\n    return 7", LOOP, SUM)]
    path = write_texts(tmp_path / "p", [("sum-0", text) for text in [*texts, "no program"]], kind="code", prompt=PROMPT)
    grade_pool(path, [PROBLEM])
    assert read_behaviours(path) == {}
    before = cache.checksum(path)
    done: list[int] = []
    assert write_behaviours(path, {"sum-0": PROBLEM}, progress=done.append) == 4
    assert len(done) == 4  # SUM is there twice and run once
    acts = read_behaviours(path)["sum-0"]
    assert acts[1] == acts[3] == acts[4] != acts[2]
    assert acts[0] is None
    assert acts[5] is None
    ((problem,),) = open_graded(path)
    assert METHODS["behaviour"].judge(problem) == (1, 1.0)
    assert cache.checksum(path) != before  # so that evaluation is made anew
    assert faults_of(path) == []  # the pool is as sound as before


def test_a_pool_without_examples_says_so(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "p", [("q", fenced(SUM))], kind="code")
    write_labels(path, [Label("q", 0, SUM, True)])
    with pytest.raises(InputError, match=r"no prompt of a graded program shows a call, such as f\(\[1, 2\]\) == 3"):
        write_behaviours(path, {"q": Problem("q", "mine", "Write f(xs).", "", (((1,), 1),), kind="code")})


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "p", [("q", fenced(SUM))], kind="code")
    (path / BEHAVIOURS).write_bytes(b"PAR1 no")
    with pytest.raises(
        PoolCorrupt, match=r"behaviours\.parquet cannot be read .*: grade the pool again with --behaviours"
    ):
        read_behaviours(path)
