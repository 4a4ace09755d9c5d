"""Routing for rollouts that exist as tokens or texts: a teacher-forced pass over each through a local model.

Replay is no capture. It gives the routing the local model would have had, in its own arithmetic; where the
source has the routing that was captured while sampling, each run's `extra` says how many expert sets agree.
A text that is tokenised again may not come out as the tokens that were sampled: the record says which it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.kept_rows import filler, kept, spans
from radmoe.engines.replay.sources import Given, open_source
from radmoe.errors import InputError
from radmoe.pool import PoolWriter, Profile, open_pool
from radmoe.types import Rollout, RouterShape

if TYPE_CHECKING:
    from radmoe.engines.torch.engine import TransformersEngine

NOTE = "extra.agreement of each run: (row, layer) expert sets equal to the source's captured ones, of those compared"


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
    """What a replay did; `agreement` is the whole pool's, None where the source has no captured routing."""

    pool: str
    problems: int
    rollouts: int
    replayed: int
    tokens: int
    agreement: Agreement | None


def replay(
    source: str | Path,
    model: str | Path | TransformersEngine,
    out: str | Path,
    *,
    name: str | None = None,
    profile: Profile | None = None,
    weights: bool = True,
    raw: bool = False,
    retokenise: bool = False,
    rounding: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Replayed:
    """Replay a JSONL file or a pool (see `replay_sources`) through `model` into the pool `out`.

    With the readouts of a `profile` only the rows their windows need are computed, up to the last of them.
    `progress` is told rollouts done and in all. What `out` already holds is not replayed again, so that an
    interrupted call goes on; another source, model or setting is another pool, which the pool says.
    `rounding` "vllm-cpu" or "vllm-cpu-eager" imitates, in bfloat16, the engine that sampled (see `vllm_rounding`).
    """
    from radmoe import __version__
    from radmoe.engines.torch.engine import TransformersEngine

    engine = model if isinstance(model, TransformersEngine) else TransformersEngine(model)
    if rounding is not None:
        from radmoe.engines.replay.rounding import check_rounding

        check_rounding(engine.model, rounding)
    given = open_source(source, engine.tokenizer, engine.vocab, raw=raw, retokenise=retokenise)
    profile = profile or Profile()
    record = given.record | {
        "engine": "replay",
        "dtype": engine.dtype,
        "weights": weights,
        "agreement": NOTE,
        "versions": {"radmoe": __version__} | engine.versions,
    }
    record |= {} if rounding is None else {"rounding": rounding}
    called = name or (Path(model).resolve().name if not isinstance(model, TransformersEngine) else "replayed")
    total = sum(given.count(problem) for problem in given.problems)
    replayed = tokens = 0
    with PoolWriter(
        out, shape=engine.shape, vocab=engine.vocab, model=called, sampling=record, profile=profile
    ) as writer:
        before = {problem: writer.done(problem) for problem in given.problems}
        done = sum(min(before[problem], given.count(problem)) for problem in given.problems)
        for problem in given.problems:
            if before[problem] >= given.count(problem):
                continue
            for place, one in enumerate(given.rollouts(problem)):
                if place < before[problem]:
                    continue
                rollout, computed = _forced(engine, one, profile, weights, rounding)
                extra: dict[str, object] = {"tokens": one.tokens}
                if (found := _agreement(one, rollout, computed, engine.shape)) is not None:
                    extra["agreement"] = [found.same, found.of]
                writer.add(
                    problem,
                    rollout,
                    rollout_index=one.rollout_index,
                    text=one.text,
                    prompt=one.prompt,
                    finish_reason=one.finish_reason,
                    extra=extra,
                )
                done, replayed, tokens = done + 1, replayed + 1, tokens + len(rollout)
                if progress is not None:
                    progress(done, total)
    return Replayed(str(out), len(given.problems), total, replayed, tokens, agreement(out))


def agreement(pool: str | Path) -> Agreement | None:
    """Replay against capture, over all runs of a replayed pool that could be compared; None where none could."""
    extras = (json.loads(extra) for extra in open_pool(pool).runs(["extra"])["extra"].to_pylist() if extra)
    pairs = [extra["agreement"] for extra in extras if "agreement" in extra]
    return Agreement(sum(same for same, _ in pairs), sum(of for _, of in pairs)) if pairs else None


def _forced(
    engine: TransformersEngine, one: Given, profile: Profile, weights: bool, rounding: str | None
) -> tuple[Rollout, NDArray[np.int64]]:
    """The rollout with the routing of one pass, and the token positions whose rows were asked for.

    Rows no readout asks for are not computed where they come last; they carry experts 0..K-1, and no pool keeps them.
    """
    count, prompt, shape = len(one.token_ids), len(one.prompt_ids), engine.shape
    where = f"rollout {one.rollout_index} of problem {one.problem_id!r}"
    if not prompt:
        raise InputError(f"{where} has a prompt of zero tokens: R(0) is the row of a prompt's last token")
    if engine.context is not None and prompt + count > engine.context:
        raise InputError(
            f"{where} has {prompt} + {count} tokens and the model's context is {engine.context}: leave it out, "
            "or replay with the model that sampled it"
        )
    ids, mass = filler(count, shape)
    sampled, top = (None, None) if one.captured is None else (one.captured.sampled_logprobs, one.captured.topk_logprobs)
    wanted = kept(profile, one.token_ids, engine.vocab)
    if len(wanted):
        stop = int(wanted[-1]) + 1
        tokens = [*one.prompt_ids, *one.token_ids[: stop - 1].tolist()]
        if rounding is None:
            forced = engine.teacher_forced(tokens)
        else:
            from radmoe.engines.replay.rounding import forced_as_vllm

            forced = forced_as_vllm(engine, tokens, prompt, rounding)
        ids[:stop], mass[:stop] = (column[prompt - 1 :] for column in forced)
    return Rollout(one.token_ids, ids, mass if weights else None, sampled, top), wanted


def _agreement(one: Given, mine: Rollout, computed: NDArray[np.int64], shape: RouterShape) -> Agreement | None:
    """Against the routing the source captured, where it has rows of the same router."""
    if one.captured is None:
        return None
    rows = computed if one.captured.kept is None else np.intersect1d(computed, one.captured.kept)
    same = of = 0
    for start, stop in spans(rows):
        theirs, _ = one.captured.rows(start, stop, weights=False)
        ours = mine.expert_ids[start:stop]
        ours = ours if one.layers is None else ours[:, list(one.layers)]
        if theirs.shape != ours.shape:
            raise InputError(
                f"the source's router has rows of {theirs.shape[1:]}, the model's {shape}: replay with the model that sampled it"
            )
        equal = (np.sort(theirs, -1) == np.sort(ours, -1)).all(-1)
        same, of = same + int(equal.sum()), of + equal.size
    return Agreement(same, of)
