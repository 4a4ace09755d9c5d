"""`radmoe export` writes a pool as a data set that the Hub and `datasets` read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json, PoolPath
from radmoe.system.printing import bar, say, say_json

HEADING = "Capture"
EXAMPLES = ("radmoe export pool/ --hub dataset/", "radmoe export pool/ --hub dataset/ --full --text")


def command(
    pool: PoolPath,
    hub: Annotated[
        Path, typer.Option("--hub", help="The data set's directory, new.", metavar="DIR", show_default=False)
    ],
    full: Annotated[
        bool, typer.Option("--full", help="The routing of every token and of prompts, not the windows alone.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="Texts and prompts too; token ids are there anyway.")] = False,
    as_json: Json = False,
) -> None:
    """Write a pool as a data set of the Hub: a card and Parquet.

    datasets.load_dataset(DIR) reads it. Labels are in a config of their own. Nothing is uploaded. Whoever gets it can read the completions: from the token ids, and from routing alone.
    """
    from radmoe.pool import open_pool
    from radmoe_integrations.hub.card import WARNING
    from radmoe_integrations.hub.export import export_pool

    opened = open_pool(pool)
    with bar("exporting", "rollouts", total=len(opened)) as update:
        done = export_pool(opened, hub, full=full, texts=text, progress=update)
    if as_json:
        say_json(done._asdict())
    else:
        what = "all routing" if done.readouts is None else f"windows of {', '.join(done.readouts)}"
        say(
            f"{hub}: {done.problems:,} problems, {done.rollouts:,} rollouts, {done.tokens:,} tokens, {what}, "
            f"{'with' if text else 'without'} texts, {done.labels:,} labels; {done.bytes / 1e6:,.1f} MB"
        )
    say(f"radmoe: the data set is as private as its text: {WARNING}", err=True)
