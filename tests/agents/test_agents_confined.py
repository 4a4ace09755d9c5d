"""Commands of an agent reach nothing but the directory of their instance, and end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

from scripted_agents import BUG, SUBMIT, run_script, step

from radmoe.agents.candidates import read_candidates
from radmoe.agents.confined import ConfinedEnvironment, check_confinement, stop_commands
from radmoe.errors import EngineError


@pytest.fixture(scope="module")
def place() -> Iterator[ConfinedEnvironment]:
    made = ConfinedEnvironment(files=BUG, timeout=10, memory_mb=256, file_mb=1)
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
    assert said["exception_info"] == "The command was stopped after 1 seconds."
    assert place.serialize()["info"]["timeouts"] == 1
    assert not list(Path(place.working_dir).glob("late"))
    place.cleanup()


def test_commands_under_way_can_be_ended(place: ConfinedEnvironment) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.execute, {"command": "echo begun > begun; sleep 300"}, timeout=200)
        deadline = time.monotonic() + 60
        while not (place.working_dir / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        stop_commands()
        assert running.result(60)["returncode"] != 0
    assert place.timeouts == 0


def test_endless_output_is_cut(place: ConfinedEnvironment) -> None:
    said = place.execute({"command": "yes"})
    assert len(said["output"]) < 300_000
    assert "more bytes were left out]" in said["output"]


def test_an_agent_whose_command_hangs_goes_on_and_the_candidate_says_so(tmp_path: Path) -> None:
    run_script(tmp_path, {"one": [[step("echo 1 >> sums.py; sleep 300"), step(SUBMIT)]]}, command_seconds=1)
    (one,) = read_candidates(tmp_path)["one"]
    assert one.usable
    assert one.notes == ("1 commands were stopped",)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"executable": "no-such-program"}, "no-such-program cannot be started (No such file or directory)"),
        ({"executable": "false"}, "the first commit of a repository failed (no reason given)"),
    ],
)
def test_a_machine_that_cannot_confine_commands_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(EngineError) as refused:
        check_confinement(**options)
    assert str(refused.value) == (
        f"an agent's commands cannot be confined here: {reason}; install bubblewrap and git, and allow user namespaces"
    )
    check_confinement()
