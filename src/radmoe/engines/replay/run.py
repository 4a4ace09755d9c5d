"""Routing for rollouts that exist as tokens or texts: a teacher-forced pass over each through a local model.

Replay does not replace capture. It gives the routing that the local model would have had, in its own arithmetic. Where
the source has the routing that was captured while sampling, `extra.agreement` of each run says how many (row, layer)
expert sets are equal, and how many were compared. A text that is tokenised again may not give the tokens that were
sampled: `extra.tokens` says which of the two it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.engines import open_engine
from radmoe.engines.base import Engine, Forced, Sampling
from radmoe.engines.kept_rows import check_profile
from radmoe.engines.replay.sources import Source, SourceRollout, open_source
from radmoe.errors import InputError
from radmoe.pool import PoolWriter, Profile, open_pool
from radmoe.pool.work import Making, Name, fill
from radmoe.system.side_by_side import in_order
from radmoe.types import Kind, Rollout, RouterShape, Step, check_kind

_MOST = 256  # rollouts of one prompt that are in memory at once


@dataclass(frozen=True)
class Agreement:
    """Expert sets (row, layer) that a replay and the captured routing have in common."""

    same: int
    of: int

    @property
    def share(self) -> float:
        return self.same / self.of if self.of else float("nan")

    def __str__(self) -> str:
        return f"{self.same:,} of {self.of:,} expert sets agree with the captured ones ({self.share:.2%})"


@dataclass(frozen=True)
class Replayed:
    """Counts of a replay. `agreement` is that of the whole pool; None if the source has no captured routing."""

    pool: str
    problems: int
    rollouts: int
    replayed: int
    tokens: int
    agreement: Agreement | None

    @classmethod
    def of(cls, out: str | Path, problems: int, rollouts: int, replayed: int, tokens: int) -> Self:
        """The result of a replay with these counts. Its agreement is read from the pool at `out`."""
        return cls(str(out), problems, rollouts, replayed, tokens, agreement(out))


def replay(
    source: str | Path | Source,
    model: str | Path | Engine,
    out: str | Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Replayed:
    """Replay a JSONL file or a pool, or any other `Source` (see `sources`), through `model` into the pool `out`.

    `options` are those of `ReplayWork`. `progress` is told rollouts done and rollouts in all. What `out` holds already is
    not replayed again, so that an interrupted call can be repeated to go on; another source, model or setting needs
    another pool, and PoolMismatch says so. Every rollout of the source is checked before `out` is touched: an InputError
    for a bad line leaves no pool behind.
    """
    return replay_work(ReplayWork(source, model, **options), out, progress=progress)


def replay_work(work: ReplayWork, out: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Replayed:
    """Replay in this process what the pool `out` lacks of a work."""
    total = len(work.names)
    tell = progress or (lambda done, of: None)
    done = fill(work, out, lambda now: tell(total - now.of_rollouts + now.rollouts, total))
    return Replayed.of(out, len({problem for problem, _ in work.names}), total, done.rollouts, done.tokens)


class ReplayWork:
    """The rollouts of a source, to be replayed by one process or by several.

    `model` is an engine that replays, or the name of a model for the engine transformers. `kind` says what answers look
    like where the source does not; one that contradicts the source is an InputError. With the readouts of a `profile`
    only the rows that their windows need are kept. `raw` leaves the chat template out, and `retokenise` takes texts
    even where token ids are there.

    Log-probabilities are those that the source captured; where it has none, those of the pass are kept, of the given
    token and the `topk_logprobs` largest. With 0 there are none, and a pass ends at the last row that is kept.

    Rollouts of one prompt share its pass and run as a batch, on all cores. A trajectory of several turns is one pass over
    everything that the model was given and generated, or several where a turn's request did not go on from the one
    before (`passes`).
    """

    batch_size = _MOST

    def __init__(
        self,
        source: str | Path | Source,
        model: str | Path | Engine,
        *,
        kind: Kind | None = None,
        profile: Profile | None = None,
        weights: bool = True,
        raw: bool = False,
        retokenise: bool = False,
        topk_logprobs: int = Sampling.topk_logprobs,
    ) -> None:
        engine = open_engine("transformers", str(model)) if isinstance(model, str | Path) else model
        if not engine.replays:
            raise InputError(f"{engine.name} cannot run a pass over given tokens: replay with the engine transformers")
        profile = profile or Profile()
        if isinstance(source, str | Path):
            self._source: Source = open_source(source, engine.tokenizer, engine.vocab, raw=raw, retokenise=retokenise)
        else:
            self._source = source
        self._kinds = _settled_kinds(self._source, kind, source)
        check_profile(profile, None, engine.vocab, self._kinds.values())
        topk_logprobs = 0 if self._source.has_logprobs else topk_logprobs
        record = self._source.record | {"engine": "replay", "dtype": engine.dtype, "weights": weights}
        record |= {"topk_logprobs": topk_logprobs} if topk_logprobs else {}
        self._passes = _Passes(engine, profile, weights, topk_logprobs)
        self.names: Sequence[Name] = []
        for problem in self._source.problems:
            for one in self._source.rollouts(problem):
                self._passes.checked(one)
                self.names.append((problem, one.rollout_index))
        self.record: dict[str, Any] = {
            "shape": engine.shape,
            "vocab": engine.vocab,
            "model": engine.model_name,
            "task": self._source.task,
            "style": self._source.style,
            "sampling": record,
            "profile": profile,
            "provenance": engine.provenance(),
        }

    def make(self, names: Sequence[Name], writer: PoolWriter) -> Making:
        """Replay these rollouts and keep them."""
        wanted = set(names)
        problems = {problem for problem, _ in names}
        pending = (
            (place, problem, members)
            for place, problem in enumerate(self._source.problems)
            if problem in problems
            for members in _together(
                one for one in self._source.rollouts(problem) if (problem, one.rollout_index) in wanted
            )
        )
        engine = self._passes.engine
        with closing(
            in_order(lambda batch: self._passes(batch[2], self._kinds[batch[1]]), pending, engine.streams)
        ) as batches:
            for (place, problem, members), made in batches:
                for one, rollout in zip(members, made, strict=True):
                    extra: dict[str, object] = one.extra | {"tokens": one.tokens}
                    if (agreed := _agreement(one, rollout, engine.shape)) is not None:
                        extra["agreement"] = [agreed.same, agreed.of]
                    writer.add(
                        problem,
                        rollout,
                        kind=self._kinds[problem],
                        rollout_index=one.rollout_index,
                        problem_index=place,
                        text=one.text,
                        prompt=one.prompt,
                        finish_reason=one.finish_reason,
                        extra=extra,
                    )
                    yield (problem, one.rollout_index), len(rollout)


def agreement(pool: str | Path) -> Agreement | None:
    """The agreement of replayed with captured routing over all runs of a pool; None if no run has both."""
    extras = open_pool(pool).runs(["extra"])["extra"].to_pylist()
    pairs = [pair for extra in extras if extra and (pair := _recorded_agreement(extra)) is not None]
    return Agreement(sum(same for same, _ in pairs), sum(of for _, of in pairs)) if pairs else None


def _recorded_agreement(extra: str) -> tuple[int, int] | None:
    """The agreement that a run's `extra` records; None if it records none, or something that no replay writes."""
    try:
        match json.loads(extra):
            case {"agreement": [int(same), int(of)]}:
                return same, of
    except (ValueError, RecursionError):
        pass
    return None


class Pass(NamedTuple):
    """One pass over a sequence: the tokens before the first generated one, and then, as `tail`, that one and all that follow.

    `places` has the place in `tail` of each token that was generated in this pass. R(t) of a generated token is the row
    of the position before its place.
    """

    prompt: tuple[int, ...]
    tail: list[int]
    places: NDArray[np.int64]


def passes(turns: Sequence[Step], token_ids: NDArray[np.int32]) -> list[Pass]:
    """The passes that give the routing of all generated tokens, in their order.

    Turns of a history that only grows are one pass. A turn whose request did not go on from the one before (a chat
    template drops earlier reasoning, say) begins a pass of its own.
    """
    made: list[Pass] = []
    sequence: list[int] = []
    stops = [*(step.start for step in turns[1:]), len(token_ids)]
    for (given, start, kept), stop in zip(turns, stops, strict=True):
        goes_on = bool(made) and kept in (None, len(sequence))
        sequence = [*(sequence if kept is None else sequence[:kept]), *given]
        if not goes_on:
            made.append(Pass(tuple(sequence), [], np.empty(0, np.int64)))
        prompt, tail, places = made[-1]
        place = len(sequence) - len(prompt)
        sequence += token_ids[start:stop].tolist()
        tail[:] = sequence[len(prompt) :]
        made[-1] = Pass(prompt, tail, np.append(places, np.arange(place, place + stop - start)))
    return made


def _settled_kinds(source: Source, kind: Kind | None, where: str | Path | Source) -> dict[str, Kind | None]:
    """The kind of each problem: that of the source, or else the one that was given."""
    if kind is not None:
        check_kind(kind)
        for problem, recorded in source.kinds.items():
            if recorded not in (None, kind):
                raise InputError(
                    f"{where} says that problem {problem!r} is of kind {recorded}, --kind {kind} contradicts it: "
                    "leave --kind out"
                )
    return {problem: recorded or kind for problem, recorded in source.kinds.items()}


def _together(rollouts: Iterable[SourceRollout]) -> Iterator[list[SourceRollout]]:
    """Group neighbouring rollouts of one prompt into batches that run together."""
    for _, same in groupby(rollouts, key=lambda one: one.turns[0].given):
        while members := list(islice(same, _MOST)):
            yield members


@dataclass(frozen=True)
class _Passes:
    """Turns rollouts of one prompt into rollouts with routing, by passes of the engine."""

    engine: Engine
    profile: Profile
    weights: bool
    topk_logprobs: int

    def __call__(self, rollouts: Sequence[SourceRollout], kind: Kind | None) -> list[Rollout]:
        """The rollouts with the rows that the profile keeps, of all layers."""
        every = [self.checked(one) for one in rollouts]
        positions = [
            self.profile.kept_rows(one.token_ids, self.engine.vocab, kind, [step.start for step in one.steps])
            for one in rollouts
        ]
        kept = [_kept_places(own, rows) for own, rows in zip(every, positions, strict=True)]
        forced = self._forced(every, kept)
        made = []
        for one, own, rows, places, passed in zip(rollouts, every, positions, kept, forced, strict=True):
            # Row r of a pass is that of the position before token r of the tail.
            ids = np.concatenate([each.ids[row] for each, row in zip(passed, places, strict=True)])
            mass = [each.weights[row].astype(np.float16) for each, row in zip(passed, places, strict=True)]
            sampled: NDArray[np.float32] | None = None
            top: NDArray[np.float32] | None = None
            if one.captured is not None and one.captured.sampled_logprobs is not None:
                sampled, top = one.captured.sampled_logprobs, one.captured.topk_logprobs
            elif self.topk_logprobs:
                sampled, top = (
                    np.concatenate([np.asarray(getattr(f, name))[p.places] for f, p in zip(passed, own, strict=True)])
                    for name in ("sampled_logprobs", "topk_logprobs")
                )
            weights = np.concatenate(mass) if self.weights else None
            made.append(Rollout(one.token_ids, ids, weights, sampled, top, rows, one.steps))
        return made

    def checked(self, one: SourceRollout) -> list[Pass]:
        """The passes of a rollout; InputError where one has no prompt, or does not fit the model's context."""
        every, context = passes(one.turns, one.token_ids), self.engine.context
        for prompt, tail, _ in every:
            if not prompt:
                raise InputError(f"{one.where} has a prompt of zero tokens: R(0) is the row of a prompt's last token")
            if context is not None and len(prompt) + len(tail) > context:
                raise InputError(
                    f"{one.where} has {len(prompt)} + {len(tail)} tokens and the model's context is {context}: leave it "
                    "out, or replay with the model that sampled it"
                )
        return every

    def _forced(self, every: Sequence[Sequence[Pass]], kept: Sequence[list[NDArray[np.int64]]]) -> list[list[Forced]]:
        """Run all passes. Those of one prompt run together, and those of which no row is kept
        not at all."""
        nothing = np.empty((0, self.engine.shape.layers, self.engine.shape.top_k), np.int16)
        forced = [[Forced(nothing, nothing.astype(np.float32))] * len(own) for own in every]
        wanted: dict[tuple[int, ...], list[tuple[int, int, list[int]]]] = {}
        for i, (own, places) in enumerate(zip(every, kept, strict=True)):
            for j, (prompt, tail, _) in enumerate(own):
                if not self.topk_logprobs:
                    tail = tail[: int(places[j][-1]) + 1 if len(places[j]) else 0]
                if tail:
                    wanted.setdefault(prompt, []).append((i, j, tail))
        for prompt, members in wanted.items():
            passed = self.engine.force(prompt, [tail for *_, tail in members], topk_logprobs=self.topk_logprobs)
            for (i, j, _), one in zip(members, passed, strict=True):
                forced[i][j] = one
        return forced


def _kept_places(own: Sequence[Pass], positions: NDArray[np.int32] | None) -> list[NDArray[np.int64]]:
    """For each pass, the places in its tail of the generated tokens whose rows are kept (all where positions is None)."""
    edges = np.cumsum([0, *(len(one.places) for one in own)])
    if positions is None:
        return [one.places for one in own]
    return [
        one.places[positions[(positions >= low) & (positions < high)] - low]
        for one, low, high in zip(own, edges, edges[1:], strict=False)
    ]


def _agreement(one: SourceRollout, mine: Rollout, shape: RouterShape) -> Agreement | None:
    """Agreement with the routing that the source captured, at the rows that both have; None where it has none."""
    if one.captured is None:
        return None
    rows = np.arange(len(mine))
    for positions in (mine.positions, one.captured.positions):
        rows = rows if positions is None else np.intersect1d(rows, positions)
    (theirs, _), (ours, _) = (trace.rows_of(rows, weights=False) for trace in (one.captured, mine))
    ours = ours if one.layers is None else ours[:, list(one.layers)]
    if theirs.shape != ours.shape:
        raise InputError(
            f"the source's router has rows of {theirs.shape[1:]}, the model's {shape}: replay with the model that sampled it"
        )
    equal = (np.sort(theirs, -1) == np.sort(ours, -1)).all(-1)
    return Agreement(int(equal.sum()), equal.size)
