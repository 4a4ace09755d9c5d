"""`radmoe merge` makes one pool of the pools of several workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json, console

EXAMPLES = (
    "radmoe merge worker-1/ worker-2/ --out pool/",
    "radmoe capture --model lab-qwen --task math-2 --part 1/2 --out worker-1/",
)


def command(
    pools: Annotated[list[Path], typer.Argument(metavar="POOL...", help="Complete pools.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The new pool's directory.")],
    as_json: Json = False,
) -> None:
    """Merge complete pools of one run: same model, task, settings and tokenizer, and no rollout in two of them.

    Shards are linked, or copied where links are not possible; none is rewritten. Labels are not merged.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from radmoe.pool import merge_pools
    from radmoe.pool.reader import manifest

    shards = sum(len(manifest(pool)["shards"]) for pool in pools)
    screen = console(stderr=True)
    columns = (TextColumn("merging"), BarColumn(), MofNCompleteColumn(), TextColumn("shards"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("merging", total=shards)
        merged = merge_pools(pools, out, progress=lambda done: bar.update(work, completed=done))
    facts = {"pool": str(out), "pools": len(pools), "problems": len(merged.problems), "rollouts": len(merged)}
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(
        f"{out}: {len(pools)} pools, {len(merged.problems):,} problems, {len(merged):,} rollouts, {shards} shards; "
        f"labels were not merged: radmoe grade {out}"
    )
