"""`radmoe verify` checks whether every byte of a pool is as it was written."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from radmoe.cli.common import Json, PoolPath, byte_progress, console

EXAMPLES = (
    "radmoe verify pool/",
    "radmoe verify pool/ --recover          # after a killed capture",
)


def command(
    pool: PoolPath,
    recover: Annotated[bool, typer.Option("--recover", help="First complete a pool whose writer was killed.")] = False,
    as_json: Json = False,
) -> None:
    """Check a pool against its checksums, and name each damaged file and the rollouts it touches."""
    from radmoe.errors import PoolCorrupt
    from radmoe.pool import Pool, open_pool

    if recover:
        opened = Pool.recover(pool)
        console(stderr=True).print(f"recovered {len(opened):,} rollouts")
        for dropped in opened.dropped:
            typer.echo(str(dropped), err=True)
    opened = open_pool(pool)
    with byte_progress(sum(shard.bytes for shard in opened.shards.values()), "verifying") as advance:
        faults = opened.verify(progress=advance)
    if as_json:
        typer.echo(json.dumps([{"file": f.file, "message": f.message, "runs": f.runs} for f in faults]))
    else:
        for fault in faults:
            typer.echo(str(fault))
    if faults:
        raise PoolCorrupt(f"{pool} has {len(faults)} fault(s): restore the files named above from a copy")
    if not as_json:
        typer.echo(f"{pool}: {len(opened):,} rollouts, {opened.tokens:,} tokens, every byte as written")
