"""`radmoe delete` takes problems out of a pool, with all that it holds of them."""

from __future__ import annotations

from typing import Annotated

import typer

from radmoe.cli.common import Json, PoolPath
from radmoe.system.printing import say, say_json

EXAMPLES = ("radmoe delete pool/ math-2-000 math-2-001",)


def command(
    pool: PoolPath,
    problems: Annotated[list[str], typer.Argument(metavar="PROBLEM...", help="Ids of problems.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Delete problems from a pool: tokens, routing, texts, prompts, labels.

    The shards that hold them are written anew and the old files removed. Pools that were merged from this one keep theirs. If it is interrupted, radmoe verify --recover finishes it.
    """
    from radmoe.pool import open_pool

    opened = open_pool(pool)
    try:
        left = opened.delete(set(problems))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"finish it with: radmoe verify --recover {pool}") from None
    deleted, problems_left = len(opened) - len(left), len(left.problems)
    if as_json:
        say_json({"pool": str(pool), "deleted": deleted, "problems": problems_left, "rollouts": len(left)})
    else:
        say(f"{pool}: {deleted:,} rollouts deleted; {problems_left:,} problems, {len(left):,} rollouts left")
