"""`radmoe agent demo`: the lab's agent mends small repositories, RAD picks a patch of each, and hidden tests judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radmoe.system.printing import console, say

if TYPE_CHECKING:
    from radmoe_agent.patches import PatchDecision

MODEL = "lab-agent-qwen"
EXAMPLES = ("radmoe agent demo",)


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Where everything is written.")] = Path("out/demo-agent"),
    n: Annotated[int, typer.Option("-n", help="Trajectories per issue.")] = 8,
    limit: Annotated[int, typer.Option("--limit", help="Issues.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Another seed: other repositories and trajectories.")] = 0,
) -> None:
    """Run the lab's agent on this machine, select, compare.

    The agent is mini-swe-agent with a lab model, and the selection is by routing. Everything is real and local: the model (7M parameters, trained for this project), bash commands in a sandbox, the
    routing, the patches, the hidden tests. What was run already is not run again.
    """
    from radmoe_agent.candidates import read_candidates
    from radmoe_agent.commands.agent import run_command, select_command
    from radmoe_agent.instances import load_instances
    from radmoe_agent.patches import decide_all
    from radmoe_lab.agent.export import write_instances, write_verdicts
    from radmoe_lab.agent.repositories import repositories
    from radmoe_lab.agent.templates import CONFIG
    from radmoe_lab.agent.verdicts import judge_many

    place = out / f"n{n}-s{seed}-{limit}"
    issues, runs = place / "issues", place / "runs"
    tasks = repositories(seed=seed, limit=limit)
    write_instances(issues, tasks)
    run_command(MODEL, runs, issues, [issues / CONFIG.name], n, seed=seed)
    say("")
    select_command(runs, data=issues)
    known = {task.repository_id: task for task in tasks}
    candidates = read_candidates(runs)
    patches = {(name, one.run): one.patch for name, members in candidates.items() for one in members}
    jobs = max(1, len(os.sched_getaffinity(0)))
    judged = judge_many([(known[name], patch) for (name, _), patch in patches.items()], jobs=jobs)
    verdicts = dict(zip(patches, judged, strict=True))
    say("")
    labels = write_verdicts(place, verdicts)
    _table(list(decide_all(runs, instances=load_instances(issues))), verdicts, n)
    say("")
    say("Now try:")
    say(f"  .venv/bin/radmoe agent evaluate {runs} --labels {labels}")
    say(
        "  .venv/bin/radmoe lab agent --out build/agent      # 598 issues x 16, shipped: docs/agents.md has the results"
    )


def _table(decisions: list[PatchDecision], verdicts: dict[tuple[str, int], str], n: int) -> None:
    """Print the hidden tests' verdicts per issue, and the rates of a random, the shortest, the picked and the best trajectory."""
    from radmoe.system.screen import ScreenTable
    from radmoe_lab.agent.verdicts import NO_PATCH, RESOLVED

    table = ScreenTable(title=f"What the hidden tests say, {len(decisions)} issues x {n} trajectories", box=None)
    for heading in ("issue", "resolved", "RAD's pick", "its verdict", "fewest steps", "its verdict"):
        table.add_column(heading, justify="right" if heading == "resolved" else "left")
    rows: list[tuple[float, bool, bool]] = []  # share resolved, whether RAD's and the shortest are
    for one in decisions:
        name = one.instance_id
        right = [verdicts[name, c.run] == RESOLVED for c in one.candidates]
        usable = [c for c in one.candidates if c.problem is None]
        short = min(usable, key=lambda c: (c.steps or 0, c.run)).run if usable else None
        picks = [NO_PATCH if run is None else verdicts[name, run] for run in (one.run, short)]
        rows.append((sum(right) / len(right), picks[0] == RESOLVED, picks[1] == RESOLVED))
        shown = ["none" if run is None else f"run {run}" for run in (one.run, short)]
        table.add_row(name, f"{sum(right)} of {len(right)}", shown[0], picks[0], shown[1], picks[1])
    console().print(table)
    for title, kept in (("All", rows), ("Mixed", [row for row in rows if 0 < row[0] < 1])):
        if kept:
            average, rad, short_right = (100 * sum(column) / len(kept) for column in zip(*kept, strict=True))
            oracle = 100 * sum(row[0] > 0 for row in kept) / len(kept)
            say(
                f"{title} ({len(kept)} issues), percent resolved: a random trajectory {average:.0f}, fewest steps "
                f"{short_right:.0f}, RAD {rad:.0f}, oracle {oracle:.0f}"
            )
