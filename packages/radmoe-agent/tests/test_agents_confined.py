"""Commands of an agent reach nothing but the directory of their instance, and end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

from crippled import NO_MOUNTS, cripple
from leftovers import leftovers
from radmoe.errors import EngineError
from radmoe_agent.candidates import read_candidates
from radmoe_agent.confined import ConfinedEnvironment, check_confinement, stop_commands
from scripted_agents import BUG, SUBMIT, run_script, step


@pytest.fixture(scope="module")
def place() -> Iterator[ConfinedEnvironment]:
    made = ConfinedEnvironment(files=BUG, timeout=10, memory_mb=256, disk_mb=4)
    yield made
    made.cleanup()


def test_the_repository_has_one_commit_and_is_where_it_always_is(place: ConfinedEnvironment) -> None:
    said = place.execute({"command": "pwd; git log --oneline | wc -l; git status --short; cat sums.py"})
    assert said["output"] == "/testbed\n1\n" + BUG["sums.py"]


@pytest.mark.parametrize(
    "command",
    [
        "touch /x",
        "touch /usr/x",
        "echo x > ../x",
        "mkdir /root",
        "ls /root",
        "ls /home",
        "cat /etc/passwd",
        "(echo > /dev/tcp/127.0.0.1/22)",
        "ip link show eth0",
        "python3 -c 'bytearray(10**9)'",
        "head -c 5000000 /dev/zero > large",
        "kill -9 $PPID; test -e /proc/2000000",
        "test $(id -u) = 0",
        "mount -o remount,rw,bind /usr",
        "echo x > /proc/sys/kernel/core_pattern",
        "head -c 100000000 /dev/zero > /dev/shm/large",
    ],
)
def test_a_command_cannot_leave_its_directory_or_its_limits(place: ConfinedEnvironment, command: str) -> None:
    assert place.execute({"command": command})["returncode"] != 0


def test_a_command_sees_no_environment_of_ours(place: ConfinedEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "value")
    assert "SECRET_OF_OURS" not in place.execute({"command": "env"})["output"]


def test_a_command_that_hangs_is_stopped_with_all_that_it_began() -> None:
    place = ConfinedEnvironment(files=BUG, timeout=1)
    began = time.monotonic()
    said = place.execute({"command": "(sleep 300; touch late) & echo first; sleep 300"})
    assert time.monotonic() - began < 60
    assert (said["output"], said["returncode"]) == ("first\n", -1)
    assert said["exception_info"] == "The command was stopped: it ran out of time (1 s)."
    assert place.serialize()["info"]["timeouts"] == 1
    assert place.execute({"command": "ls; cat /proc/[0-9]*/comm | grep -c sleep"})["output"] == "sums.py\n0\n"
    place.cleanup()


def test_commands_under_way_can_be_ended(place: ConfinedEnvironment) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.execute, {"command": "sleep 300"}, timeout=200)
        while not running.done():
            stop_commands()
            time.sleep(0.1)
        assert running.result(60)["returncode"] == 137
    assert place.timeouts == 0


def test_a_closed_environment_runs_nothing_and_leaves_nothing() -> None:
    before = leftovers()
    place = ConfinedEnvironment(files=BUG)
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    assert place.execute({"command": f'python3 -c "{deep}" && chmod 000 d'})["returncode"] == 0
    place.cleanup()
    assert leftovers() == before
    with pytest.raises(EngineError, match="this environment is closed"):
        place.execute({"command": "true"})


def test_a_repository_that_does_not_fit_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(EngineError, match=r"No space left on device.*: set disk_mb under environment in --config"):
        ConfinedEnvironment(repository=str(tmp_path), disk_mb=1)
    with pytest.raises(EngineError, match="none is no directory"):
        ConfinedEnvironment(repository=str(tmp_path / "none"))


def test_endless_output_is_cut(place: ConfinedEnvironment) -> None:
    said = place.execute({"command": "yes"})
    assert len(said["output"]) < 300_000
    assert "more bytes were left out]" in said["output"]
    assert said["exception_info"].startswith("The command was stopped: it wrote more than")
    said = place.execute({"command": "seq 100000; exit 3"})
    assert said["output"].endswith("\n[388895 more bytes were left out]\n")
    assert (said["returncode"], said["exception_info"]) == (3, "")


@pytest.mark.slow
def test_an_agent_whose_command_hangs_goes_on_and_the_candidate_says_so(tmp_path: Path) -> None:
    run_script(tmp_path, {"one": [[step("echo 1 >> sums.py; sleep 300"), step(SUBMIT)]]}, command_seconds=1)
    (one,) = read_candidates(tmp_path)["one"]
    assert one.usable
    assert one.notes == ("1 commands were stopped",)


def test_a_machine_that_cannot_confine_commands_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_confinement()
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS)
    with pytest.raises(EngineError) as refused:
        check_confinement()
    assert str(refused.value).startswith(
        "an agent's commands cannot be confined here: commands cannot be run in confinement: pivot_root: Operation not "
        "permitted; this needs Linux"
    )


def test_a_machine_without_git_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radmoe_agent.confined._FIRST_COMMIT", "no-git init")
    with pytest.raises(EngineError, match="the first commit of a repository failed"):
        check_confinement()
