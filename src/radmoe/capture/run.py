"""Samples the rollouts that a pool lacks, and writes each as soon as it is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, Self

from radmoe.capture.adaptive import Watches
from radmoe.capture.plan import Plan
from radmoe.engines.base import Completion
from radmoe.engines.prompts import encode, template_arguments
from radmoe.pool import PoolWriter, open_pool
from radmoe.pool.files import place
from radmoe.pool.reader import safe_rollouts
from radmoe.pool.work import Making, Name, Named, Progress, Tally, fill
from radmoe.problems import Question


@dataclass(frozen=True)
class Captured:
    """The result of a capture. `sampled` counts the rollouts of this call; the others were there before.

    `stopped` says for how many problems an adaptive capture ended for which reason; None where n was fixed. `set_aside` counts the
    records of a killed capture that are damaged or no rollouts, and `given_up` says which workers of a cluster were given up and why.
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
    given_up: tuple[str, ...] = ()

    @classmethod
    def of(cls, out: Path, work: Named, tally: Tally, began: float, given_up: tuple[str, ...] = ()) -> Self:
        """What became of the pool at `out` by a work since the time `began`."""
        return cls(
            pool=str(out),
            problems=len({problem for problem, _ in work.names}),
            rollouts=len(work.names),
            sampled=tally.rollouts,
            tokens=tally.tokens,
            seconds=time.perf_counter() - began,
            router=str(work.record["shape"]),
            set_aside=tally.set_aside,
            given_up=given_up,
        )

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
    out, work = place(out), PlanWork(plan)
    began = time.perf_counter()
    try:
        if plan.adaptive is not None:
            return _capture_adaptively(work, out, progress, began)
        return Captured.of(out, work, fill(work, out, progress), began)
    except KeyboardInterrupt:
        if not out.is_dir():
            raise
        raise interrupted(out) from None


def interrupted(out: Path) -> CaptureInterrupted:
    """What is raised for a Ctrl-C when the pool at `out` has been begun."""
    return CaptureInterrupted(
        f"{safe_rollouts(out):,} rollouts are safe in {out}: run the same command to go on, or "
        f"radmoe verify {quote(str(out))} --recover to use what is there"
    )


class PlanWork:
    """The rollouts of a plan as work that one process or several can do."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.batch_size, self.record = plan, plan.batch_size, _record(plan)
        self.prompts = {prompt.question.problem_id: prompt for prompt in _render(plan)}
        self.names: Sequence[Name] = [(problem, index) for problem in self.prompts for index in range(plan.n)]

    def make(self, names: Sequence[Name], writer: PoolWriter) -> Making:
        """Sample these rollouts and keep them."""
        wanted: dict[str, list[int]] = {}
        for problem, index in names:
            wanted.setdefault(problem, []).append(index)
        listed = [(self.prompts[problem], sorted(indices)) for problem, indices in wanted.items()]
        before = 0
        with closing(_sample(self.plan, writer, listed)) as completions:
            for place, done in completions:
                sampled = self.plan.engine.tokens_sampled
                yield (listed[place][0].question.problem_id, done.rollout_index), sampled - before
                before = sampled


def _capture_adaptively(work: PlanWork, out: Path, progress: Callable[[Progress], None], began: float) -> Captured:
    """Sample rollouts of every problem until its rule stops, a few at a time."""
    completed = PoolWriter(out, **work.record)  # checks the run record, and completes what a killed capture left
    completed.close()
    watches = Watches(work.plan, open_pool(out))
    tally = Tally([], completed)
    before = 0
    with PoolWriter(out, **work.record) as writer:
        for wave in watches.waves():
            wanted = [(work.prompts[problem], rollouts) for problem, rollouts in wave.items()]
            with closing(_sample(work.plan, writer, wanted)) as completions:
                for place, done in completions:
                    watches.take(wanted[place][0].question.problem_id, done.rollout_index, done.rollout)
                    tally.rollouts, tally.tokens = tally.rollouts + 1, before + work.plan.engine.tokens_sampled
                    of = tally.rollouts + watches.left
                    progress(Progress(tally.rollouts, of, watches.stopped, len(work.prompts), tally.tokens))
            before += work.plan.engine.tokens_sampled
    rollouts = sum(len(watch.selector) for watch in watches.each.values())
    return replace(Captured.of(out, work, tally, began), rollouts=rollouts, stopped=watches.reasons())


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


def _record(plan: Plan) -> dict[str, Any]:
    """What the writer of a plan's pool is told."""
    engine = plan.engine
    sampling = asdict(plan.sampling) | {"raw": plan.raw, "engine": engine.name, "dtype": engine.dtype}
    if plan.adaptive is not None:
        sampling["adaptive"] = asdict(plan.adaptive) | {"preset": plan.preset}
    return {
        "shape": engine.shape,
        "vocab": engine.vocab,
        "model": engine.model_name,
        "task": plan.task,
        "style": plan.style,
        "sampling": sampling,
        "profile": plan.profile,
        "provenance": engine.provenance(),
    }


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
    with closing(completions):
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
