"""What a replication will take: two short trials on the very hardware, and arithmetic.

The wide trial samples as many rollouts at once as the capture will, and gives the speed. The deep one samples a few, so that
they get further in the same time, and gives the length: that of rollouts which end at a constant rate, of which some were cut
off (tokens over ends). Where none ended, only bounds are known: all end now, or all run to the limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from radmoe.problems import Question
from radmoe.types import RouterShape
from radmoe_studies.replicate.setup import Setup

WIDE_SECONDS, DEEP_SECONDS = 30.0, 90.0
DEEP = 16  # rollouts of the deep trial
FIRST, GROWTH = 64, 4  # tokens of the first round, and how much longer each further one is
ASSUMED_ROWS = {
    "code": 500
}  # that the windows of a rollout keep where no rollout of the trial has any: a program's tokens
ASSUMED_ROWS_ELSE = 32
_TOKEN_BYTES = 4 + 4  # id and log-probability
_LOGPROB_BYTES = 2


@dataclass(frozen=True)
class Trial:
    """Rollouts that were sampled at once up to `cap` tokens each: how many, the tokens and seconds, and how many ended.

    `rows` is the mean number of rows that the windows of those that ended keep, where any did.
    """

    rollouts: int
    cap: int
    tokens: int
    ended: int
    seconds: float
    rows: float | None
    weights: bool


def run_trial(
    setup: Setup, questions: Sequence[Question], rollouts: int, seconds: float, tell: Callable[[str], None]
) -> Trial:
    """Sample rollouts of evenly spread questions in rounds, each GROWTH times as long, while the next fits into the time."""
    places = [i * len(questions) // rollouts for i in range(rollouts)]
    asked = sorted(set(places))
    wanted = [list(range(places.count(place))) for place in asked]
    engine, profile, most = setup.engine, setup.profile, setup.sampling.max_tokens
    cap, left = min(FIRST, most), seconds
    while True:
        began = time.perf_counter()
        lengths, kept, weights = [], [], False
        for done in engine.generate(
            [setup.ids(questions[place].content) for place in asked],
            max(map(len, wanted)),
            sampling=replace(setup.sampling, max_tokens=cap),
            batch_size=rollouts,
            keys=[questions[place].problem_id for place in asked],
            missing=wanted,
            kinds=[questions[place].kind for place in asked],
            profile=profile,
        ):
            lengths.append(len(done.rollout))
            weights = done.rollout.weights is not None
            if done.finish_reason == "stop":
                rows = profile.kept_rows(done.rollout.token_ids, engine.vocab, questions[asked[done.prompt_index]].kind)
                kept.append(len(done.rollout) if rows is None else len(rows))
        took = time.perf_counter() - began
        made = Trial(rollouts, cap, sum(lengths), len(kept), took, sum(kept) / len(kept) if kept else None, weights)
        tell(f"{made.ended} of {rollouts} rollouts ended within {cap:,} tokens, {made.tokens / took:,.0f} tokens/s")
        left -= took
        if made.ended == rollouts or cap == most or GROWTH * took > left:
            return made
        cap = min(GROWTH * cap, most)


@dataclass(frozen=True)
class Estimate:
    """What all rollouts of a replication will take on this hardware. Bytes are those before compression.

    `low` and `high` bound the mean length of a rollout in tokens, and `tokens` lies between them.
    """

    rollouts: int
    speed: float
    tokens: float
    low: float
    high: float
    windows: float  # bytes of routing that is kept in windows
    routing: float  # and of all routing
    texts: float  # bytes of tokens and log-probabilities

    @property
    def hours(self) -> float:
        return self.rollouts * self.tokens / self.speed / 3600

    def __str__(self) -> str:
        low, high = (self.hours * length / self.tokens for length in (self.low, self.high))
        bounds = "" if self.low == self.high else f" ({_hours(low)} to {_hours(high)})"
        return (
            f"{self.rollouts:,} rollouts of about {self.tokens:,.0f} tokens at {self.speed:,.0f} tokens/s: "
            f"{_hours(self.hours)} on this hardware{bounds}"
        )


def _hours(hours: float) -> str:
    return (
        f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.0f} minutes" if hours >= 1 / 30 else "a minute or two"
    )


def estimate(
    setup: Setup, questions: Sequence[Question], n: int, tell: Callable[[str], None] = lambda line: None
) -> Estimate:
    """Run the trials, and compute from them what n rollouts of every question take."""
    total, most = n * len(questions), setup.sampling.max_tokens
    wide = run_trial(setup, questions, min(setup.batch_size, total), WIDE_SECONDS, tell)
    deep = wide
    if wide.ended < wide.rollouts and wide.cap < most and wide.rollouts > DEEP:
        deep = run_trial(setup, questions, DEEP, DEEP_SECONDS, tell)
    assumed = [ASSUMED_ROWS.get(question.kind or "", ASSUMED_ROWS_ELSE) for question in questions]
    rows = next((trial.rows for trial in (deep, wide) if trial.rows is not None), sum(assumed) / len(assumed))
    low, tokens, high = mean_length(deep, most)
    per_row = row_bytes(setup.profile.stored_shape(setup.engine.shape), weights=wide.weights)
    text = _TOKEN_BYTES + _LOGPROB_BYTES * setup.sampling.topk_logprobs
    return Estimate(
        total,
        wide.tokens / wide.seconds,
        tokens,
        low,
        high,
        windows=total * min(rows, tokens) * per_row,
        routing=total * tokens * per_row,
        texts=total * tokens * text,
    )


def mean_length(trial: Trial, most: int) -> tuple[float, float, float]:
    """The least, likely and greatest mean length of rollouts of up to `most` tokens, from a trial that was cut off earlier."""
    low = trial.tokens / trial.rollouts
    high = (trial.tokens + (trial.rollouts - trial.ended) * (most - trial.cap)) / trial.rollouts
    if not trial.ended:
        return low, high, high
    mean = trial.tokens / trial.ended  # of an exponential law, from what was cut off too
    return low, min(max(low, mean * -math.expm1(-most / mean)), high), high


def row_bytes(shape: RouterShape, *, weights: bool) -> int:
    """The bytes of the routing of one token: int16 ids, and float16 weights where there are any."""
    return shape.layers * shape.top_k * (4 if weights else 2)
