"""Adaptive requests: rollouts are sampled in rounds until the online selector says that the pick is settled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from radmoe.selection.online import Decision, OnlineSelector, Stopping
from radmoe.selection.rule import Rule
from radmoe.serve.api_request import ApiRequest, Best
from radmoe.serve.backends import Backend, RequestProgress, SampledRollouts, in_thread
from radmoe.types import Rollout


@dataclass(frozen=True)
class Adapted:
    """All rollouts that were sampled, and why no more were."""

    sampled: SampledRollouts
    reason: str


async def sample_adaptively(backend: Backend, ask: ApiRequest, best: Best, progress: RequestProgress) -> Adapted:
    """Sample rounds of a request until its pick is settled, or best.n rollouts are there.

    The pick is the preset's, except that the texts of answers are not compared while rollouts come in. The kind of answer
    is inferred from the first round.
    """
    stopping = Stopping()
    whole = await backend.sample(ask, min(stopping.min_n, best.n), best, progress)
    if whole.rollouts is None or whole.reading is None or whole.reading.kind is None or whole.router is None:
        return Adapted(whole, "nothing to compare")  # more rollouts would not change that
    selector = OnlineSelector(
        whole.router.captured,
        whole.router.vocab,
        kind=whole.reading.kind,
        most=best.n,
        stopping=stopping,
        rule=Rule(preset=best.preset, compare="routing"),
    )
    fresh = await in_thread(whole.rollouts)
    known = list(fresh)
    while True:
        decision = await in_thread(_add, selector, fresh)
        if decision.stop:
            return Adapted(_with(whole, known), decision.reason)
        first = len(known)
        settled = replace(best, kind=whole.reading.kind)
        part = await backend.sample(ask, decision.needed, settled, progress, first=first)
        if part.rollouts is None:  # another server answered, which gives no routing
            return Adapted(_with(whole, known), "no more routing")
        fresh = await in_thread(part.rollouts)
        known += fresh
        whole = _joined(whole, part)


def _with(whole: SampledRollouts, rollouts: list[Rollout]) -> SampledRollouts:
    """Return a copy of `whole` with these rollouts, so that they are not decoded again."""
    return replace(whole, rollouts=lambda: rollouts)


def _add(selector: OnlineSelector, rollouts: list[Rollout]) -> Decision:
    """The decision after the last of these rollouts."""
    return [selector.add(rollout) for rollout in rollouts][-1]


def _joined(whole: SampledRollouts, part: SampledRollouts) -> SampledRollouts:
    """Both rounds as one: tokens add up, and the prompt counts once."""
    tokens = whole.tokens + part.tokens
    prompt = whole.usage["prompt_tokens"]
    likelihoods = None
    if whole.likelihoods is not None and part.likelihoods is not None:
        likelihoods = whole.likelihoods + part.likelihoods
    usage = whole.usage | {"completion_tokens": tokens, "total_tokens": prompt + tokens}
    return replace(whole, choices=whole.choices + part.choices, usage=usage, tokens=tokens, likelihoods=likelihoods)
