"""`radmoe capture` samples rollouts from a model and keeps their routing in a pool."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.capturing import capture_with_bar, graded_average, plan_for, summary_line
from radmoe.cli.common import Json, OutPool, Raw, takes_crew, takes_engine, takes_kept
from radmoe.engines import engine_names
from radmoe.errors import InputError
from radmoe.system.plugins import added
from radmoe.system.printing import say, say_json

if TYPE_CHECKING:
    from radmoe.selection.online import Stopping

EXAMPLES = (
    "radmoe capture --model lab-qwen --task math-2 -n 32 --limit 12 --out pool/",
    "radmoe capture --model lab-oss --style high --task code --out pool/",
    "radmoe capture --model ./model --task aime_2025 --data aime.jsonl --out pool/",
    "radmoe capture --model ./model --data mine.jsonl --kind code --out pool/",
    "radmoe capture --engine vllm-http --url http://localhost:8000 --model ./model --data mine.jsonl --out pool/",
    "radmoe capture --model lab-qwen --task math-2 -n 64 --adaptive --out pool/",
    "radmoe capture --model ./model --data mine.jsonl --on ray://head:6379 --workers 8 --gpus-per-worker 1 --out pool/",
)


@takes_kept
@takes_crew
@takes_engine()
def command(
    out: OutPool,
    crew: Any,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help=f"{', '.join((*added('models'), 'a checkpoint directory'))}; a model in the Hugging Face cache; a GGUF file.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help=f"{', '.join(engine_names())}, or the dotted path of an engine of your own.")
    ] = "transformers",
    options: Any = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help=f"The data set: {', '.join((*added('tasks'), 'aime_2024', 'aime_2025', 'hmmt_feb_2025'))}, "
            "brumo_2025, gpqa_diamond, livecodebench_v5; or the dotted path of one of your own.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="JSONL of the task's rows; without --task your own: prompt or messages, id, kind, answer."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="What answers look like: math, choice, code, text or agent.",
            show_default="the data set's, or as each line says",
        ),
    ] = None,
    n: Annotated[int | None, typer.Option("-n", help="Rollouts per problem.", show_default="64")] = None,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Stop at a problem once its pick is settled; -n is then the most rollouts."),
    ] = False,
    min_n: Annotated[
        int | None, typer.Option("--min-n", help="With --adaptive: the fewest rollouts.", show_default="8")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience", help="With --adaptive: rollouts in a row that the pick must survive.", show_default="8"
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="With --adaptive: how the pick is made, as in select.", show_default="paper"),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            "--style",
            help="thinking or instruct (Qwen); low, medium or high (gpt-oss).",
            show_default="the chat template's",
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="0 is greedy.", show_default="the model's own, or 1")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Nucleus; 1 is off.", show_default="the model's own, or 1")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", help="Tokens per rollout, at most.", show_default="the model's own, or 2048"),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Another seed: other rollouts, and fresh problems of --task.")
    ] = 0,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems.")] = None,
    part: Annotated[
        str | None, typer.Option("--part", help="A worker's share, such as 2/4; radmoe merge puts the pools together.")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rollouts sampled together; costs memory.")] = 256,
    raw: Raw = False,
    kept: Any = None,
    no_grade: Annotated[bool, typer.Option("--no-grade", help="Do not grade what has gold answers.")] = False,
    as_json: Json = False,
) -> None:
    """Sample rollouts, with their routing, into a pool.

    A rollout is safe on disk once finished, so an interrupted or killed capture goes on when the same
    command is run again: finished rollouts are not repeated, and the rest come out as they would have.
    -n may be raised later. With --on the workers of a Ray cluster share the work: their rollouts are the same, one that
    is lost is replaced, and --out is a directory that all of them see (docs/scale.md). With --adaptive a problem gets only as many rollouts as its pick needs to settle
    (docs/adaptive.md). Where the problems come with gold answers, the pool is graded at the end.
    """
    from radmoe.types import check_kind

    stopping = _stopping(adaptive, min_n, patience, preset)
    make_plan = plan_for(
        task,
        data,
        model,
        kind=None if kind is None else check_kind(kind),
        engine=engine,
        options=replace(options, weights=kept.profile["weights"], layers=kept.profile["layers"]),
        limit=limit,
        seed=seed,
        sampling={"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens} | kept.sampling,
        **kept.profile,
        n=64 if n is None else n,
        adaptive=stopping,
        preset=preset or "paper",
        style=style,
        raw=raw,
        batch_size=batch_size,
        part=None if part is None else _share(part),
    )
    captured = capture_with_bar(make_plan, out, crew, cpus=options.threads)
    average = None if no_grade else graded_average(out, task, data, seed)
    if as_json:
        say_json(asdict(captured) | {"average": average})
        return
    say(summary_line(captured, average))
    say(f"Now try:  radmoe inspect {quote(str(out))}   |   radmoe select {quote(str(out))}")


def _stopping(adaptive: bool, min_n: int | None, patience: int | None, preset: str | None) -> Stopping | None:
    """The stopping rule of an adaptive capture; None without --adaptive."""
    from radmoe.selection.online import Stopping

    given = {name: value for name, value in (("min_n", min_n), ("patience", patience)) if value is not None}
    named = given if preset is None else given | {"preset": preset}
    if named and not adaptive:
        raise InputError(f"--{next(iter(named)).replace('_', '-')} belongs to --adaptive: give both, or neither")
    return Stopping(**given) if adaptive else None


def _share(part: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    if match is None:
        raise InputError(f"--part {part!r} is no share of the problems: write 2/4 for the second of four")
    return int(match[1]), int(match[2])
