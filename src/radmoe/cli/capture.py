"""`radmoe capture`: sample rollouts from a model and keep their routing in a pool."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from radmoe.cli.common import Json, console, limited

if TYPE_CHECKING:
    from radmoe.engines.base import Completion, Sampling
    from radmoe.engines.prompts import Prompt
    from radmoe.engines.transformers import TransformersEngine
    from radmoe.pool import PoolWriter, Profile

EXAMPLES = (
    "Examples: radmoe capture --model ./checkpoint --prompts aime.jsonl -n 64 --max-tokens 8192 --out pool/   |   "
    "radmoe capture --model ./checkpoint --prompts aime.jsonl --limit 3 -n 8 --out try/   |   "
    "the same command again goes on where it was interrupted"
)


def command(
    model: Annotated[
        str, typer.Option("--model", help="A checkpoint directory, or a model in the Hugging Face cache.")
    ],
    prompts: Annotated[
        Path, typer.Option("--prompts", help="JSONL: prompt or messages, and problem_id or id, on each line.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The pool directory, new or to go on with.")],
    n: Annotated[int, typer.Option("-n", help="Rollouts per problem.")] = 64,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", help="Nucleus; 1 is off.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Tokens per rollout, at most.")] = 2048,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other rollouts.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Rollouts sampled together; costs memory.")] = 128,
    raw: Annotated[bool, typer.Option("--raw", help="Prompts as they are, without the chat template.")] = False,
    dtype: Annotated[str, typer.Option("--dtype", help="auto (as saved), float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option("--threads", help="CPU cores to use.", show_default="all")] = None,
    ids_only: Annotated[bool, typer.Option("--ids-only", help="Keep expert ids without weights.")] = False,
    readouts: Annotated[
        str | None, typer.Option("--readouts", help="Keep only the rows these need: delimiter@16,boundary@16.")
    ] = None,
    readout_task: Annotated[
        str, typer.Option("--readout-task", help="Whose markers --readouts means: math, choice, code or agent.")
    ] = "math",
    layers: Annotated[str | None, typer.Option("--layers", help="Keep only these layers: s0, c2 or 0-3,7.")] = None,
    no_logprobs: Annotated[bool, typer.Option("--no-logprobs", help="Keep no logprobs: no RAD+DC later.")] = False,
    as_json: Json = False,
) -> None:
    """Sample n rollouts of every prompt and write them, with the routing behind every token, to a pool.

    A rollout is safe on disk once finished, so an interrupted or killed capture goes on when the same
    command is run again: finished problems are not repeated, and the rest come out as they would have.
    """
    from radmoe.engines.base import Sampling
    from radmoe.errors import InputError

    if n < 1:
        raise InputError(f"-n must be at least 1 rollout per problem, got {n}")
    if batch_size < 1:
        raise InputError(f"--batch-size must be at least 1, got {batch_size}")
    sampling = Sampling(temperature, top_p, max_tokens, seed, 0 if no_logprobs else 20)
    problems = load_prompts(prompts, limit)
    engine = load_engine(model, dtype=dtype, device=device, threads=threads)
    rendered = _render(engine, problems, max_tokens, raw)
    profile = _profile(engine, ids_only, readouts, readout_task, layers)
    writer = _writer(out, engine, model, sampling, n, raw, profile)  # from here on there is a pool
    already = sum(min(writer.done(p.problem_id), n) for p in problems)
    began = time.perf_counter()
    try:
        with writer:
            _capture(engine, writer, rendered, sampling, n, batch_size, keep_weights=not ids_only)
    except KeyboardInterrupt:
        finished = sum(writer.done(p.problem_id) >= n for p in problems)
        typer.echo(
            f"radmoe: interrupted; {finished} of {len(problems)} problems are finished in {out}: run the same command "
            f"to go on, or radmoe verify {out} --recover to use what is there",
            err=True,
        )
        raise typer.Exit(130) from None
    _report(out, engine, problems, n, already, time.perf_counter() - began, as_json)


def resolve_model(name: str) -> Path:
    """The directory of a model: a path, or the name of one in the local Hugging Face cache. Nothing is downloaded."""
    from radmoe.errors import EngineError

    path = Path(name).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import constants, try_to_load_from_cache

    known = {
        folder.name.removeprefix("models--").replace("--", "/"): folder
        for folder in sorted(Path(constants.HF_HUB_CACHE).glob("models--*"))
    }
    if name in known:
        config = try_to_load_from_cache(name, "config.json")
        if isinstance(config, str):
            return Path(config).parent
    cached = ", ".join(known) or "none"
    raise EngineError(f"no model {name!r}: pass a checkpoint directory, or a model of the local cache ({cached})")


def load_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """The problems to sample, in the file's order."""
    from radmoe.engines.prompts import read_prompts

    return limited(limit, read_prompts(path))


def load_engine(model: str, **options: Any) -> TransformersEngine:
    """The engine, or one line on what to install."""
    from radmoe.errors import EngineError

    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise EngineError(f"capture needs {error.name}: pip install 'radmoe[transformers]'") from None
    from radmoe.engines.transformers import TransformersEngine

    return TransformersEngine(resolve_model(model), **options)


class _Rendered(NamedTuple):
    problem_id: str
    text: str
    ids: list[int]


def _render(engine: TransformersEngine, problems: list[Prompt], max_tokens: int, raw: bool) -> list[_Rendered]:
    """The prompts as the model sees them, each checked to leave room for an answer."""
    from radmoe.engines.prompts import encode

    rendered = [_Rendered(p.problem_id, *encode(engine.tokenizer, p.content, raw=raw)) for p in problems]
    for prompt in rendered:
        engine.room(prompt.ids, prompt.problem_id, max_tokens)
    return rendered


def _profile(
    engine: TransformersEngine, ids_only: bool, readouts: str | None, task: str, layers: str | None
) -> Profile:
    import numpy as np

    from radmoe.pool import Profile
    from radmoe.readout import layer_subset, windows

    profile = Profile(
        sort_experts=ids_only,  # without weights the order says nothing, and sorted ids compress better
        layers=None if layers is None else tuple(int(i) for i in layer_subset(layers, engine.shape.layers)),
        readouts=None if readouts is None else tuple(r.strip() for r in readouts.split(",")),
        task=task,
    )
    for readout in profile.readouts or ():
        windows(readout, np.zeros(1, np.int32), engine.vocab, task)  # a task it does not fit is refused now, not later
    return profile


def _writer(
    out: Path, engine: TransformersEngine, model: str, sampling: Sampling, n: int, raw: bool, profile: Profile
) -> PoolWriter:
    from importlib.metadata import version

    from radmoe.pool import PoolWriter

    record = asdict(sampling) | {"n": n, "raw": raw, "engine": "transformers", "dtype": engine.dtype}
    record["versions"] = {name: version(name) for name in ("radmoe", "torch", "transformers")}
    name = Path(model).resolve().name if Path(model).is_dir() else model
    return PoolWriter(out, shape=engine.shape, vocab=engine.vocab, model=name, sampling=record, profile=profile)


def _capture(
    engine: TransformersEngine,
    writer: PoolWriter,
    problems: list[_Rendered],
    sampling: Sampling,
    n: int,
    batch_size: int,
    *,
    keep_weights: bool,
) -> None:
    """Sample what is missing. A problem's rollouts are added in their order, so that a count says which are there."""
    todo = [problem for problem in problems if writer.done(problem.problem_id) < n]
    names = [problem.problem_id for problem in todo]
    start = [writer.done(name) for name in names]
    waiting: defaultdict[int, dict[int, Completion]] = defaultdict(dict)
    running = engine.generate(
        [problem.ids for problem in todo], n, sampling=sampling, batch_size=batch_size, keys=names, start=start
    )
    with _progress(engine, len(problems), len(problems) - len(todo), sum(n - s for s in start)) as advance:
        for done in running:
            i = done.prompt_index
            waiting[i][done.rollout_index] = done
            while (ready := waiting[i].pop(writer.done(names[i]), None)) is not None:
                writer.add(
                    names[i],
                    ready.rollout if keep_weights else replace(ready.rollout, weights=None),
                    rollout_index=ready.rollout_index,
                    text=ready.text,
                    prompt=todo[i].text,
                    finish_reason=ready.finish_reason,
                )
            advance(writer.done(names[i]) == n)


@contextmanager
def _progress(engine: TransformersEngine, problems: int, finished: int, rollouts: int) -> Iterator[Any]:
    """A bar over rollouts, with problems done and tokens/s, on a terminal only; yields the function to tell of one."""
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{engine.tokens_sampled / max(task.elapsed or 0, 1e-9):,.0f} tokens/s")

    screen = console(stderr=True)
    counts = TextColumn("{task.fields[problems]} problems")
    columns = (TextColumn("capturing"), BarColumn(), counts, Speed(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("capturing", total=rollouts, problems=f"{finished}/{problems}")

        def advance(problem_finished: bool) -> None:
            nonlocal finished
            finished += problem_finished
            bar.update(task, advance=1, problems=f"{finished}/{problems}")

        yield advance


def _report(
    out: Path,
    engine: TransformersEngine,
    problems: list[Prompt],
    n: int,
    already: int,
    seconds: float,
    as_json: bool,
) -> None:
    total, tokens = len(problems) * n, engine.tokens_sampled
    if as_json:
        body = {
            "pool": str(out),
            "problems": len(problems),
            "rollouts": total,
            "sampled": total - already,
            "tokens": tokens,
            "seconds": seconds,
            "router": str(engine.shape),
        }
        typer.echo(json.dumps(body))
        return
    speed = f", {tokens:,} tokens in {seconds:.1f} s ({tokens / seconds:,.0f} tokens/s)" if tokens else ""
    before = f", {already:,} of them from before" if already else ""
    typer.echo(f"{out}: {len(problems):,} problems x {n} rollouts{before}, router {engine.shape}{speed}")
    typer.echo(f"Now try:  radmoe inspect {out}   |   radmoe select {out}")
