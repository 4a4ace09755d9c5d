"""What can be seen from inside: an interpreter, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from available import MECHANISMS, needs_landlock
from radmoe.sandbox import Sandbox, boot, root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

WALK = """
import os
def f(top):
    '''Every file that can be opened, and every directory that cannot be listed, without following links.'''
    files, closed = [], []
    for directory, _, names in os.walk(top, onerror=lambda error: closed.append(error.filename)):
        for name in names:
            path = f'{directory}/{name}'.replace('//', '/')
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                files.append(path)
            except OSError:
                closed.append(path)
    return files, closed
"""


@pytest.fixture(scope="module")
def view() -> root.RootView:
    """The view that a helper builds, by an interpreter that is as bare."""
    script = """
import json, os, sys
sys.path.append(sys.argv[1])
import radmoe.sandbox.root
sys.path.pop()
sys.executable = os.path.realpath(sys.executable)
print(json.dumps(radmoe.sandbox.root.interpreter('/tmp')))
"""
    source = str(boot.ROOM.parent.parent)
    answer = subprocess.run([sys.executable, "-I", "-S", "-c", script, source], capture_output=True, check=True)
    return root.RootView(*json.loads(answer.stdout))


@pytest.fixture(scope="module", params=MECHANISMS[:1])
def namespaces() -> Iterator[Sandbox]:
    with Sandbox(mechanism="namespaces", timeout=20) as opened:
        yield opened


def listing(sandbox: Sandbox, top: str) -> tuple[list[str], list[str]]:
    outcome = sandbox.call(WALK, "f", [(top,)], most=1 << 24)
    files, closed = eval(outcome.data)
    return files, closed


def test_the_root_holds_an_interpreter_and_nothing_else(namespaces: Sandbox, view: root.RootView) -> None:
    files, _ = listing(namespaces, "/")
    devices = {f"/dev/{name}" for name in root._DEVICES + tuple(root._LINKS)}
    others = {path for path in files if not path.startswith(("/proc/", *(f"{place}/" for place in view.read)))}
    assert others - devices == {path for path in view.read if Path(path).is_file()}
    assert not [path for path in files if "/site-packages/" in path or "/dist-packages/" in path]


@pytest.mark.slow
@needs_landlock
def test_landlock_opens_the_same_files_and_no_others(view: root.RootView) -> None:
    with Sandbox(mechanism="landlock", timeout=20) as sandbox:
        assert listing(sandbox, "/") == ([], ["/"])
        library = str(Path(os.__file__).parent)
        files, closed = listing(sandbox, library)
        assert len(files) > 500
        assert all("-packages" in path for path in closed)
        assert not any("-packages" in path for path in files)
        for path in view.read:
            if Path(path).is_file():
                assert listing(sandbox, str(Path(path).parent))[0] == []
                assert sandbox.call("def f(path):\n    open(path, 'rb').close()", "f", [(path,)]).data == b"None"


def test_a_program_sees_itself_alone_in_proc(namespaces: Sandbox) -> None:
    program = (
        "import os\ndef f():\n    return [name for name in os.listdir('/proc') if name.isdigit()] == [str(os.getpid())]"
    )
    assert namespaces.call(program, "f", [()]).data == b"0x1"


def test_a_private_library_is_noticed(tmp_path: Path) -> None:
    """As root with a Python in a private home, which another user may not enter."""
    library = tmp_path / "home" / "lib"
    library.mkdir(parents=True)
    (library / "module.py").touch()
    for path in (library, library / "module.py", *library.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o755)
        if path == Path("/tmp"):
            break
    view = root.RootView((str(library),))
    assert not root.private(view, parents=True)
    (tmp_path / "home").chmod(0o700)
    assert root.private(view, parents=True)
    assert not root.private(view, parents=False)
    (library / "module.py").chmod(0o600)
    assert root.private(view, parents=False)


def test_only_the_outermost_paths_are_bound() -> None:
    assert root._outermost(["/usr/lib/a", "/usr", "/usrlocal", "/lib", "/usr"]) == ["/lib", "/usr", "/usrlocal"]


def test_other_programs_and_their_helper_leave_no_mounts() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    with Sandbox() as sandbox:
        assert sandbox.call("f = sum", "f", [([1],)]).data == b"0x1"
        assert Path("/proc/self/mountinfo").read_text() == before
        assert sandbox._scratch
        assert list(sandbox._scratch.path.iterdir()) == []
