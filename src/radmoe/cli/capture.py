"""`radmoe capture`: sample rollouts from a model and keep their routing in a pool."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json
from radmoe.cli.engines import ENGINES
from radmoe.cli.replaying import replay_pool, said
from radmoe.cli.rollouts import capture_pool

EXAMPLES = (
    "Examples: radmoe capture --model lab-qwen --task math-2 -n 32 --limit 12 --out pool/   |   "
    "radmoe capture --model lab-oss --style high --task code --out pool/   |   "
    "radmoe capture --model ./checkpoint --prompts aime.jsonl -n 64 --max-tokens 8192 --out pool/   |   "
    "radmoe capture --engine vllm-http --url http://localhost:8000 --model ./checkpoint --prompts p.jsonl --out pool/   |   "
    "radmoe capture --model ./checkpoint --rollouts texts.jsonl --out pool/   |   "
    "the same command again goes on where it was interrupted"
)


def command(
    out: Annotated[Path, typer.Option("--out", help="The pool directory, new or to go on with.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="lab-qwen, lab-oss or lab-next; a checkpoint directory; a model in the Hugging Face cache; a GGUF file.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help=", ".join(ENGINES))] = "transformers",
    url: Annotated[
        str | None, typer.Option("--url", help="The server of vllm-http or sglang-http: http://localhost:8000.")
    ] = None,
    served: Annotated[
        str | None, typer.Option("--served", help="The model's name in the server, if it has several.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="RADMOE_API_KEY", help="Sent to the server as a bearer token.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Problems of the lab: math-1 to math-4, choice or code.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Or a JSONL: prompt or messages, and problem_id or id, on each line."),
    ] = None,
    rollouts: Annotated[
        Path | None,
        typer.Option("--rollouts", help="Or replay rollouts that exist, without sampling: a JSONL of them, or a pool."),
    ] = None,
    rounding: Annotated[
        str | None,
        typer.Option(
            "--rounding", help="Replay bfloat16 as the engine rounded that sampled: vllm-cpu, vllm-cpu-eager."
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Rollouts per problem.")] = 64,
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
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rollouts sampled together; costs memory.")] = 256,
    raw: Annotated[bool, typer.Option("--raw", help="Prompts as they are, without the chat template.")] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", help="auto (as saved), float32, bfloat16 or float16.", show_default="auto; lab models: float32"
        ),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", help="CPU cores to use.", show_default="all")] = None,
    ids_only: Annotated[bool, typer.Option("--ids-only", help="Keep expert ids without weights.")] = False,
    readouts: Annotated[
        str | None, typer.Option("--readouts", help="Keep only the rows these need: delimiter@16,boundary@16.")
    ] = None,
    readout_task: Annotated[
        str | None,
        typer.Option(
            "--readout-task",
            help="Whose markers --readouts means: math, choice, code or agent.",
            show_default="the --task's, or math",
        ),
    ] = None,
    layers: Annotated[str | None, typer.Option("--layers", help="Keep only these layers: s0, c2 or 0-3,7.")] = None,
    no_logprobs: Annotated[bool, typer.Option("--no-logprobs", help="Keep no logprobs: no RAD+DC later.")] = False,
    no_grade: Annotated[bool, typer.Option("--no-grade", help="Do not grade the rollouts of a --task.")] = False,
    as_json: Json = False,
) -> None:
    """Sample n rollouts of every prompt and write them, with the routing behind every token, to a pool.

    A rollout is safe on disk once finished, so an interrupted or killed capture goes on when the same
    command is run again: finished rollouts are not repeated, and the rest come out as they would have.
    Rollouts of the lab's own tasks are graded at the end.
    """
    from radmoe.errors import InputError

    if rollouts is not None:
        if task is not None or prompts is not None or engine != "transformers" or model is None:
            raise InputError("--rollouts are replayed through --model: leave out --task, --prompts and --engine")
        done = replay_pool(
            model,
            out,
            rollouts,
            dtype,
            device,
            threads,
            ids_only,
            readouts,
            readout_task or "math",
            layers,
            raw,
            rounding,
        )
        typer.echo(json.dumps(asdict(done)) if as_json else said(done))
        return
    if rounding is not None:
        raise InputError("--rounding is a replay's: give it with --rollouts")
    if raw and style is not None:
        raise InputError(f"--style {style} is told to the chat template, which --raw leaves out: give one of the two")
    captured = capture_pool(
        model,
        out,
        engine=engine,
        url=url,
        served=served,
        api_key=api_key,
        task=task,
        prompts=prompts,
        n=n,
        style=style,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        limit=limit,
        batch_size=batch_size,
        raw=raw,
        dtype=dtype,
        device=device,
        threads=threads,
        ids_only=ids_only,
        readouts=readouts,
        readout_task=readout_task,
        layers=layers,
        logprobs=not no_logprobs,
        grade=not no_grade,
    )
    if as_json:
        typer.echo(json.dumps(asdict(captured)))
        return
    typer.echo(str(captured))
    typer.echo(f"Now try:  radmoe inspect {out}   |   radmoe select {out}")
