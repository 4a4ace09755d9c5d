"""Where commands run: in a directory of their own, confined, and what git prints there or a stand-in for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe_lab.agent import workplace
from radmoe_lab.agent.git_stand_in import difference
from radmoe_lab.agent.workplace import Printed, Workplace, probe

pytestmark = pytest.mark.slow

FILES = {"a.py": "def f(values):\n    return values\n", "b.py": "x = 1\ny = 2\n"}


@pytest.fixture(params=["confined", "unconfined"])
def works(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workplace]:
    with Workplace(FILES, unconfined=tmp_path / "repository" if request.param == "unconfined" else None) as made:
        yield made


def test_both_outputs_come_in_their_order_with_the_exit_code(works: Workplace) -> None:
    assert works.run("echo one; echo two >&2; echo three; exit 7") == Printed("one\ntwo\nthree\n", 7)
    assert works.run("nonesuch").output == "bash: line 1: nonesuch: command not found\n"


def test_a_command_works_in_its_directory_and_sees_no_other(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with Workplace(FILES) as works:
        assert works.run("ls").output == "a.py\nb.py\n"
        assert works.run(f"cat {tmp_path}/secret").code == 1
        assert works.run("echo 1 > /usr/here").code == 1
        assert works.run("test $(id -u) = 0").code == 1
        assert works.run("ls /proc | grep -c '^[0-9]'").output.strip() in ("", "0", "1", "2", "3", "4")
        code = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
        assert "unreachable" in works.run(f'python3 -c "{code}"').output


def test_a_command_that_hangs_or_floods_is_stopped(works: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "COMMAND_S", 1)
    assert works.run("echo begun; sleep 30")[1:] == (-1, True)
    assert works.run("python3 -c 'b = bytearray(3 << 30)'").code != 0
    if works._directory is None:
        assert works.run("yes").stopped
        assert works.run("head -c 80000000 /dev/zero > large").code != 0


def test_commands_share_their_files_until_their_confinement_is_lost() -> None:
    with Workplace(FILES) as works:
        assert works.run("echo 1 > new; cat new") == Printed("1\n", 0)
        assert works.run("cat new") == Printed("1\n", 0)
        assert works._session is not None
        works._session.close()
        for _ in range(2):  # the files are lost too, so that no later command may pretend to go on
            assert works.run("cat a.py") == Printed("", -1, stopped=True)


def test_bytecode_is_not_kept_so_that_an_edit_within_a_second_counts(works: Workplace) -> None:
    assert works.run("python3 -c 'import b; print(b.x)'").output == "1\n"
    assert works.run("sed -i 's/x = 1/x = 3/' b.py && python3 -c 'import b; print(b.x)'").output == "3\n"
    assert "__pycache__" not in works.run("ls").output


def test_nothing_is_left_of_a_workplace(works: Workplace, tmp_path: Path) -> None:
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    assert works.run(f'mkdir -p a/b; chmod 000 a/b a; python3 -c "{deep}"').code == 0
    works.close()
    assert list(tmp_path.iterdir()) == []


CHANGES = {
    "one line": ("a.py", "def f(values):\n    return values\n", "def f(values):\n    return 1\n"),
    "no newline": ("a.py", "a = 1\nb = 2\n", "a = 1\nb = 3"),
    "newline added": ("a.py", "a = 1\nb = 2", "a = 1\nb = 2\n"),
    "gone": ("a.py", "a = 1\n", None),
    "empty": ("a.py", "a = 1\n", ""),
    "two places": ("a.py", "".join(f"def f{i}():\n    return {i}\n" for i in range(12)),
                   "".join(f"def f{i}():\n    return {i + (i in (1, 9))}\n" for i in range(12))),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_the_difference_is_what_git_prints(name: str, tmp_path: Path) -> None:
    file, before, after = CHANGES[name]
    with Workplace({file: before}, unconfined=tmp_path / "r") as works:
        works.run("true")
        if after is None:
            (tmp_path / "r" / file).unlink()
        else:
            (tmp_path / "r" / file).write_text(after)
        said = difference(file, before.encode(), None if after is None else after.encode())
        assert works.run("git diff").output == said


@pytest.mark.parametrize("unconfined", [False, True])
def test_without_git_a_stand_in_diffs_and_restores(
    unconfined: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no git, commands find a program of that name, and print what git would."""
    with Workplace(FILES) as works:
        there = works.run("sed -i 's/y = 2/y = 3/' b.py; git diff").output
    monkeypatch.setattr(workplace, "_missing", lambda program: program == "git")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as system:  # what commands are shown cannot lie in /tmp
        monkeypatch.setitem(workplace.MINIMAL, "PATH", f"{_system_without_git(Path(system))}")
        monkeypatch.setattr(workplace, "SYSTEM", (*workplace.SYSTEM, system))
        with Workplace(FILES, unconfined=tmp_path / "other" if unconfined else None) as works:
            assert works.run("sed -i 's/y = 2/y = 3/' b.py; git diff").output == there
            assert works.run("git checkout -q b.py && git diff") == Printed("", 0)
            assert works.run("sed '' b.py").output == FILES["b.py"]
            refused = works.run("git log")
            assert refused.code == 1
            assert "knows diff and checkout" in refused.output
        probe(tmp_path, unconfined=unconfined)


def _system_without_git(place: Path) -> Path:
    place.chmod(0o755)
    programs = place / "system"
    programs.mkdir()
    for name in ("bash", "sed", "env", "python3", "chmod"):
        (programs / name).symlink_to(Path("/usr/bin") / name)
    return programs


def test_a_system_that_cannot_confine_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("'bash' cannot be run in confinement: Operation not permitted")

    probe(tmp_path / "a")
    monkeypatch.setattr(workplace, "Session", refuse)
    with pytest.raises(InputError, match="cannot be run in confinement"):
        probe(tmp_path / "b")
    probe(tmp_path / "c", unconfined=True)


def test_the_stand_in_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / ".git" / "start").mkdir(parents=True)
    (tmp_path / ".git" / "start" / "a.py").write_text("a = 1\n")
    (tmp_path / "a.py").write_text("a = 2\n")
    program = Path(workplace.__file__).with_name("git_stand_in.py")
    done = subprocess.run(
        [sys.executable, "-IS", str(program), "diff"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == difference("a.py", b"a = 1\n", b"a = 2\n")
