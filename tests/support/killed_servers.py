"""`radmoe serve --record`, killed again and again at any moment: what it answered is in the pool, and nothing there is wrong."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from radmoe import open_pool, select
from radmoe.pool import Pool
from radmoe.pool.schema import OPEN_JSON, POOL_JSON

MESSAGES = [{"role": "user", "content": "What is 2 plus 3?"}]
CLIENTS, ROLLOUTS = 4, 8
_START_SECONDS = 8.0  # that a server takes to open its pool and to listen, about


class Recorded:
    """A pool that servers record one after another, and the picks that clients were answered so far, by their ids."""

    def __init__(self, path: Path, upstream: str) -> None:
        self.path, self._upstream = path, upstream
        self.picks: dict[str, int] = {}
        self.unrecorded: list[str] = []
        self.kills = 0

    def serve_and_kill(self, *, answers: int = 0, seconds: float = 0.0, early: bool = False) -> int:
        """Serve four clients, and kill the server after these seconds and at least so many answers. Returns its peak bytes.

        The seconds begin when it listens or, with `early`, when it starts.
        """
        command = [sys.executable, "-m", "radmoe", "serve", "--port", "0", "--record", str(self.path)]
        process = subprocess.Popen(
            [*command, "--upstream", self._upstream], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        wanted, over, threads = len(self.picks) + answers, threading.Event(), list[threading.Thread]()
        try:
            if not early:
                url = process.stdout.readline().split()[3].rstrip(",")
                threads += [threading.Thread(target=self._ask, args=(url, over)) for _ in range(CLIENTS)]
                for thread in threads:
                    thread.start()
            time.sleep(seconds)
            end = time.monotonic() + 60
            while len(self.picks) < wanted and time.monotonic() < end:
                time.sleep(0.001)
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.kill()
            process.wait()
            over.set()
            for thread in threads:
                thread.join()
            process.stdout.close()
        assert len(self.picks) >= wanted
        self.kills += 1
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10

    def _ask(self, url: str, over: threading.Event) -> None:
        body: dict[str, Any] = {"model": f"planted#rad-{ROLLOUTS}", "messages": MESSAGES}
        while not over.is_set():
            try:
                answer = httpx.post(f"{url}/chat/completions", json=body, timeout=30).json()
            except (httpx.TransportError, json.JSONDecodeError):
                return  # it was killed
            if answer.get("radmoe", {}).get("recorded"):
                self.picks[answer["id"]] = answer["radmoe"]["pick"]
            else:
                self.unrecorded.append(json.dumps(answer))

    def wrong(self, path: Path) -> str:
        """What is wrong with the pool, or a copy of it, once it is recovered; empty where nothing is."""
        if self.unrecorded:
            return f"{len(self.unrecorded)} requests failed, or were not recorded: {self.unrecorded[0][:300]}"
        if not self.picks and not any((path / name).exists() for name in (OPEN_JSON, POOL_JSON)):
            return ""  # no server came as far as that
        if left_out := Pool.recover(path).dropped:
            return f"recovery left {len(left_out)} out: {left_out[0]}"
        pool = open_pool(path)
        if faults := pool.verify():
            return f"{len(faults)} faults: {faults[0]}"
        groups = {group.problem_id: group for group in pool.groups()}
        if lost := [each for each in self.picks if each not in groups or len(groups[each]) != ROLLOUTS]:
            return f"{len(lost)} of {len(self.picks)} answered groups are not there, or not whole: {lost[0]}"
        if other := [each for each, pick in self.picks.items() if select(groups[each]).index != pick]:
            return f"{len(other)} groups select another rollout than was answered: {other[0]}"
        short = [each for each, group in groups.items() if len(group) != ROLLOUTS]
        if len(groups) - len(self.picks) > CLIENTS * self.kills:
            return f"{len(groups)} groups, {len(self.picks)} answered, {self.kills} kills of {CLIENTS} clients' server"
        if {json.loads(extra)["n"] for extra in pool.runs(["extra"])["extra"].to_pylist()} - {ROLLOUTS}:
            return f"{len(short)} groups that were cut short do not say so"
        return ""


def kills(upstream: str, root: Path, count: int, seed: int = 0) -> Iterator[tuple[str, str, float, int]]:
    """Kill servers that record to one pool, one after another; for each its name, outcome, seconds of recovery and peak bytes.

    A quarter of them is killed before it listens, when it may be recovering what the last one left. What a kill leaves is
    looked at in a copy, so that the next server finds it as it is; every third one finds the recovered copy. The outcome
    begins with CRASH where something is wrong.
    """
    chance, made = random.Random(seed), Recorded(root / "pool", upstream)
    for number in range(count):
        early = number % 4 == 3
        after = chance.uniform(0.0, _START_SECONDS) if early else chance.uniform(0.0, 3.0)
        peak = made.serve_and_kill(seconds=after, early=early)
        copy, began = shutil.copytree(made.path, root / "copy"), time.monotonic()
        try:
            wrong = made.wrong(copy)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        spent = time.monotonic() - began
        if number % 3 == 2:
            shutil.rmtree(made.path)
            copy.rename(made.path)
        else:
            shutil.rmtree(copy)
        line = f"CRASH {wrong}" if wrong else f"well, {len(made.picks)} groups answered so far"
        yield (
            f"kill {number} of a recording server, {after:.2f} s after it {'starts' if early else 'listens'}",
            line,
            spent,
            peak,
        )
