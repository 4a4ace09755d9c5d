"""`radmoe merge` makes one pool of the pools of several workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json, pool_path
from radmoe.system.printing import bar, say, say_json

EXAMPLES = (
    "radmoe merge worker-1/ worker-2/ --out pool/",
    "radmoe capture --model lab-qwen --task math-2 --part 1/2 --out worker-1/",
)


def command(
    pools: Annotated[
        list[Path], typer.Argument(metavar="POOL...", help="Complete pools.", show_default=False, parser=pool_path)
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The new pool's directory or URL.", parser=pool_path, metavar="PATH")
    ],
    as_json: Json = False,
) -> None:
    """Merge the pools of several workers into one.

    The pools are complete, of the same model, task, settings and tokenizer, and no rollout is in two of them. Shards are linked, or copied where links are not possible; none is rewritten. Labels are not merged.
    """
    from radmoe.pool import merge_pools
    from radmoe.pool.reader import manifest

    shards = sum(len(manifest(pool)["shards"]) for pool in pools)
    with bar("merging", "shards", total=shards) as update:
        merged = merge_pools(pools, out, progress=update)
    facts = {"pool": str(out), "pools": len(pools), "problems": len(merged.problems), "rollouts": len(merged)}
    if as_json:
        say_json(facts)
        return
    say(
        f"{out}: {len(pools)} pools, {len(merged.problems):,} problems, {len(merged):,} rollouts, {shards} shards; "
        f"labels were not merged: radmoe grade {out}"
    )
