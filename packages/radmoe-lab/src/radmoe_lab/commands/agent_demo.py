"""`radmoe agent demo`: the lab's agent mends small repositories, one patch of each is picked, and hidden tests judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from radmoe.system.printing import console, say
from radmoe_lab.commands import say_next_steps

MODEL = "lab-agent-qwen"
EXAMPLES = ("radmoe agent demo",)


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Where everything is written.")] = Path("out/demo-agent"),
    n: Annotated[int, typer.Option("-n", help="Trajectories per issue.")] = 8,
    limit: Annotated[int, typer.Option("--limit", help="Issues.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Another seed: other repositories and trajectories.")] = 0,
) -> None:
    """Run the lab's agent on this machine, select, compare.

    The agent is mini-swe-agent with a lab model. Everything is real and local: the model (7M parameters, trained for this project), bash commands in a sandbox, the
    routing, the patches, the hidden tests. What was run already is not run again. At the end stands what choosing was worth on all 598 issues of the lab, which is a
    committed result and not computed here.
    """
    from dataclasses import replace

    from radmoe.evaluation.screen import show_table
    from radmoe.pool import open_pool
    from radmoe.report.explorer import table_block
    from radmoe_agent.candidates import POOL, read_candidates
    from radmoe_agent.commands.agent import run_command, select_command
    from radmoe_agent.page import PAGE, write_page
    from radmoe_agent.page.write import read_records
    from radmoe_agent.patches import RECORDS
    from radmoe_lab.agent.comparison import JudgedIssue, compare, read_committed
    from radmoe_lab.agent.export import write_instances, write_verdicts
    from radmoe_lab.agent.repositories import repositories
    from radmoe_lab.agent.templates import CONFIG
    from radmoe_lab.agent.verdicts import RESOLVED, judge_many

    place = out / f"n{n}-s{seed}-{limit}"
    issues, runs = place / "issues", place / "runs"
    tasks = repositories(seed=seed, limit=limit)
    write_instances(issues, tasks)
    run_command(MODEL, runs, data=issues, config=[issues / CONFIG.name], n=n, seed=seed)
    say("")
    select_command(runs, data=issues)
    known = {task.repository_id: task for task in tasks}
    candidates, pool = read_candidates(runs), open_pool(runs / POOL)
    patches = {(name, one.run): one.patch for name, members in candidates.items() for one in members}
    jobs = max(1, len(os.sched_getaffinity(0)))
    judged = judge_many([(known[name], patch) for (name, _), patch in patches.items()], jobs=jobs)
    verdicts = dict(zip(patches, judged, strict=True))
    say("")
    labels = write_verdicts(place, verdicts)
    own = compare(
        JudgedIssue(
            members,
            replace(pool.group(name), kind="agent") if name in pool.kinds else None,
            {one.run: verdicts[name, one.run] for one in members},
        )
        for name, members in candidates.items()
    )
    if own.rows:
        show_table(own, console())
        say(
            "Where the last interval of a row has 0 in it, so few issues do not tell the method from a random pick: at full "
            "size, below, there are more."
        )
    else:
        say(
            "Fewer than two issues are mixed, so nothing can be compared: try another --seed, or a higher --limit or -n"
        )
    say("")
    say_next_steps(
        f"agent evaluate {runs} --labels {labels}",
        f"report {runs} --out {place / 'routing.html'}",
        "lab agent --out build/agent  # all 598 issues: 20 minutes on two cores",
    )
    say("")
    full = read_committed()
    title = f"At full size: {full.title} (a committed result, which python -m radmoe_lab.agent.comparison makes again)"
    show_table(replace(full, title=title), console())
    say(
        "It says: leave out what cannot be submitted first, and pick by the patches' text, the default, among the rest. Routing (rad) "
        "gains less here, where right patches are nearly all the same line; where they differ more it may be otherwise: docs/agents.md."
    )
    resolved = {key: one == RESOLVED for key, one in verdicts.items()}
    tables = [table_block(table) for table in ([own] if own.rows else []) + [replace(full, title=title)]]
    write_page(runs, read_records(runs / RECORDS), runs / PAGE, verdicts=resolved, tables=tables)
    say("")
    say(f"Look inside: open {runs / PAGE} in a browser. It says of every issue which patch was picked, and why.")
