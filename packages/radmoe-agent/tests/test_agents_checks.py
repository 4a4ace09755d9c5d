"""Patches are checked where nothing can be harmed: whether they apply, and whether they pass the tests that anybody can run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe_agent.candidates import Candidate, read_candidates
from radmoe_agent.checks import check_patches
from radmoe_agent.instances import Instance, load_instances
from radmoe_agent.patches import decide_all
from scripted_agents import BUG, SUBMIT, instances, mend, run_script, step

SCRIPT = {
    "one": [[mend(""), step(SUBMIT)], [mend(" + 0"), step(SUBMIT)], [mend(" - 1"), step(SUBMIT)]],
    "two": [[step(SUBMIT)], [step(SUBMIT)], [mend(" - 1"), step(SUBMIT)]],
}
TESTS = "python3 -c 'import sums; assert sums.total([2, 3]) == 5'"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checks") / "out"
    run_script(path, SCRIPT)
    return path


def checked(out: Path, tests: str, **more: int) -> list[Candidate]:
    return check_patches(Instance("one", "", files=BUG, visible_tests=tests), read_candidates(out)["one"], **more)


@pytest.mark.slow
def test_a_patch_that_fails_the_visible_tests_is_not_submitted(out: Path) -> None:
    made = checked(out, TESTS)
    assert [one.usable for one in made] == [True, True, False]
    assert (made[2].problem or "").startswith("its patch fails the visible tests (exit 1: AssertionError")


def test_tests_that_nobody_passes_tell_nothing(out: Path) -> None:
    made = checked(out, "echo broken; exit 3")
    assert all(one.usable for one in made)
    assert {one.notes for one in made} == {("its patch fails the visible tests (exit 3: broken), as every other does",)}


@pytest.mark.slow
def test_tests_that_do_not_end_are_stopped(out: Path) -> None:
    made = checked(out, "grep -q '+ 0' sums.py || while :; do :; done", test_seconds=1)
    assert [one.usable for one in made] == [False, True, False]
    assert "its patch fails the visible tests" in (made[0].problem or "")


def test_one_patch_sees_nothing_that_the_tests_of_another_left(out: Path) -> None:
    made = checked(out, "test ! -e left && touch left && grep -q 'sum(xs)$' sums.py")
    assert [one.usable for one in made] == [True, False, False]


def test_an_issue_that_is_solved_in_a_container_is_not_checked_here(out: Path) -> None:
    members = read_candidates(out)["one"]
    assert check_patches(Instance("one", "", image="i", visible_tests="false"), members) == members


def test_the_command_of_the_visible_tests_is_read_with_the_issue(tmp_path: Path) -> None:
    row = {"instance_id": "one", "problem_statement": "total adds 1", "files": BUG, "visible_tests": TESTS}
    (tmp_path / "instances.jsonl").write_text(json.dumps(row))
    assert load_instances(tmp_path)[0].visible_tests == TESTS
    (tmp_path / "instances.jsonl").write_text(json.dumps(row | {"visible_tests": ["pytest"]}))
    with pytest.raises(InputError, match=r"line 1: visible_tests must be a command of bash, got \['pytest'\]"):
        load_instances(tmp_path)


def test_a_patch_goes_to_git_without_a_file_in_the_repository(out: Path, tmp_path: Path) -> None:
    """A stranger's repository may have a link where a file would be written, or hooks and settings that run programs."""
    victim, repository = tmp_path / "victim", tmp_path / "repository"
    victim.write_text("what the user has\n")
    (repository / ".git").mkdir(parents=True)
    (repository / "sums.py").write_text(BUG["sums.py"])
    for name in ("candidate.patch", "index", "config.lock", "FETCH_HEAD"):
        (repository / ".git" / name).symlink_to(victim)
    (repository / ".git" / "config").write_text(
        f"[core]\n fsmonitor = touch {tmp_path}/ran\n pager = touch {tmp_path}/ran\n"
    )
    before = sorted(path.name for path in repository.rglob("*"))
    checked = check_patches(Instance("one", "total adds 1", repository=repository), read_candidates(out)["one"])
    assert victim.read_text() == "what the user has\n"
    assert not (tmp_path / "ran").exists()
    assert sorted(path.name for path in repository.rglob("*")) == before
    assert [one.usable for one in checked] == [True, True, True]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a": "", "a/b": ""}, "a: File exists"),
        ({"a\0b": ""}, r"'a\\x00b' is no name of a file"),
        ({"\ud800": ""}, r"'\\ud800' is no name of a file"),
    ],
)
def test_a_repository_that_cannot_be_made_costs_no_other(out: Path, files: dict[str, str], reason: str) -> None:
    theirs = {one.instance_id: one for one in instances(*SCRIPT)} | {"two": Instance("two", "two", files=files)}
    made = {one.instance_id: one for one in decide_all(out, instances=tuple(theirs.values()))}
    assert made["one"].patch == next(one.patch for one in decide_all(out) if one.instance_id == "one")
    assert made["two"].patch == ""
    problem = made["two"].candidates[2].problem or ""
    assert re.search(rf"its patch cannot be checked \(.*its work tree cannot be made: {reason}", problem)
