"""`radmoe replay`: routing for rollouts that exist already, by a pass of a model over each."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.capturing import path_everywhere
from radmoe.cli.common import Json, OutPool, Raw, takes_crew, takes_engine, takes_kept
from radmoe.system.printing import bar, say, say_json

if TYPE_CHECKING:
    from radmoe.engines import EngineOptions
    from radmoe.engines.replay import ReplayWork

EXAMPLES = (
    "radmoe replay texts.jsonl --model ./model --kind code --out pool/",
    "radmoe replay pool/ --model ./model --dtype float32 --out again/",
)


@takes_kept
@takes_crew
@takes_engine("dtype", "device", "threads")
def command(
    rollouts: Annotated[
        Path, typer.Argument(metavar="ROLLOUTS", help="A JSONL file of rollouts, or a pool.", show_default=False)
    ],
    model: Annotated[
        str, typer.Option("--model", help="A checkpoint directory, or a model in the Hugging Face cache.")
    ],
    out: OutPool,
    crew: Any,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="What answers look like: math, choice, code, text or agent.",
            show_default="as each line says",
        ),
    ] = None,
    raw: Raw = False,
    options: Any = None,
    kept: Any = None,
    as_json: Json = False,
) -> None:
    """Compute the routing of rollouts that exist already.

    ROLLOUTS are tokens or texts, which one pass of the model each turns into a pool; nothing is sampled. The routing is
    what this model has in its own arithmetic, not what was there while sampling. Where ROLLOUTS is a pool with captured
    routing, the last line says how many expert sets are equal (docs/engines.md). With --on the workers of a Ray cluster
    share the work; ROLLOUTS and --out lie where all of them see them (docs/scale.md).
    """
    from radmoe.engines.base import Sampling
    from radmoe.engines.replay import Replayed, replay_work
    from radmoe.pool.files import absolute
    from radmoe.system.cluster import cluster
    from radmoe.types import check_kind

    make_work = partial(
        _work,
        absolute(rollouts),
        path_everywhere(model),
        options,
        kept.profile,
        kind=None if kind is None else check_kind(kind),
        raw=raw,
        topk_logprobs=kept.sampling.get("topk_logprobs", Sampling.topk_logprobs),
    )
    given_up: tuple[str, ...] = ()
    with bar("replaying") as update:
        if crew is None:
            done = replay_work(make_work(), out, progress=update)
        else:
            made = cluster(crew.on).fill(
                make_work, out, crew, lambda now: update(now.rollouts, now.of_rollouts), cpus=options.threads
            )
            done, given_up = Replayed.of(out, made.problems, made.rollouts, made.sampled, made.tokens), made.given_up
    for line in given_up:
        say(f"radmoe: {line}", err=True)
    if as_json:
        say_json(asdict(done))
        return
    summary = f"{done.pool}: {done.problems:,} problems, {done.rollouts:,} rollouts, {done.replayed:,} replayed now"
    if done.agreement is None:
        say(summary + "; replay is not capture, and there was none to compare with")
    else:
        say(summary + f"; {done.agreement.share:.1%} of expert sets as captured")
    say(f"Now try:  radmoe inspect {quote(str(out))}   |   radmoe select {quote(str(out))}")


def _work(source: Path, model: str | None, options: EngineOptions, kept: dict[str, Any], **settings: Any) -> ReplayWork:
    """The work of a replay, with an engine of this process."""
    from radmoe.engines import open_engine
    from radmoe.engines.kept_rows import profile_for
    from radmoe.engines.replay import ReplayWork

    engine = open_engine("transformers", model, options)
    profile = profile_for(engine, **kept)
    return ReplayWork(source, engine, profile=profile, weights=kept["weights"], **settings)
