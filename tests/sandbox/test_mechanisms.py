"""Which mechanism confines programs: the best that there is, and none only if the caller says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from available import needs_landlock, needs_namespaces
from crippled import NO_LANDLOCK, NO_MOUNTS, cripple, without_filter
from radmoe.errors import InputError
from radmoe.sandbox import Sandbox, boot, run_many, spell

pytestmark = [needs_namespaces, needs_landlock]

READS = "def f(path):\n    try:\n        return len(open(path).read())\n    except OSError as error:\n        return type(error).__name__"
PARENT = "import os\ndef f():\n    return os.getppid()"


def test_without_mounts_landlock_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        assert sandbox.call(PARENT, "f", [()]).data == spell(1).encode()
        assert sandbox.call(READS, "f", [("/etc/passwd",)]).data == spell("FileNotFoundError").encode()
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS)
    with Sandbox() as sandbox:
        assert sandbox.call(PARENT, "f", [()]).data != spell(1).encode()
        assert sandbox.call(READS, "f", [("/etc/passwd",)]).data == spell("PermissionError").encode()
    with (
        Sandbox(mechanism="namespaces") as sandbox,
        pytest.raises(InputError, match="namespaces: pivot_root: Operation"),
    ):
        sandbox.call(PARENT, "f", [()])


def test_without_either_nothing_runs_unless_the_caller_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS | NO_LANDLOCK)
    with Sandbox() as sandbox, pytest.raises(InputError) as refusal:
        sandbox.call(READS, "f", [("/etc/passwd",)])
    message = str(refusal.value)
    assert "\n" not in message
    assert "namespaces: pivot_root: Operation not permitted; landlock: syscall: Function not implemented" in message
    assert "--unconfined" in message
    with Sandbox(unconfined=True) as sandbox:
        size = len(Path("/etc/passwd").read_text())
        assert sandbox.call(READS, "f", [("/etc/passwd",)]).data == spell(size).encode()
        assert b"PermissionError" in sandbox.call("import os\nos.fork()", "f", [()]).data  # the filter is still there


def test_a_machine_without_a_filter_runs_nothing_unless_the_caller_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_filter(tmp_path, monkeypatch)
    proof = tmp_path / "proof"
    with Sandbox() as sandbox, pytest.raises(InputError, match=r"cannot confine programs .* grade code on Linux"):
        sandbox.call(f"open({str(proof)!r}, 'w')", "f", [()])
    assert not proof.exists()
    with Sandbox(unconfined=True) as sandbox:
        assert sandbox.call("f = sum", "f", [([1, 2],)]).data == spell(3).encode()


def test_a_child_that_cannot_confine_itself_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of each child counts, not what its helper said before."""
    cripple(tmp_path, monkeypatch, "jail", {"_FILTER.install()": "pass"})
    proof = tmp_path / "proof"
    with Sandbox() as sandbox, pytest.raises(InputError, match="a process could not put itself behind the filter"):
        sandbox.call(f"open({str(proof)!r}, 'w')", "f", [()])
    assert not proof.exists()


def test_confinement_is_used_where_it_is_there_whatever_the_caller_allows() -> None:
    (data,) = run_many([lambda sandbox: sandbox.call(PARENT, "f", [()]).data], unconfined=True)
    assert data == spell(1).encode()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root has capabilities to lose")
@pytest.mark.parametrize(
    ("lost", "mechanism"),
    [("-chown", "namespaces"), ("-sys_admin", "namespaces"), ("-all", "landlock")],
)
def test_root_with_fewer_capabilities_gets_the_best_that_is_left(lost: str, mechanism: str) -> None:
    """Without sys_admin by a user namespace, in which root is the only user, and without any by Landlock."""
    script = """
from radmoe.sandbox import Sandbox
with Sandbox() as sandbox:
    data = sandbox.call("import hashlib\\nf = sum", "f", [([1, 2],)]).data
    print(*sandbox._mechanisms, data.decode())
"""
    environment = {"PYTHONPATH": str(boot.ROOM.parent.parent)}
    command = ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}", sys.executable, "-c", script]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.stdout == f"{mechanism} 0x3\n", answer.stderr
