"""`radmoe advise` says how to select from a pool, without labels."""

from __future__ import annotations

from dataclasses import asdict, replace
from shlex import quote
from typing import Annotated

import typer

from radmoe.cli.common import Json, KindName, PoolPath, limited, progress, settled_kinds, sizes_of
from radmoe.system.printing import say, say_json

EXAMPLES = (
    "radmoe advise pool/",
    "radmoe advise pool/ --limit 20 --json",
)


def command(
    pool: PoolPath,
    kind: KindName = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Look at the first problems only.")] = None,
    as_json: Json = False,
) -> None:
    """Say which preset suits a pool, without labels.

    Routing, likelihoods and how the rollouts were sampled tell which regime the pool is in; docs/choosing.md says what the regimes mean. A pool of
    several kinds gets one answer per kind.
    """
    from radmoe.pool import open_pool
    from radmoe.selection.origin import origin_of
    from radmoe.selection.regime import advise, survey

    opened = open_pool(pool)
    problems = limited(limit, opened.problems)
    kinds = settled_kinds(opened, kind, None, problems)
    top_p = origin_of(opened).top_p
    nucleus = top_p is not None and top_p < 1
    advice = {}
    for own in dict.fromkeys(kinds.values()):
        names = [problem for problem in problems if kinds[problem] == own]
        shown = progress(names, sizes_of(opened, names), f"comparing {own}")
        groups = (replace(opened.group(name), kind=own) for name in shown)
        advice[own] = advise(survey(groups, own, nucleus=nucleus))
    if as_json:
        say_json({own: asdict(one) for own, one in advice.items()})
        return
    for own, one in advice.items():
        say(f"{own}: {one.regime}. {' '.join(one.sentences)}")
        fusion = "" if one.fusion is None else f" --fusion {one.fusion}"
        say(f"  radmoe select {quote(str(pool))} --preset {one.preset}{fusion}")
