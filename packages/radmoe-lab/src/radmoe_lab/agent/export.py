"""Repositories and verdicts as files that `radmoe agent` reads: `python -m radmoe_lab.agent.export --out DIR`.

DIR gets instances.jsonl, a line per repository with its issue and its files, and a copy of mini.yaml. With
`--trajectories FILE` it gets verdicts.jsonl too, a line per sampled trajectory; a FILE without verdicts gets them first.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from radmoe.errors import RadmoeError
from radmoe.problems import DEFAULT_SEED
from radmoe.system.printing import say
from radmoe_lab.agent.records import AgentTrajectory, judged, read_trajectories, write_trajectories
from radmoe_lab.agent.repositories import SIZE, BuggyRepository, repositories
from radmoe_lab.agent.templates import CONFIG
from radmoe_lab.agent.verdicts import RESOLVED, UNKNOWN

VISIBLE_TESTS = "python3 check.py"  # what the repositories ship, and the agent runs too


def write_instances(folder: Path, tasks: Iterable[BuggyRepository]) -> Path:
    """Write the instances of repositories, and mini-swe-agent's configuration, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "instance_id": task.repository_id,
            "problem_statement": task.issue,
            "files": task.files,
            "visible_tests": VISIBLE_TESTS,
        }
        for task in tasks
    ]
    (folder / CONFIG.name).write_text(CONFIG.read_text())
    return _write(folder / "instances.jsonl", rows)


def write_verdicts(folder: Path, verdicts: Mapping[tuple[str, int], str]) -> Path:
    """Write the verdicts on trajectories, by repository and number."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"instance_id": name, "run": run, "resolved": one == RESOLVED} for (name, run), one in verdicts.items()]
    return _write(folder / "verdicts.jsonl", rows)


def verdicts_of(trajectories: Iterable[AgentTrajectory]) -> dict[tuple[str, int], str]:
    """Return the verdict on every trajectory, by repository and number."""
    return {(one.repository_id, one.number): one.verdict for one in trajectories}


def _with_verdicts(path: Path) -> list[AgentTrajectory]:
    """Read the trajectories of a file. If they were not judged yet, judge them and write the file again."""
    header, trajectories = read_trajectories(path)
    if any(one.verdict == UNKNOWN for one in trajectories):
        last = 1 + max(int(name.rpartition("-")[2]) for name in header["repositories"])
        tasks = repositories(seed=header["seed"], limit=last)
        trajectories = judged(trajectories, tasks, jobs=len(os.sched_getaffinity(0)))
        write_trajectories(path, header, trajectories)
    return trajectories


def _write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    say(f"{path}: {len(rows):,} lines")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m radmoe_lab.agent.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--limit", type=int, default=SIZE, help="only so many repositories")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the repositories")
    parser.add_argument(
        "--trajectories", type=Path, help="a file of radmoe_lab.agent.sample, whose verdicts are wanted"
    )
    options = parser.parse_args(arguments)
    try:
        write_instances(options.out, repositories(seed=options.seed, limit=options.limit))
        if options.trajectories is not None:
            write_verdicts(options.out, verdicts_of(_with_verdicts(options.trajectories)))
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
