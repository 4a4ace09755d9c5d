"""`radmoe verify` checks whether every byte of a pool is as it was written."""

from __future__ import annotations

from typing import Annotated

import typer

from radmoe.cli.common import Json, PoolPath
from radmoe.system.printing import bar, say, say_json

EXAMPLES = (
    "radmoe verify pool/",
    "radmoe verify pool/ --recover",
)


def command(
    pool: PoolPath,
    recover: Annotated[bool, typer.Option("--recover", help="First complete a pool whose writer was killed.")] = False,
    as_json: Json = False,
) -> None:
    """Check a pool against its checksums, or recover it.

    Names each damaged file and the rollouts it touches. After a killed capture, --recover makes a pool of what was
    finished.
    """
    from radmoe.errors import PoolCorrupt
    from radmoe.pool import Pool, open_pool, schema
    from radmoe.pool.fault import SetAside

    if recover:
        opened = Pool.recover(pool)
        aside = sum(isinstance(one, SetAside) for one in opened.dropped)
        say(f"recovered {len(opened):,} rollouts" + (f", and set {aside:,} records aside" if aside else ""), err=True)
        for dropped in opened.dropped:
            say(dropped, err=True)
    opened = open_pool(pool)
    stored_bytes = sum(shard.bytes for shard in opened.shards.values())
    with bar("verifying", "MB", total=stored_bytes / 1e6) as update:
        faults = opened.verify(progress=lambda done: update(advance=done / 1e6))
    if as_json:
        say_json([{"file": f.file, "message": f.message, "runs": f.runs} for f in faults])
    else:
        for fault in faults:
            say(fault)
    if faults:
        raise PoolCorrupt(f"{pool} has {len(faults)} fault(s): restore the files named above from a copy")
    if not as_json:
        for refused in (d / schema.REFUSED for d, names in schema.shard_files(pool).items() if schema.REFUSED in names):
            say(f"{refused} keeps records that recovery took for no rollouts; nothing needs the file")
        say(f"{pool}: {len(opened):,} rollouts, {opened.tokens:,} tokens, every byte as written")
