"""What strangers can do: malformed pools and journals, servers that misbehave, and hostile commands and patches of an agent.

`python -m benchmarks.hardening` prints a table: no traceback, no hang over 15 s, no process over 1 GB, no byte written
outside the pool, no command that leaves its confinement or exceeds its limits, as root or as a user, and nothing that a
kill loses or leaves behind. `--thorough` spoils every field in every way, which takes an hour. `--fuzz SECONDS` changes
pools, journals, labels, answers, questions and a server's answers at random instead, from a seed, until the time is over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from forked_runs import Outcome, place, run, warm
from malformed_files import malformed_files, run_files
from malformed_journals import malformed_journals, run_journal
from malformed_pools import malformed_pools, run_pool

Case = tuple[str, dict[str, Outcome]]  # its name, and what each command made of it


def pools(thorough: bool) -> Iterator[Case]:
    for name, spoil in malformed_pools(thorough=thorough).items():
        yield name, run_pool(name, spoil)


def files() -> Iterator[Case]:
    for name, case in malformed_files().items():
        yield name, run_files(case)


def journals() -> Iterator[Case]:
    for name, change in malformed_journals().items():
        yield name, run_journal(change)


def servers() -> Iterator[Case]:
    from server_misbehaviours import CASES, expect, prepare  # not before: torch in memory would count in every process

    prepare()
    for name, case in CASES.items():
        with place() as where:
            yield name, {"capture": run(where, partial(expect, case))}


def commands() -> Iterator[Case]:
    from hostile_commands import HOSTILE, run_as, users

    for user in users():
        for name, line, seconds, peak in run_as(user, HOSTILE):
            yield name, {f"as {user}": Outcome(line, seconds, peak)}


def gateway() -> Iterator[Case]:
    """Fuzzed requests, slow clients and hostile upstreams; the peak is that of the gateway's process."""
    import tiny_moe
    from hostile_clients import attacks
    from planted_upstream import save_checkpoint

    with place() as where:
        tiny = tiny_moe.save(where.root / "tiny", chat=True)
        for name, line, seconds, peak in attacks(save_checkpoint(where.root / "planted"), tiny):
            yield name, {"serve": Outcome(line, seconds, peak)}


def server_kills() -> Iterator[Case]:
    """A gateway that records is killed 20 times while clients ask; the seconds are those of recovery."""
    from killed_servers import kills
    from planted_upstream import PlantedUpstream, save_checkpoint

    with place() as where, PlantedUpstream(save_checkpoint(where.root / "planted")).running() as server:
        for name, line, seconds, peak in kills(server.url, where.root, 20):
            yield name, {"serve": Outcome(line, seconds, peak)}


def kills() -> Iterator[Case]:
    """Commands that write are killed 20 times each and run again; a process of its own forks them."""
    command = [sys.executable, str(Path(__file__).parent.parent / "tests" / "support" / "killed_runs.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, *outcome = json.loads(line)
            yield name, {"run again": Outcome(*outcome)}
    if process.returncode:
        yield "all of them", {"run again": Outcome(f"CRASH {process.returncode}", 0.0, 0)}


def patches() -> Iterator[Case]:
    """10,000 fuzzed patches of a repository whose links and paths lead out of it, applied without any confinement."""
    import random

    from patch_fuzz import Place, check, fuzzed

    rng = random.Random(0)
    with place() as where:
        tree = Place(where.root / "tree")
        before = tree.state()
        for number in range(10_000):
            began = time.monotonic()
            try:
                line = check(fuzzed(rng), tree, before)
            except AssertionError as error:
                line = f"ESCAPED {error}"
                tree.reset()
            yield f"patch {number}", {"apply_patch": Outcome(line, time.monotonic() - began, 0)}


def report(title: str, cases: Iterable[Case], *, every: bool = False) -> int:
    """Print one line of the table, and one for each case that broke a condition. Returns how many did."""
    started = time.monotonic()
    count = broken = refusals = 0
    slowest, largest = 0.0, 0
    for name, outcomes in cases:
        count += 1
        for command, outcome in outcomes.items():
            refusals += outcome.line.startswith("refused")
            slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.peak_bytes)
            if every:
                print(
                    f"  {name} | {command} | {outcome.line[:160]} | {outcome.seconds:.1f} s | {outcome.peak_bytes >> 20} MB"
                )
            if (rule := outcome.broken_rule) is not None:
                broken += 1
                print(f"  BROKEN {name} | {command} | {rule[:300]}", flush=True)
    spent = time.monotonic() - started
    print(
        f"| {title} | {count} | {refusals} | {broken} | {slowest:.1f} s | {largest >> 20} MB | {spent:.0f} s |",
        flush=True,
    )
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help="rows of the table, such as gateway; all without it")
    parser.add_argument("--thorough", action="store_true", help="spoil every field in every way")
    parser.add_argument("--every", action="store_true", help="print the outcome of every command")
    parser.add_argument("--fuzz", type=float, metavar="SECONDS", help="change things at random for so long instead")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warm()
    print("| cases | number | refusals | broken conditions | slowest | largest process | time |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    if arguments.fuzz:
        from fuzzed_pools import fuzz

        return report("fuzzed", fuzz(arguments.seed, arguments.fuzz), every=arguments.every)
    parts: dict[str, Callable[[], Iterator[Case]]] = {
        "pools": partial(pools, arguments.thorough),
        "journals": journals,
        "files": files,
        "commands": commands,
        "patches": patches,
        "servers": servers,
        "gateway": gateway,
        "server_kills": server_kills,
        "kills": kills,
    }
    if unknown := set(arguments.parts) - parts.keys():
        parser.error(f"there is no part {min(unknown)}: {', '.join(parts)}")
    chosen = arguments.parts or parts
    return sum(report(name, parts[name](), every=arguments.every) for name in chosen)


if __name__ == "__main__":
    raise SystemExit(bool(main()))
