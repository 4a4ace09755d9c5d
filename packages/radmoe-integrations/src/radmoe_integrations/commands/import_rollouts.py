"""`radmoe import` makes a pool of the rollouts that an RL framework or a server has written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from radmoe.cli.common import Json, OutPool
from radmoe.system.printing import bar, say, say_json

HEADING = "Capture"
EXAMPLES = (
    "radmoe import slime rollout_0.pt --model ./model --kind math --out pool/",
    "radmoe import verl gen_batch.dp --model ./model --kind math --out pool/",
    "radmoe import prime-rl responses.jsonl --model ./model --kind math --out pool/",
    "radmoe import vllm responses.jsonl --model ./model --kind math --threshold 0.5 --out pool/",
    "radmoe import sglang responses.jsonl --model ./model --kind math --out pool/",
)


def command(
    form: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="slime, verl, prime-rl, vllm or sglang.", show_default=False),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="What the framework or the client wrote.", show_default=False),
    ],
    model: Annotated[
        str, typer.Option("--model", help="The checkpoint that sampled: its tokenizer and configuration are read.")
    ],
    out: OutPool,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", help="What answers look like: math, choice, code, text or agent.", show_default="none is recorded"
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", help="The reward from which a rollout is right.", show_default="rewards are 0 or 1"
        ),
    ] = None,
    reward_key: Annotated[
        str | None,
        typer.Option(
            "--reward-key",
            help="Which of several rewards counts (slime, verl).",
            show_default="the only one; verl: rm_scores",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a pool of rollouts that carry their routing already.

    FILES are rollouts of slime or verl, or raw responses of vLLM, SGLang or prime-rl, one per line (docs/integrations.md). Rewards
    become labels. Nothing in a file is run: pickles are read as data. Everything is checked before the pool is written; run the same
    command again to go on with an import that was interrupted.
    """
    from radmoe.types import check_kind
    from radmoe_integrations.imports.work import ImportWork, import_rollouts

    with bar("checking") as update:
        work = ImportWork(
            form,
            files,
            model,
            kind=None if kind is None else check_kind(kind),
            threshold=threshold,
            reward_key=reward_key,
            progress=update,
        )
    with bar("importing") as update:
        done = import_rollouts(work, out, progress=update)
    if as_json:
        say_json(asdict(done) | {"parting": done.parting._asdict()})
        return
    for reason, count in done.left_out.items():
        say(f"radmoe: {count:,} rollouts are left out: {reason}", err=True)
    if done.uneven:
        say("radmoe: log-probabilities are left out: not all rollouts have them, or as many for each token", err=True)
    if done.alone:
        say(f"radmoe: {done.alone:,} problems have one rollout: there is nothing to choose from", err=True)
    labels = f"{done.right:,} of {done.labelled:,} right by their rewards" if done.labelled else "no rewards, no labels"
    say(
        f"{done.pool}: {done.problems:,} problems, {done.rollouts:,} rollouts, {done.imported:,} imported now; {labels}"
    )
    at, of_at, behind, of_behind = done.parting
    if of_at:
        share = f", {behind / of_behind:.1%} behind it" if of_behind else ""
        say(f"alignment: {at / of_at:.1%} of expert sets agree at the token where two rollouts of a prompt part{share}")
    if done.dense:
        say(f"layers without experts, left out: {', '.join(map(str, done.dense))}")
    say(f"Now try:  radmoe inspect {quote(str(out))}   |   radmoe select {quote(str(out))}")
