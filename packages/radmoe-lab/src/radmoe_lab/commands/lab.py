"""`radmoe lab`: the rollouts and trajectories that ship with the lab's models, as a list, as pools and as results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radmoe.cli.common import Json, size
from radmoe.errors import InputError
from radmoe.system.printing import bar, console, say, say_json

if TYPE_CHECKING:
    from radmoe_lab.archive.pools import BuiltPool, PoolBuilder, WantedPool

HEADING = "Research"
HELP = "List the lab's shipped rollouts, and make pools of them."
EXAMPLES = (
    "radmoe lab list",
    "radmoe lab pools --out pools/ --limit 12",
    "radmoe lab pools --out pools/ --config lab-oss-high --task math-1 --task code",
    "radmoe lab pools --out fresh/ --sampling hot --seed 31",
    "radmoe evaluate pools/lab-qwen-thinking-*",
    "radmoe lab agent --out agent/",
)

Rollouts = Annotated[
    Path | None,
    typer.Option("--rollouts", help="A directory of packed rollouts.", show_default="that of radmoe-lab"),
]

Seed = Annotated[
    int,
    typer.Option(
        "--seed", help="Of the problems: 0 for the published ones; with --sampling hot 31, 32 and 33 for fresh ones."
    ),
]

Sampled = Annotated[
    str,
    typer.Option("--sampling", help="paper: temperature 0.7, top-p 0.9. hot: temperature 0.7 to 0.8, from all tokens."),
]


def list_command(rollouts: Rollouts = None, seed: Seed = 0, sampling: Sampled = "paper", as_json: Json = False) -> None:
    """List the configurations (a model in one style) whose rollouts are packed, and their tasks."""
    from radmoe.system.screen import ScreenTable
    from radmoe_lab.archive.files import open_archive

    archive = open_archive(rollouts, seed=seed, sampling=sampling)
    if as_json:
        say_json(archive.configurations)
        return
    table = ScreenTable(title=f"{archive.directory}: rollouts sampled with their shipped models", box=None)
    for heading in ("configuration", "task"):
        table.add_column(heading)
    for heading in ("T", "top-p", "problems", "n", "tokens", "Avg"):
        table.add_column(heading, justify="right")
    for name, entry in archive.configurations.items():
        for task, counts in entry["tasks"].items():
            drawn = entry["sampling"]
            numbers = (f"{drawn['temperature']:g}", f"{drawn['top_p']:g}", f"{counts['problems']:,}", f"{entry['n']}")
            table.add_row(name, task, *numbers, f"{counts['tokens']:,}", f"{counts['right'] / counts['rollouts']:.1%}")
    console().print(table)


def pools_command(
    out: Annotated[Path, typer.Option("--out", help="The directory of the pools, which are named CONFIG-TASK.")],
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", help="A model and a style, such as lab-qwen-thinking; may repeat.", show_default="all"
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="A task of the lab's; may repeat.", show_default="all")
    ] = None,
    n: Annotated[int | None, typer.Option("-n", help="Rollouts per problem.", show_default="all, 64")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems of each task.")] = None,
    rollouts: Rollouts = None,
    seed: Seed = 0,
    sampling: Sampled = "paper",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", help="CPU cores to use.", show_default="all")] = None,
    as_json: Json = False,
) -> None:
    """Turn shipped rollouts into graded pools.

    Routing and log-probabilities are computed again by replay, and labels come along. What is there already is not done again, so the same command goes on after an interrupt, and a larger -n or --limit
    adds what is missing. A pool whose log-probabilities or expert sets are not those of the GPU that sampled is left
    under the name CONFIG-TASK.unchecked.
    """
    from radmoe_lab.archive.files import open_archive
    from radmoe_lab.archive.pools import PoolBuilder

    builder = PoolBuilder(open_archive(rollouts, seed=seed, sampling=sampling), out, device=device, threads=threads)
    wanted = builder.wanted(config or (), task or (), n=n, limit=limit)
    with bar("measuring"):
        left = builder.estimate(wanted)
    if left:
        rollouts_left, tokens, seconds, disk_bytes = (sum(column) for column in zip(*left.values(), strict=True))
        say(
            f"radmoe: {rollouts_left:,} rollouts ({tokens:,} tokens) are to be replayed into {len(left)} pools: about "
            f"{_duration(seconds)} and {size(disk_bytes)}",
            err=True,
        )
    built = []
    for pool in wanted:
        remainder = left.pop(pool, None)
        later = sum(other.seconds for other in left.values())
        built.append(_build(builder, pool, remainder.seconds / max(remainder.rollouts, 1) if remainder else 0.0, later))
        if not as_json:
            say(built[-1])
    if as_json:
        say_json([pool.facts() for pool in built])


def agent_command(
    out: Annotated[Path, typer.Option("--out", help="The directory of the pool, the verdicts and the results.")],
    model: Annotated[str, typer.Option("--model", help="An agent of the lab's.")] = "lab-agent-qwen",
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first issues.")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", help="CPU cores to use.", show_default="all")] = None,
) -> None:
    """Turn an agent's shipped trajectories into results.

    The trajectories are replayed, joined with the hidden tests' verdicts, and analysed by study 28. What is replayed already is not replayed again. Everything is in --out: runs/ as radmoe agent import makes it (with
    the routing of every token), verdicts.jsonl, and results/ with tables and figures.
    """
    try:
        from radmoe_agent.commands.agent import import_command
        from radmoe_studies.commands.agent import evaluate_command
    except ImportError:
        raise InputError(
            "radmoe lab agent imports with radmoe-agent and ends with study 28, which is in radmoe-studies: "
            "pip install radmoe-agent radmoe-studies"
        ) from None
    from radmoe_lab.agent.export import verdicts_of, write_verdicts
    from radmoe_lab.agent.records import read_trajectories
    from radmoe_lab.models import shipped_trajectories

    source = shipped_trajectories(model)
    import_command([source], model, out / "runs", limit=limit, every_row=True, device=device, threads=threads)
    header, trajectories = read_trajectories(source)
    names = set(header["repositories"][:limit])
    verdicts = write_verdicts(out, verdicts_of(one for one in trajectories if one.repository_id in names))
    evaluate_command(out / "runs", verdicts, out=out / "results")


def _build(builder: PoolBuilder, pool: WantedPool, seconds_each: float, later: float) -> BuiltPool:
    """Build a pool with a bar, which also shows the time left, including `later` seconds for the pools that follow."""

    def left(done: int) -> str:
        return f"{_duration((pool.rollouts - done) * seconds_each + later)} left in all"

    with bar(pool.path.name, total=pool.rollouts) as update:
        return builder.build(pool, lambda done, total: update(done, total, note=left(done)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
