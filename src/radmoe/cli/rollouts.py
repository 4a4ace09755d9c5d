"""Sampling rollouts into a pool: resumable, with a progress bar, graded where the problems are the lab's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from radmoe.cli.common import console
from radmoe.cli.engines import open_engine
from radmoe.cli.sources import is_lab_model, load_problems

if TYPE_CHECKING:
    from radmoe.engines.base import Engine, Sampling
    from radmoe.engines.prompts import Prompt
    from radmoe.pool import PoolWriter, Profile


@dataclass(frozen=True)
class Captured:
    """What a capture did; `average` is Avg@N of a graded lab task."""

    pool: str
    problems: int
    rollouts: int
    sampled: int
    tokens: int
    seconds: float
    router: str
    average: float | None

    def __str__(self) -> str:
        n, before = self.rollouts // self.problems, self.rollouts - self.sampled
        parts = [f"{self.pool}: {self.problems:,} problems x {n} rollouts"]
        if before:
            parts.append(f"{before:,} of them from before")
        parts.append(f"router {self.router}")
        if self.tokens:
            speed = self.tokens / self.seconds
            parts.append(f"{self.tokens:,} tokens in {self.seconds:.1f} s ({speed:,.0f} tokens/s)")
        if self.average is not None:
            parts.append(f"{self.average:.1%} right (Avg@{n})")
        return ", ".join(parts)


def capture_pool(
    model: str | None,
    out: Path,
    *,
    engine: str = "transformers",
    url: str | None = None,
    served: str | None = None,
    api_key: str | None = None,
    task: str | None = None,
    prompts: Path | None = None,
    n: int = 64,
    style: str | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int = 256,
    raw: bool = False,
    dtype: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    ids_only: bool = False,
    readouts: str | None = None,
    readout_task: str | None = None,
    layers: str | None = None,
    logprobs: bool = True,
    grade: bool = True,
) -> Captured:
    """Sample what the pool lacks, and grade it if its problems are of a lab task."""
    from radmoe.engines.base import Sampling
    from radmoe.errors import InputError
    from radmoe.lab.models import model_named

    if n < 1:
        raise InputError(f"-n must be at least 1 rollout per problem, got {n}")
    if batch_size < 1:
        raise InputError(f"--batch-size must be at least 1, got {batch_size}")
    if style is not None and model is not None and is_lab_model(model):
        model_named(model).check_style(style)
    problems, kind = load_problems(task, prompts, seed=seed, limit=limit)
    opened = open_engine(
        engine,
        model,
        url=url,
        served=served,
        api_key=api_key,
        dtype=dtype,
        device=device,
        threads=threads,
        weights=not ids_only,
        layers=layers,
    )
    sampling = Sampling(
        temperature if temperature is not None else opened.suggested("temperature", 1.0),
        top_p if top_p is not None else opened.suggested("top_p", 1.0),
        max_tokens if max_tokens is not None else opened.suggested("max_new_tokens", 2048),
        seed,
        20 if logprobs else 0,
    )
    rendered = _render(opened, problems, sampling.max_tokens, raw, style)
    profile = pool_profile(opened, ids_only, readouts, readout_task or kind or "math", layers)
    said = {"n": n, "raw": raw, "style": style, "task": task, "kind": kind}
    writer = _writer(out, opened, model, asdict(sampling) | said, profile)  # from here on there is a pool
    already = sum(min(writer.done(p.problem_id), n) for p in problems)
    began = time.perf_counter()
    try:
        with writer:
            _capture(opened, writer, rendered, sampling, n, batch_size, keep_weights=not ids_only)
    except KeyboardInterrupt:
        finished = sum(writer.done(p.problem_id) >= n for p in problems)
        typer.echo(
            f"radmoe: interrupted; {finished} of {len(problems)} problems are finished in {out}: run the same command "
            f"to go on, or radmoe verify {out} --recover to use what is there",
            err=True,
        )
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - began
    total = len(problems) * n
    average = _grade(out) if task is not None and grade else None
    return Captured(
        str(out), len(problems), total, total - already, opened.tokens_sampled, seconds, str(opened.shape), average
    )


class _Rendered(NamedTuple):
    problem_id: str
    text: str
    ids: list[int]


def _render(engine: Engine, problems: list[Prompt], max_tokens: int, raw: bool, style: str | None) -> list[_Rendered]:
    """The prompts as the model sees them, each checked to leave room for an answer."""
    from radmoe.engines.prompts import encode
    from radmoe.lab.chat import template_arguments

    said = template_arguments(style) if style is not None else {}
    rendered = [_Rendered(p.problem_id, *encode(engine.tokenizer, p.content, raw=raw, **said)) for p in problems]
    for prompt in rendered:
        engine.room(prompt.ids, prompt.problem_id, max_tokens)
    return rendered


def pool_profile(engine: Engine, ids_only: bool, readouts: str | None, task: str, layers: str | None) -> Profile:
    """What the pool keeps. An engine that captures a layer subset (the vLLM plugin may) decides where nobody else does."""
    import numpy as np

    from radmoe.engines.kept_rows import check_layers
    from radmoe.pool import Profile
    from radmoe.readout import layer_subset, windows

    captured: tuple[int, ...] | None = getattr(engine, "layers", None)
    profile = Profile(
        sort_experts=ids_only,  # without weights the order says nothing, and sorted ids compress better
        layers=captured if layers is None else tuple(int(i) for i in layer_subset(layers, engine.shape.layers)),
        readouts=None if readouts is None else tuple(r.strip() for r in readouts.split(",")),
        task=task,
    )
    check_layers(captured, profile)
    for readout in profile.readouts or ():
        windows(readout, np.zeros(1, np.int32), engine.vocab, task)  # a task it does not fit is refused now, not later
    return profile


def _writer(out: Path, engine: Engine, model: str | None, sampling: dict[str, Any], profile: Profile) -> PoolWriter:
    from radmoe import __version__
    from radmoe.pool import PoolWriter

    record = sampling | {"engine": engine.name, "dtype": engine.dtype}
    record["versions"] = {"radmoe": __version__} | engine.versions
    name = str(model or getattr(engine, "served", ""))
    if not is_lab_model(name) and Path(name).exists():
        name = Path(name).resolve().name
    return PoolWriter(out, shape=engine.shape, vocab=engine.vocab, model=name, sampling=record, profile=profile)


def _grade(out: Path) -> float | None:
    """Avg@N of a lab pool, graded where that is possible."""
    from radmoe.errors import RadmoeError
    from radmoe.grading.grade import grade_pool

    try:
        return grade_pool(out, jobs=2).average
    except RadmoeError as error:  # the rollouts are there: a sandbox that cannot run here must not hide them
        typer.echo(f"radmoe: not graded: {error}", err=True)
        return None


def _capture(
    engine: Engine,
    writer: PoolWriter,
    problems: list[_Rendered],
    sampling: Sampling,
    n: int,
    batch_size: int,
    *,
    keep_weights: bool,
) -> None:
    """Sample what is missing, and keep each rollout as soon as it is finished."""
    missing = {p.problem_id: [i for i in range(n) if not writer.has(p.problem_id, i)] for p in problems}
    todo = [problem for problem in problems if missing[problem.problem_id]]
    names = [problem.problem_id for problem in todo]
    running = engine.generate(
        [problem.ids for problem in todo],
        n,
        sampling=sampling,
        batch_size=batch_size,
        keys=names,
        missing=[missing[name] for name in names],
        profile=writer.profile,
    )
    with _progress(engine, len(problems), len(problems) - len(todo), sum(map(len, missing.values()))) as advance:
        for done in running:
            name = names[done.prompt_index]
            writer.add(
                name,
                done.rollout if keep_weights else replace(done.rollout, weights=None),
                rollout_index=done.rollout_index,
                text=done.text,
                prompt=todo[done.prompt_index].text,
                finish_reason=done.finish_reason,
            )
            advance(writer.done(name) == n)


@contextmanager
def _progress(engine: Engine, problems: int, finished: int, rollouts: int) -> Iterator[Any]:
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
