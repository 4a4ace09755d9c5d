"""Commands in the confinement that programs have: a real bash and a real git, in a work tree that lies in memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from available import needs_namespaces
from crippled import NO_MOUNTS, cripple, without_filter
from leftovers import leftovers
from radmoe.errors import InputError
from radmoe_agent.session import Session
from readable import readable_copy

pytestmark = [needs_namespaces, pytest.mark.slow]


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(files={"given": "here"}, timeout=10, environment={"COLOUR": "red"}, memory=1 << 30) as made:
        yield made


def said(session: Session, command: str, **options: object) -> str:
    done = session.run(["bash", "-c", command], **options)  # type: ignore[arg-type]
    assert not done.stopped
    return done.output.decode()


# -- what a command has ----------------------------------------------------------------------------------------------


def test_commands_run_one_after_another_in_one_work_tree(session: Session) -> None:
    assert said(session, "pwd; cat given -; echo one > a; echo $COLOUR", stdin=b" and there\n") == (
        "/testbed\nhere and there\nred\n"
    )
    assert said(session, "cat a; echo two >&2; echo three") == "one\ntwo\nthree\n"
    assert session.run(["bash", "-c", "exit 7"]).code == 7
    assert session.run(["bash", "-c", "kill -9 $$"]).code == 137
    assert said(session, "yes | head -1; echo ${PIPESTATUS[0]}") == "y\n141\n"
    assert said(session, "pwd", cwd="/usr/lib") == "/usr/lib\n"


def test_the_environment_is_the_given_one_and_no_other(session: Session) -> None:
    names = {line.split("=")[0] for line in said(session, "env").split("\n")}
    assert names == {"COLOUR", "PATH", "HOME", "LANG", "PWD", "SHLVL", "_", ""}


def test_nothing_is_left_to_the_next_command_but_the_work_tree(session: Session) -> None:
    command = (
        "mkdir -p /tmp/d/e /dev/shm/d; ln -s / /tmp/l; echo 1 > /tmp/f; (sleep 60 &) ; export X=1; cd /; echo done"
    )
    assert said(session, command) == "done\n"
    assert said(session, "ls -A /tmp /dev/shm; echo $X $PWD") == "/dev/shm:\n\n/tmp:\n/testbed\n"
    assert "sleep" not in said(session, "cat /proc/[0-9]*/comm")


def test_processes_may_share_memory(session: Session) -> None:
    code = "import multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]), m.shared_memory.SharedMemory('a', True, 9).size)"
    assert "[1, 2]" in said(session, f'python3 -c "from multiprocessing import shared_memory; {code}" 2>/dev/null')


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_git_commits_and_shows_what_changed(session: Session) -> None:
    who = " ".join(f"-c user.{name}=a@b" for name in ("name", "email"))
    script = f"git init -q . && git add given && git {who} commit -qm first && echo two > given && git diff"
    assert "-here\n" in said(session, script)
    assert said(session, "git log --format=%s") == "first\n"


def test_the_work_tree_begins_with_a_copy_of_a_directory(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "run").write_text("#!/bin/sh\necho ran\n")
    (tree / "a" / "b" / "run").chmod(0o755)
    (tree / "a" / "b").chmod(0o500)
    (tmp_path / "outside").write_text("not copied")
    (tree / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tree / "pipe")
    tmp_path.chmod(0o700)
    with Session(tree, {"a/more": "m"}, timeout=10) as session:
        assert said(session, "a/b/run; cat a/more; ls; cat link 2>/dev/null; echo >> a/b/run") == "ran\nma\nlink\n"
    assert (tree / "a" / "b" / "run").read_text() == "#!/bin/sh\necho ran\n"
    assert not (tree / "a" / "more").exists()


def test_a_command_that_does_not_exist_says_so(session: Session) -> None:
    done = session.run(["nonesuch"])
    assert (done.code, done.output) == (127, b"No such file or directory\n")
    assert session.run(["true"], cwd="/none").output == b"No such file or directory\n"


# -- what ends it ----------------------------------------------------------------------------------------------------


def test_a_command_that_hangs_floods_or_hides_is_stopped_and_the_next_one_runs() -> None:
    with Session(timeout=1, keep=1000, most=100_000) as session:
        for command, reason in (
            ("echo begun; sleep 60", "it ran out of time (1 s)"),
            ("exec >&- 2>&-; sleep 60", "it ran out of time (1 s)"),
            ("yes", "it wrote more than 100000 bytes"),
            ("trap '' TERM; (setsid sleep 60 &) ; while :; do :; done", "it ran out of time (1 s)"),
        ):
            began = time.monotonic()
            done = session.run(["bash", "-c", command])
            assert done.stopped == reason
            assert len(done.output) <= 1000
            assert time.monotonic() - began < 30
            assert said(session, "echo on") == "on\n"
        assert session.run(["bash", "-c", "echo begun; sleep 60"]).output == b"begun\n"
        done = session.run(["bash", "-c", "seq 10000; exit 3"])
        assert (done.code, len(done.output), done.left_out, done.stopped) == (3, 1000, 47894, "")
        assert said(session, "sleep 1.2; echo later", timeout=20) == "later\n"


def test_another_thread_may_stop_a_command(session: Session) -> None:
    stopper = threading.Timer(0.5, session.stop)
    stopper.start()
    began = time.monotonic()
    done = session.run(["bash", "-c", "sleep 60"], timeout=60)
    assert (done.code, done.stopped) == (137, "")
    assert time.monotonic() - began < 30
    session.stop()  # nothing runs
    assert said(session, "echo on") == "on\n"


def test_closing_ends_all_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, open_files = leftovers(), len(list(Path("/proc/self/fd").iterdir()))
    with Session() as session:
        assert said(session, "(setsid sleep 60 &); echo 1") == "1\n"
        assert list(tmp_path.iterdir()) == []
    assert leftovers() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    with pytest.raises(InputError, match="is gone"):
        session.run(["true"])


def test_a_caller_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom radmoe_agent.session import Session\nsession = Session(timeout=60)\n"
        "print(session._helper.pid, flush=True)\nsession.run(['sleep', '50'])"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        helper = Path("/proc", process.stdout.readline().strip())
        time.sleep(0.3)
        process.kill()
    deadline = time.monotonic() + 20
    while helper.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not helper.exists()
    assert list(tmp_path.iterdir()) == []


# -- as whom ---------------------------------------------------------------------------------------------------------

WHO = """
from radmoe.errors import InputError
from radmoe_agent.session import Session
FORK = '''
import os, time
for n in range(300):
    try:
        if os.fork() == 0: time.sleep(60)
    except OSError: break
else: print("unlimited")
'''
try:
    with Session() as session:
        done = session.run(["bash", "-c", "id -u; touch made && echo made; python3 -c \\"$0\\"", FORK], timeout=15)
        print(done.output.decode().split())
except InputError as error:
    print(error)
"""


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, to give up rights")
@pytest.mark.parametrize(
    ("by", "answer"),
    [
        ("setpriv", r"\['21\d{8}', 'made'\]"),
        ("setpriv --bounding-set=-sys_admin", r"\['21\d{8}', 'made'\]"),
        ("setpriv --reuid=65534 --regid=65534 --clear-groups", r"\['65534', 'made'\]"),
        ("setpriv --reuid=65534 --regid=65534 --clear-groups unshare -r", r"\['65534', 'made'\]"),
        ("setpriv --bounding-set=-setuid", "no command runs as root, and this root has no right to become another"),
        ("unshare -r", "no command runs as root, and this user namespace has nobody else"),
    ],
)
def test_no_command_is_root_or_exceeds_its_processes_whoever_starts_it(by: str, answer: str) -> None:
    with readable_copy() as here:
        words = [*by.split(), "/usr/bin/python3", "-c", WHO]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", env={"PYTHONPATH": here}, timeout=100)
    assert re.search(answer, done.stdout), done


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_done_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none is no directory"):
        Session(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be shown to a command, which has a /tmp of its own"):
        Session(binds=["/usr", "/tmp/tools"])
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(InputError, match=r"its work tree cannot be made: .*large.*No space left on device"):
        Session(tmp_path, disk=1 << 20)
    deep = tmp_path / "deep"
    deep.mkdir()
    subprocess.run(
        [sys.executable, "-c", "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"], cwd=deep, check=True
    )
    try:
        with pytest.raises(InputError, match=r"its work tree cannot be made: .*(too long|too deep)"):
            Session(deep)
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)


def test_a_system_that_cannot_confine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS)
    with pytest.raises(InputError, match="commands cannot be run in confinement: pivot_root: Operation not permitted"):
        Session()
    without_filter(tmp_path, monkeypatch)
    with pytest.raises(InputError, match="there is no seccomp filter for"):
        Session()
