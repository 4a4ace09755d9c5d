"""`radmoe capture` samples rollouts from a model and keeps their routing in a pool."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from radmoe.cli.capturing import capture_with_bar, graded_average, plan_for, summary_line
from radmoe.cli.common import Json, OutPool, option, takes, takes_crew, takes_engine, takes_kept
from radmoe.engines import engine_names
from radmoe.errors import InputError
from radmoe.system.plugins import added
from radmoe.system.printing import say, say_json

EXAMPLES = (
    "radmoe capture --model lab-qwen --task math-2 -n 32 --limit 12 --out pool/",
    "radmoe capture --model lab-oss --style high --task code --out pool/",
    "radmoe capture --model ./model --task aime_2025 --data aime.jsonl --out pool/",
    "radmoe capture --model ./model --data mine.jsonl --kind code --out pool/",
    "radmoe capture --engine vllm-http --url http://localhost:8000 --model ./model --data mine.jsonl --out pool/",
    "radmoe capture --model lab-qwen --task math-2 -n 64 --adaptive --out pool/",
    "radmoe capture --model ./model --data mine.jsonl --on ray://head:6379 --workers 8 --gpus-per-worker 1 --out pool/",
)


_WANTED: dict[str, Any] = {  # the arguments of `plan_for`
    "model": option(
        str,
        "--model",
        f"{', '.join((*added('models'), 'a checkpoint directory'))}; a model in the Hugging Face cache; a GGUF file.",
    ),
    "engine": option(
        str, "--engine", f"{', '.join(engine_names())}, or the dotted path of an engine of your own.", "transformers"
    ),
    "task": option(
        str,
        "--task",
        f"The data set: {', '.join((*added('tasks'), 'aime_2024', 'aime_2025', 'hmmt_feb_2025'))}, "
        "brumo_2025, gpqa_diamond, livecodebench_v5; or the dotted path of one of your own.",
    ),
    "data": option(
        Path, "--data", "JSONL of the task's rows; without --task your own: prompt or messages, id, kind, answer."
    ),
    "kind": option(
        str,
        "--kind",
        "What answers look like: math, choice, code, text or agent.",
        "the data set's, or as each line says",
    ),
    "n": option(int, "-n", "Rollouts per problem.", "64"),
    "style": option(
        str, "--style", "thinking or instruct (Qwen); low, medium or high (gpt-oss).", "the chat template's"
    ),
    "seed": option(int, "--seed", "Another seed: other rollouts, and fresh problems of --task.", "0"),
    "limit": option(int, "--limit", "Only the first problems."),
    "part": option(str, "--part", "A worker's share, such as 2/4; radmoe merge puts the pools together."),
    "batch_size": option(int, "--batch-size", "Rollouts sampled together; costs memory.", "256"),
    "raw": option(bool, "--raw", "Prompts as they are, without the chat template."),
}
_SAMPLING: dict[str, Any] = {
    "temperature": option(float, "--temperature", "0 is greedy.", "the model's own, or 1"),
    "top_p": option(float, "--top-p", "Nucleus; 1 is off.", "the model's own, or 1"),
    "max_tokens": option(int, "--max-tokens", "Tokens per rollout, at most.", "the model's own, or 2048"),
}
_ADAPTIVE: dict[str, Any] = {
    "adaptive": option(bool, "--adaptive", "Stop at a problem once its pick is settled; -n is then the most rollouts."),
    "min_n": option(int, "--min-n", "With --adaptive: the fewest rollouts.", "8"),
    "patience": option(int, "--patience", "With --adaptive: rollouts in a row that the pick must survive.", "8"),
    "preset": option(str, "--preset", "With --adaptive: how the pick is made, as in select.", "paper"),
}


def _settled(adaptive: bool = False, **given: Any) -> dict[str, Any]:
    """The arguments of a plan that say when a problem is settled; empty without --adaptive."""
    from radmoe.selection.online import Stopping

    if given and not adaptive:
        raise InputError(f"--{next(iter(given)).replace('_', '-')} belongs to --adaptive: give both, or neither")
    preset = {"preset": given.pop("preset")} if "preset" in given else {}
    return {"adaptive": Stopping(**given)} | preset if adaptive else {}


@takes_kept
@takes_crew
@takes_engine()
@takes("wanted", dict, _WANTED)
@takes("settled", _settled, _ADAPTIVE)
@takes("sampling", dict, _SAMPLING)
def command(
    out: OutPool,
    crew: Any,
    wanted: Any,
    settled: Any,
    sampling: Any,
    options: Any,
    kept: Any,
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
    if "part" in wanted:
        wanted["part"] = _share(wanted["part"])
    options = replace(options, weights=kept.profile["weights"], layers=kept.profile["layers"])
    make_plan = plan_for(**wanted, **settled, **kept.profile, options=options, sampling=sampling | kept.sampling)
    captured = capture_with_bar(make_plan, out, crew, cpus=options.threads)
    source = wanted.get("task"), wanted.get("data"), wanted.get("seed", 0)
    average = None if no_grade else graded_average(out, *source)
    if as_json:
        say_json(asdict(captured) | {"average": average})
        return
    say(summary_line(captured, average))
    say(f"Now try:  radmoe inspect {quote(str(out))}   |   radmoe select {quote(str(out))}")


def _share(part: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    if match is None:
        raise InputError(f"--part {part!r} is no share of the problems: write 2/4 for the second of four")
    return int(match[1]), int(match[2])
