"""The lines and tables that `radmoe agent` prints about runs, unusable trajectories and decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.system.printing import console, say

if TYPE_CHECKING:
    from radmoe_agent.patches import PatchDecision
    from radmoe_agent.run import AgentRun

MOST_LINES = 20  # about trajectories that cannot be submitted


def run_line(done: AgentRun) -> str:
    line = (
        f"{done.directory}: {done.instances:,} issues x {done.trajectories // done.instances} trajectories, "
        f"{done.ran:,} of them run now in {done.steps:,} steps, {done.submitted:,} submitted"
    )
    if done.lost:
        line += f", {done.lost:,} left no routing"
    if done.failure is not None:
        line += f" ({done.failure}; run the same command to try again)"
    return line


def say_problems(directory: Path) -> None:
    """Print a line for every trajectory that cannot be submitted, up to a screenful."""
    from radmoe_agent.candidates import CANDIDATES, read_candidates

    every = [(name, one) for name, members in read_candidates(directory).items() for one in members]
    lines = [f"radmoe: {name}, run {one.run}: {one.problem}" for name, one in every if one.problem is not None]
    for line in lines[:MOST_LINES]:
        say(line, err=True)
    if len(lines) > MOST_LINES:
        say(f"radmoe: and {len(lines) - MOST_LINES:,} more, all in {directory / CANDIDATES}", err=True)


def show_decisions(decisions: list[PatchDecision]) -> None:
    from radmoe.system.screen import ScreenTable

    first: Any = decisions[0] if decisions else None
    title = "" if first is None else str(first.setting)
    table = ScreenTable(title=title, box=None)
    table.add_column("issue")
    for heading in ("candidates", "usable", "pick", "density", "steps", "boundaries", "patch lines"):
        table.add_column(heading, justify="right")
    for one in decisions:
        usable = sum(c.problem is None for c in one.candidates)
        counts = (str(len(one.candidates)), str(usable))
        pick = next((c for c in one.candidates if c.run == one.run), None)
        if pick is None:
            table.add_row(one.instance_id, *counts, "none", "", "", "", "0", style="yellow")
            continue
        mean = "-" if pick.density is None else f"{pick.density:.3f}"
        facts = ("-" if fact is None else str(fact) for fact in (pick.steps, pick.boundaries))
        table.add_row(one.instance_id, *counts, str(pick.run), mean, *facts, str(pick.patch_lines))
    console().print(table)
