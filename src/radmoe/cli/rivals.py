"""`radmoe rivals`: is it the routing, or would something free have done as well?"""

from __future__ import annotations

from typing import Annotated

import typer

from radmoe.cli.common import Json
from radmoe.cli.evaluate import (
    Format,
    GradedPools,
    Jobs,
    Out,
    Resamples,
    Seed,
    UseCache,
    Window,
    check_statistics,
    cores,
    output_format,
    records_of,
    show,
)

EXAMPLES = (
    "radmoe rivals pools/*/",
    "radmoe rivals pools/lab-*/ -n 8 -n 16 -n 32 --out rivals.md",
    "radmoe grade pools/lab-qwen-thinking-code --behaviours",
)


def command(
    pools: GradedPools,
    fewer: Annotated[
        list[int] | None,
        typer.Option("-n", help="Compare with only so many rollouts of each problem, too; may be given again."),
    ] = None,
    confidence_window: Window = 2048,
    resamples: Resamples = 10_000,
    seed: Seed = 0,
    jobs: Jobs = None,
    cache: UseCache = True,
    style: Format = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compare routing with methods that read none, on the same rollouts: likelihood, self-certainty, text overlap, edit
    distance, programs grouped by what they do, and a majority vote.

    Four tables, by kind of answer and by regime (data set, configuration, how many rollouts are right, how far they
    agree, how many there are): the presets best and best+text minus what they compete with, routing instead of each
    rival, routing added to it, and routing read before any word of the answer. The last sentence says to what routing
    adds something, and to what it does not.
    """
    check_statistics("rivals")
    chosen = output_format(style, out, as_json)
    from radmoe.evaluation.pools import check_distinct
    from radmoe.evaluation.rivals import rivals_report
    from radmoe.evaluation.scores import Draws

    check_distinct(pools)
    options = {"confidence_window": confidence_window, "jobs": cores(jobs), "use_cache": cache}
    records = [one for pool in pools for one in records_of(pool, options)]
    by_number = {
        n: [one for pool in pools for one in records_of(pool, options | {"n": n})] for n in sorted(set(fewer or ()))
    }
    show(rivals_report(records, by_number, Draws(resamples, seed)), chosen, out)
