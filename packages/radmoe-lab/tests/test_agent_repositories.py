"""Generated repositories: repeatable, apart from training, with a bug that shows and a change that mends it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from radmoe.errors import InputError
from radmoe_lab.agent.functions import KINDS, Function, key
from radmoe_lab.agent.repositories import draw_repository, repositories, repository_named
from radmoe_lab.agent.running import check_output, results
from radmoe_lab.tasks.draw import is_test

FAMILIES = {"operator", "constant", "off by one", "wrong call", "slice", "missing case", "import", "order"}
FAMILIES |= {"missing step", "variable", "missing call"}


@pytest.fixture(scope="module")
def training() -> list:
    rng = Random(5)
    return [draw_repository(rng, "training", test=False) for _ in range(400)]


def test_a_seed_gives_the_same_repositories_and_another_seed_gives_others() -> None:
    first, again, other = repositories(limit=8), repositories(limit=8), repositories(limit=8, seed=3)
    assert first == again
    assert not {each.content for each in first} & {each.content for each in other}
    assert [each.repository_id for each in (first[7], other[7])] == ["repo-0007", "repo-s3-0007"]
    assert repository_named("repo-0007") == first[7]
    assert repository_named("repo-s3-0002") == other[2]


@pytest.mark.slow
def test_no_repository_depends_on_the_order_of_a_set() -> None:
    """repo-0108 and repo-0428 have functions of one name, whose docstrings once followed Python's hashes."""
    program = (
        "import hashlib; from radmoe_lab.agent.repositories import repository_named as named; "
        "print(hashlib.sha256(repr([named(f'repo-{n:04d}') for n in (46, 108, 261, 347, 428)]).encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2", "3")
    ]
    assert len({done.stdout for done in runs}) == 1


@pytest.mark.parametrize("name", ["repo", "repo-x", "math-0003", "repo-7", "repo-s-0001", "repo-9999999"])
def test_a_repository_that_does_not_exist_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=name):
        repository_named(name)


def test_training_and_test_repositories_differ_in_what_they_are(training: list) -> None:
    tests = repositories(limit=60)
    assert all(is_test(each.content) for each in tests)
    assert not any(is_test(each.content) for each in training)
    assert len({each.content for each in tests}) == 60


def test_the_bug_shows_in_both_kinds_of_tests_and_the_change_mends_all(training: list) -> None:
    for each in training:
        assert each.edit.apply(each.files) == each.fixed
        assert check_output(each.files, each.visible)[1] == check_output(each.files, each.hidden)[1] == 1
        assert check_output(each.fixed, each.visible)[1] == check_output(each.fixed, each.hidden)[1] == 0
        assert each.failing in each.issue
        assert results(each.files, [each.failing])[0] in each.issue
        assert sum(each.files[name] != each.fixed[name] for name in each.files) == 1


def test_all_families_of_bugs_occur_and_many_numbers_are_open(training: list) -> None:
    families = Counter(each.family for each in training)
    assert set(families) == FAMILIES
    assert 0.35 < sum(each.number_open for each in training) / len(training) < 0.7
    assert any(len(each.modules) == 3 for each in training)  # with a second function of the same name


def test_an_open_number_is_named_nowhere_but_in_the_tests(training: list) -> None:
    for each in training:
        if each.number_open:
            assert each.target.function.doc in KINDS[each.target.function.kind].vague
            assert not any(digit in each.target.function.doc for digit in "0123456789")


def test_visible_tests_do_not_pin_the_bug_down_alone(training: list) -> None:
    """Hidden tests see more: breaking any function of a repository fails one of them nearly always."""
    missed = 0
    for each in training[:60]:
        for module, functions in each.modules.items():
            for function in functions:
                bug = KINDS[function.kind].bugs[0].body.format(k=function.k, j=function.k + 1)
                text = "\n\n".join(f.source(bug if f is function else None) for f in functions)
                missed += not check_output({**each.fixed, f"{module}.py": text}, each.hidden)[1]
    assert missed < 60


def test_functions_are_written_and_broken_as_their_kind_says() -> None:
    for name, kind in KINDS.items():
        function = Function("f", name, 5, "Text.")
        names: dict = {}
        exec(function.source(), names)
        right = [names["f"](values) for values in ([3, 9, 5, 5], [7, 5, 6, 1, 2, 4])]
        assert all(isinstance(value, int if kind.ends else list) for value in right)
        for bug in kind.bugs:
            body = bug.body.format(k=5, j=6)
            assert key(body) != key(kind.body.format(k=5))
            inputs = ([5, 9, 3, 5], [7, 5, 6, 1, 2, 4], [1, 2, 3, 4, 5, 6, 7], [])
            got = results({"m.py": function.source(body)}, [f"m.f({values})" for values in inputs])
            assert got != results({"m.py": function.source()}, [f"m.f({values})" for values in inputs]), (name, bug)
