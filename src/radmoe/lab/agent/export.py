"""Repositories and verdicts as files that `radmoe agent` reads: `python -m radmoe.lab.agent.export --out DIR`.

DIR gets instances.jsonl, a line per repository with its issue and its files, and a copy of mini.yaml. With
`--trajectories FILE` it gets verdicts.jsonl too, a line per sampled trajectory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from radmoe.errors import RadmoeError
from radmoe.lab.agent.records import AgentTrajectory, read_trajectories
from radmoe.lab.agent.repositories import SIZE, Repository, repositories
from radmoe.lab.agent.templates import CONFIG
from radmoe.lab.agent.verdicts import RESOLVED, UNKNOWN
from radmoe.printing import say
from radmoe.problems import DEFAULT_SEED


def write_instances(folder: Path, tasks: Iterable[Repository]) -> Path:
    """Write the instances of repositories, and mini-swe-agent's configuration, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"instance_id": task.repository_id, "problem_statement": task.issue, "files": task.files} for task in tasks]
    (folder / CONFIG.name).write_text(CONFIG.read_text())
    return _write(folder / "instances.jsonl", rows)


def write_verdicts(folder: Path, trajectories: Iterable[AgentTrajectory]) -> Path:
    """Write the verdicts on trajectories; those that were not judged are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"instance_id": one.repository_id, "run": one.number, "resolved": one.verdict == RESOLVED}
        for one in trajectories
        if one.verdict != UNKNOWN
    ]
    return _write(folder / "verdicts.jsonl", rows)


def _write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    say(f"{path}: {len(rows):,} lines")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m radmoe.lab.agent.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--limit", type=int, default=SIZE, help="only so many repositories")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of the repositories")
    parser.add_argument(
        "--trajectories", type=Path, help="a file of radmoe.lab.agent.sample, whose verdicts are wanted"
    )
    options = parser.parse_args(arguments)
    try:
        write_instances(options.out, repositories(seed=options.seed, limit=options.limit))
        if options.trajectories is not None:
            write_verdicts(options.out, read_trajectories(options.trajectories)[1])
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
