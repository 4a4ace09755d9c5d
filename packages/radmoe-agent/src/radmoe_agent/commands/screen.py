"""The lines and tables that `radmoe agent` prints about runs, unusable trajectories and decisions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.system.printing import console, say

if TYPE_CHECKING:
    from radmoe_agent.patches import PatchDecision
    from radmoe_agent.run import AgentRun

MOST_LINES = 20  # about trajectories that cannot be submitted
LONGER = "use a model with a longer context, or shorter prompts (--config)"


def run_line(done: AgentRun) -> str:
    from radmoe_agent.candidates import OVERFLOW

    line = (
        f"{done.directory}: {done.instances:,} issues x {done.trajectories // done.instances} trajectories, "
        f"{done.ran:,} of them run now, {done.steps:,} steps, {done.submitted:,} submitted"
    )
    if done.lost:
        line += f", {done.lost:,} left no routing"
    if done.failure is not None:
        long = done.failure.startswith(OVERFLOW)
        line += f" ({done.failure}; {LONGER if long else 'run the same command to try again'})"
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
    """Print every decision on a line, and how many trajectories were ruled out before anything was chosen."""
    from radmoe.system.screen import ScreenTable

    if not decisions:
        return
    routing = f" ({decisions[0].setting})" if "rad" in decisions[0].method.split("+") else ""
    table = ScreenTable(title=f"Picked by {decisions[0].method}{routing}", box=None)
    table.add_column("issue", no_wrap=True)
    for heading in ("trajectories", "usable", "patches", "pick", "left it", "steps", "lines"):
        table.add_column(heading, justify="right")
    for one in decisions:
        usable = [c for c in one.candidates if c.problem is None]
        counts = (len(one.candidates), len(usable), len({c.same for c in usable}))
        pick = next((c for c in usable if c.run == one.run), None)
        if pick is None:
            table.add_row(one.instance_id, *map(str, counts), "none", "", "", "0", style="yellow")
            continue
        steps = "-" if pick.steps is None else str(pick.steps)
        shared = f"{len(pick.same)} of {len(usable)}"
        table.add_row(one.instance_id, *map(str, counts), str(pick.run), shared, steps, str(pick.patch_lines))
    console().print(table)
    say(_left(decisions))


def _left(decisions: list[PatchDecision]) -> str:
    """How many trajectories can be submitted, and why the others cannot."""
    every = [c for one in decisions for c in one.candidates]
    reasons = Counter(c.problem.partition(" (")[0] for c in every if c.problem is not None)
    line = f"{len(every) - reasons.total():,} of {len(every):,} trajectories can be submitted"
    return line + "".join(f"; {count:,}: {reason}" for reason, count in reasons.most_common(5))
