"""Samples the rollouts that a pool lacks, and writes each as soon as it is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from radmoe.capture.adaptive import Watches
from radmoe.capture.plan import Plan
from radmoe.engines.base import Completion
from radmoe.engines.prompts import encode, template_arguments
from radmoe.pool import PoolWriter, open_pool
from radmoe.pool.files import place
from radmoe.pool.reader import safe_rollouts
from radmoe.problems import Question


@dataclass(frozen=True)
class Captured:
    """The result of a capture. `sampled` counts the rollouts of this call; the others were there before.

    `stopped` says for how many problems an adaptive capture ended for which reason; None where n was fixed. `set_aside` counts the
    records of a killed capture that are damaged or no rollouts.
    """

    pool: str
    problems: int
    rollouts: int
    sampled: int
    tokens: int
    seconds: float
    router: str
    stopped: dict[str, int] | None = None
    set_aside: int = 0

    def __str__(self) -> str:
        n, before = self.rollouts // self.problems, self.rollouts - self.sampled
        parts = [f"{self.pool}: {self.problems:,} problems x {n} rollouts"]
        if self.stopped is not None:
            why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.stopped.items()))
            parts = [f"{self.pool}: {self.problems:,} problems, {self.rollouts:,} rollouts as needed ({why})"]
        if before:
            parts.append(f"{before:,} of them from before")
        if self.set_aside:
            parts.append(f"{self.set_aside:,} damaged records of a killed writer set aside in journal.refused")
        parts.append(f"router {self.router}")
        if self.tokens:
            speed = self.tokens / self.seconds
            parts.append(f"{self.tokens:,} tokens in {self.seconds:.1f} s ({speed:,.0f} tokens/s)")
        return ", ".join(parts)


class Progress(NamedTuple):
    """How far a capture is: rollouts of this call, problems that have all n rollouts, tokens sampled."""

    rollouts: int
    of_rollouts: int
    problems: int
    of_problems: int
    tokens: int


class CaptureInterrupted(KeyboardInterrupt):
    """Ctrl-C during a capture; the message says how many rollouts are safe and how to go on."""


class _Rendered(NamedTuple):
    """A problem as the model sees it."""

    question: Question
    place: int
    text: str
    ids: list[int]


def capture_pool(
    plan: Plan, out: str | Path, *, progress: Callable[[Progress], None] = lambda progress: None
) -> Captured:
    """Sample the rollouts of a plan that the pool at `out` lacks; the pool may be new, or one of the same run record.

    A rollout is safe on disk once it is finished, so that an interrupted capture goes on where it was. Every prompt is
    checked to leave room for an answer before anything is sampled. Nothing is graded.
    """
    out, engine = place(out), plan.engine
    rendered = _render(plan)
    began = time.perf_counter()
    try:
        sampled, tokens, watches, aside = (_capture if plan.adaptive is None else _capture_adaptively)(
            plan, out, rendered, progress
        )
    except KeyboardInterrupt:
        if not out.is_dir():
            raise
        raise CaptureInterrupted(
            f"{safe_rollouts(out):,} rollouts are safe in {out}: run the same command to go on, or "
            f"radmoe verify {quote(str(out))} --recover to use what is there"
        ) from None
    return Captured(
        pool=str(out),
        problems=len(rendered),
        rollouts=len(rendered) * plan.n if watches is None else sum(len(w.selector) for w in watches.each.values()),
        sampled=sampled,
        tokens=tokens,
        seconds=time.perf_counter() - began,
        router=str(engine.shape),
        stopped=None if watches is None else watches.reasons(),
        set_aside=aside,
    )


# Rollouts and tokens that were sampled, what was decided, and how many records of a killed capture were set aside.
Outcome = tuple[int, int, Watches | None, int]


def _capture(plan: Plan, out: Path, rendered: list[_Rendered], progress: Callable[[Progress], None]) -> Outcome:
    """Sample all n rollouts of every problem that the pool lacks."""
    with _open_writer(plan, out) as writer:
        missing = [[i for i in range(plan.n) if not writer.has(r.question.problem_id, i)] for r in rendered]
        wanted = [(prompt, rollouts) for prompt, rollouts in zip(rendered, missing, strict=True) if rollouts]
        left = [len(rollouts) for _, rollouts in wanted]
        problems, total = len(rendered) - len(wanted), sum(left)
        with closing(_sample(plan, writer, wanted)) as completions:
            for finished, (place, _) in enumerate(completions, 1):
                left[place] -= 1
                problems += left[place] == 0
                progress(Progress(finished, total, problems, len(rendered), plan.engine.tokens_sampled))
    return total, plan.engine.tokens_sampled if total else 0, None, len(writer.set_aside)


def _capture_adaptively(
    plan: Plan, out: Path, rendered: list[_Rendered], progress: Callable[[Progress], None]
) -> Outcome:
    """Sample rollouts of every problem until its rule stops, a few at a time."""
    completed = _open_writer(plan, out)  # checks the run record, and completes what a killed capture left
    completed.close()
    watches = Watches(plan, open_pool(out))
    prompts = {prompt.question.problem_id: prompt for prompt in rendered}
    sampled = tokens = 0
    with _open_writer(plan, out) as writer:
        for wave in watches.waves():
            wanted = [(prompts[problem], rollouts) for problem, rollouts in wave.items()]
            with closing(_sample(plan, writer, wanted)) as completions:
                for place, done in completions:
                    watches.take(wanted[place][0].question.problem_id, done.rollout_index, done.rollout)
                    sampled += 1
                    now = tokens + plan.engine.tokens_sampled
                    progress(Progress(sampled, sampled + watches.left, watches.stopped, len(rendered), now))
            tokens += plan.engine.tokens_sampled
    return sampled, tokens, watches, len(completed.set_aside)


def _render(plan: Plan) -> list[_Rendered]:
    """The prompts as the model sees them, each checked to leave room for an answer."""
    arguments = {} if plan.style is None else template_arguments(plan.style)
    assert plan.places is not None
    rendered = [
        _Rendered(question, place, *encode(plan.engine.tokenizer, question.content, raw=plan.raw, **arguments))
        for question, place in zip(plan.problems, plan.places, strict=True)
    ]
    for prompt in rendered:
        plan.engine.room(prompt.ids, prompt.question.problem_id, plan.sampling.max_tokens)
    return rendered


def _open_writer(plan: Plan, out: Path) -> PoolWriter:
    engine = plan.engine
    sampling = asdict(plan.sampling) | {"raw": plan.raw, "engine": engine.name, "dtype": engine.dtype}
    if plan.adaptive is not None:
        sampling["adaptive"] = asdict(plan.adaptive) | {"preset": plan.preset}
    return PoolWriter(
        out,
        shape=engine.shape,
        vocab=engine.vocab,
        model=engine.model_name,
        task=plan.task,
        style=plan.style,
        sampling=sampling,
        profile=plan.profile,
        provenance=engine.provenance(),
    )


def _sample(
    plan: Plan, writer: PoolWriter, wanted: list[tuple[_Rendered, list[int]]]
) -> Generator[tuple[int, Completion], None, None]:
    """Sample rollouts of problems, and keep each; yields its problem's place in `wanted`, and the rollout as it is kept."""
    if not wanted:
        return
    completions = plan.engine.generate(
        [prompt.ids for prompt, _ in wanted],
        plan.n,
        sampling=plan.sampling,
        batch_size=plan.batch_size,
        keys=[prompt.question.problem_id for prompt, _ in wanted],
        missing=[rollouts for _, rollouts in wanted],
        kinds=[prompt.question.kind for prompt, _ in wanted],
        profile=writer.profile,
    )
    with _closed_afterwards(completions):
        for done in completions:
            prompt, _ = wanted[done.prompt_index]
            if not plan.weights:
                done = done._replace(rollout=replace(done.rollout, weights=None))
            writer.add(
                prompt.question.problem_id,
                done.rollout,
                kind=prompt.question.kind,
                rollout_index=done.rollout_index,
                problem_index=prompt.place,
                text=done.text,
                prompt=prompt.text,
                finish_reason=done.finish_reason,
            )
            yield done.prompt_index, done


@contextmanager
def _closed_afterwards(completions: Iterator[Completion]) -> Iterator[None]:
    """Close an engine's iterator when the block is left, so that its threads and requests end before an error is told.

    Engines return generators as a rule; an iterator that cannot be closed is left as it is.
    """
    try:
        yield
    finally:
        close = getattr(completions, "close", None)
        if close is not None:
            close()
