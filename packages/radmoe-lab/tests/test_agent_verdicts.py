"""Hidden tests decide about patches, and a patch cannot decide about itself."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from radmoe_lab.agent.git_stand_in import difference
from radmoe_lab.agent.repositories import BuggyRepository, repositories
from radmoe_lab.agent.running import cases_file, check_output
from radmoe_lab.agent.shell import patch
from radmoe_lab.agent.verdicts import HIDDEN_FAIL, NO_PATCH, NOT_APPLIED, RESOLVED, VISIBLE_FAIL, judge, judge_many


@pytest.fixture(scope="module")
def tasks() -> list[BuggyRepository]:
    return repositories(limit=12)


def overfitted(repository: BuggyRepository) -> str:
    """A patch that answers the visible tests by heart, and is wrong otherwise."""
    answers = dict(case.split(" == ") for case in repository.visible if case.startswith(f"{repository.entry}."))
    known = {call.split("(")[1][:-1]: value for call, value in answers.items()}
    text = (
        f"KNOWN = {known!r}\n\n\ndef {repository.entry}(values):\n    return eval(KNOWN.get(repr(values), '99999'))\n"
    )
    name = f"{repository.entry}.py"
    return difference(name, repository.files[name].encode(), text.encode())


@pytest.mark.slow
def test_all_verdicts(tasks: list[BuggyRepository]) -> None:
    entry_only = next(t for t in tasks if t.target and not t.direct)
    name = f"{entry_only.entry}.py"
    broken = difference(name, entry_only.files[name].encode(), b"this is no Python\n")
    pairs = [(task, patch(task.fixed, task.files)) for task in tasks]
    pairs += [(entry_only, ""), (entry_only, " \n"), (entry_only, "no patch at all\n"), (entry_only, broken)]
    pairs += [(entry_only, overfitted(entry_only))]
    verdicts = judge(pairs)
    assert verdicts == [RESOLVED] * 12 + [NO_PATCH, NO_PATCH, NOT_APPLIED, VISIBLE_FAIL, HIDDEN_FAIL]
    assert judge_many(pairs[8:], jobs=2) == verdicts[8:]


def test_a_patch_of_another_repository_does_not_apply(tasks: list[BuggyRepository]) -> None:
    assert judge([(tasks[0], patch(tasks[1].fixed, tasks[1].files))]) == [NOT_APPLIED]


def test_changed_tests_are_not_believed(tasks: list[BuggyRepository]) -> None:
    task = tasks[0]
    easy = {**task.files, "tests.py": cases_file(["check.failed([]) == 0"]), "check.py": "print('1 of 1 pass')\n"}
    assert judge([(task, patch(easy, task.files))]) == [VISIBLE_FAIL]
    both = {**easy, task.edit.file: task.fixed[task.edit.file]}
    assert judge([(task, patch(both, task.files))]) == [RESOLVED]


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "    while True:\n        pass\n",
        "    raise SystemExit(0)\n",
        "    import os\n    os._exit(0)\n",
        "    import builtins\n    builtins.repr = lambda value: '0'\n    return 0\n",
        "    class Odd(int):\n        def __repr__(self):\n            raise KeyboardInterrupt\n    return Odd()\n",
        "    return open('/etc/passwd').read()\n",
    ],
)
def test_a_function_that_misbehaves_fails(tasks: list[BuggyRepository], body: str) -> None:
    task = tasks[0]
    name = f"{task.entry}.py"
    text = f"def {task.entry}(values):\n{body}"
    assert judge([(task, difference(name, task.files[name].encode(), text.encode()))]) == [VISIBLE_FAIL]


def test_a_patch_cannot_reach_out_of_its_directory(tasks: list[BuggyRepository], tmp_path: Path) -> None:
    new = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/../../escaped.py\n@@ -0,0 +1 @@\n+x = 1\n"
    link = "diff --git a/l.py b/l.py\nnew file mode 120000\n--- /dev/null\n+++ b/l.py\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    link += "\\ No newline at end of file\n"
    fix = patch(tasks[0].fixed, tasks[0].files)
    assert judge([(tasks[0], new), (tasks[0], link), (tasks[0], fix)]) == [NOT_APPLIED, VISIBLE_FAIL, RESOLVED]


def test_the_command_judges_a_file_and_refuses_what_it_does_not_know(
    tasks: list[BuggyRepository], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from radmoe_lab.agent.verdicts import main

    (tmp_path / "right.patch").write_text(patch(tasks[3].fixed, tasks[3].files))
    main(["repo-0003", str(tmp_path / "right.patch")])
    assert capsys.readouterr().out == "resolved\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    main(["repo-0003", "-"])
    assert capsys.readouterr().out == "no patch\n"
    for words in (["repo-0003"], ["nonesuch", "-"], ["repo-0003", str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_an_overfitted_patch_passes_what_is_visible(tasks: list[BuggyRepository]) -> None:
    """The recipe of `overfitted`: without it the verdict above would say nothing about hidden tests."""
    task = next(t for t in tasks if t.target and not t.direct)
    name = f"{task.entry}.py"
    known = {
        case.split(" == ")[0].split("(")[1][:-1]: case.split(" == ")[1] for case in task.visible if name[:-3] in case
    }
    text = f"KNOWN = {known!r}\n\n\ndef {task.entry}(values):\n    return eval(KNOWN[repr(values)])\n"
    assert check_output({**task.files, name: text}, task.visible)[1] == 0
