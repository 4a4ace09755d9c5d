"""Samples the rollouts that the checks need, and yields their findings in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import remedy, untried_vllm
from radmoe.engines.base import Engine, Observation, Sampling
from radmoe.engines.doctor import checks
from radmoe.engines.doctor.checks import FAILED, OK, SKIPPED, WARNING, Finding
from radmoe.engines.kept_rows import format_layers
from radmoe.errors import EngineError, RadmoeError
from radmoe.types import Rollout, RolloutGroup, RouterShape

_TEXT = (
    "A train leaves the town at nine and another at ten; the second is faster by a third. "
    "When does it catch up with the first, and how far from the town? Let us write what we know, step by step."
)
_PROMPT, _TOKENS, _ROLLOUTS = 72, 16, 4  # four blocks of a prefix cache, and a few tokens
_COMPARED = 16  # rollouts whose densities are computed twice


OpenReference = Callable[[Engine], Engine | None]
Routed = tuple[NDArray[np.int16], NDArray[np.float32]]  # ids and weights of a pass


def examine(
    open_engine: Callable[[], Engine],
    name: str,
    *,
    open_reference: OpenReference | None = None,
    seed: int | None = None,
) -> Iterator[Finding]:
    """Check one engine with seven short rollouts, and sixteen more where they can be replayed; yields findings as they come.

    `open_engine` makes the engine (one over a server with probe=False). An EngineError that it raises is the first
    finding; an InputError is a wrong call, and is raised.
    `name` is the engine's, and decides what is advised. An engine that cannot replay tokens itself is compared with the
    one that `open_reference` opens, if any. `seed` chooses the prompt; without one it is a prompt that a server's cache
    cannot know from an earlier check-up.
    """
    for finding in _findings(open_engine, open_reference, seed):
        wrong = finding.status in (FAILED, WARNING)
        yield replace(finding, todo=finding.todo or remedy(name, finding.check)) if wrong else finding


def _findings(
    open_engine: Callable[[], Engine], open_reference: OpenReference | None, seed: int | None
) -> Iterator[Finding]:
    try:
        engine = open_engine()
    except EngineError as error:
        yield Finding("engine", FAILED, str(error))
        return
    versions = ", ".join(f"{what} {version}" for what, version in engine.versions.items())
    untried = untried_vllm(engine.versions["vllm"]) if "vllm" in engine.versions else ""
    seen = f"{engine.name}, router {engine.shape}{', ' + versions if versions else ''}"
    yield Finding("engine", WARNING if untried else OK, seen, untried)
    yield _tokenizer(engine)
    prompt = _prompt(engine, random.Random(seed))
    greedy = Sampling(temperature=0, max_tokens=_TOKENS)
    try:
        first = engine.observe(prompt, greedy, 0)
        again = engine.observe(prompt, greedy, 0)
        drawn = [engine.observe(prompt, replace(greedy, temperature=1.0), r) for r in (*range(1, _ROLLOUTS), 1)]
        other = engine.observe(_changed(prompt), greedy, 0)
    except RadmoeError as error:
        yield Finding("answers", FAILED, str(error))
        return
    yield Finding("answers", OK, f"{len(prompt)} prompt tokens, {len(first.tokens)} sampled, {_ROLLOUTS + 3} rollouts")
    if first.ids is None:
        yield Finding("routing", FAILED, "no routing came with the tokens")
        return
    kind = "expert ids and weights" if first.weights is not None else "expert ids"
    yield Finding("routing", OK, f"{kind} of shape {list(first.ids.shape)}")
    counted = checks.rows(first)
    yield counted
    layers = _layers(engine, first)
    yield layers
    if layers.status == FAILED:
        return
    first, again, *drawn, other = (_with_experts(engine, seen) for seen in (first, again, *drawn, other))
    yield from _rows(engine, first, drawn[0])
    if counted.status != OK:
        yield Finding("alignment", SKIPPED, "with another number of rows than positions, no row has a position")
        return
    yield checks.repeatable(first, again)
    yield _seed(drawn[0], drawn[-1])
    yield checks.prefix_cache(first, again)
    yield checks.alignment([first, *drawn[:-1], other])
    yield from _reference(engine, open_reference, [first, *drawn[:-1]], replace(greedy, temperature=1.0))


def _rows(engine: Engine, greedy: Observation, drawn: Observation) -> Iterator[Finding]:
    """The checks that need the rows of one rollout only. A greedy rollout may repeat one token; a sampled one does not."""
    assert greedy.ids is not None
    assert drawn.ids is not None
    yield checks.in_range(greedy.ids, engine.shape)
    yield checks.zeros(greedy.ids)
    yield checks.constant(drawn.ids)
    yield checks.experts_differ(greedy.ids)
    yield checks.repeated_rows(drawn)
    yield checks.weights(greedy)
    yield checks.logprobs(greedy)


def _prompt(engine: Engine, rng: random.Random) -> list[int]:
    """The tokens of a text, after some that are drawn from it, so that no cache has seen them in this order."""
    ids = list(engine.tokenizer(_TEXT)["input_ids"])
    ids = [rng.choice(ids) for _ in range(4)] + ids
    return ids[: min(_PROMPT, engine.room(ids[:4], "check-up", 10**6) // 2)]


def _changed(prompt: list[int]) -> list[int]:
    """The prompt with one token in its middle replaced by another of its tokens."""
    at = len(prompt) // 2
    return [*prompt[:at], next(token for token in prompt if token != prompt[at]), *prompt[at + 1 :]]


def _tokenizer(engine: Engine) -> Finding:
    try:
        compared = engine.check_tokenizer()
    except RadmoeError as error:
        return Finding("tokenizer", FAILED, str(error))
    if not compared:
        return Finding("tokenizer", SKIPPED, "there is no other tokenizer to compare with")
    return Finding("tokenizer", OK, f"{len(engine.vocab):,} tokens, and the server spells a test text alike")


def _with_experts(engine: Engine, seen: Observation) -> Observation:
    """The observation without the layers that have no experts, where a server counts them."""
    if seen.ids is None or not _counts_dense(engine, seen):
        return seen
    weights = None if seen.weights is None else np.delete(seen.weights, seen.dense, axis=1)
    return seen._replace(ids=np.delete(seen.ids, seen.dense, axis=1), weights=weights)


def _counts_dense(engine: Engine, seen: Observation) -> bool:
    """Whether the layers of an observation are all layers of the model, those without experts included."""
    assert seen.ids is not None
    return bool(seen.dense) and seen.ids.shape[1] == engine.shape.layers + len(seen.dense)


def _layers(engine: Engine, seen: Observation) -> Finding:
    assert seen.ids is not None
    (_, there, top_k), shape, captured = seen.ids.shape, engine.shape, engine.layers
    if top_k != shape.top_k:
        return Finding("layers", FAILED, f"{there} layers, top-{top_k} came, the router is {shape}")
    if captured is not None and there == len(captured):
        return Finding("layers", OK, f"layers {format_layers(captured)} of {shape.layers} with experts, top-{top_k}")
    if there == shape.layers:
        return Finding("layers", OK, f"{there} layers with experts, top-{top_k}")
    if not _counts_dense(engine, seen):
        return Finding("layers", FAILED, f"{there} layers came, the router is {shape}")
    dense = list(seen.dense)
    if seen.ids[:, dense].any():
        return Finding("layers", FAILED, f"layers {dense} have routing, and config.json gives them no experts")
    return Finding("layers", OK, f"{there} layers, {shape.layers} with experts; {dense} are dense, their rows zero")


def _seed(a: Observation, b: Observation) -> Finding:
    if a.tokens == b.tokens:
        return Finding("seed", OK, "one seed gives one rollout")
    return Finding("seed", WARNING, "one seed gave two rollouts: a resumed capture is another draw, not a wrong one")


def _reference(
    engine: Engine, open_reference: OpenReference | None, seen: list[Observation], sampling: Sampling
) -> Iterator[Finding]:
    try:
        reference = engine if engine.replays else None
        if reference is None and open_reference is not None:
            reference = open_reference(engine)
        if reference is None:
            yield Finding("reference", SKIPPED, "no weights to replay with: --reference DIR compares row by row")
            return
        passes = [_replayed(engine, reference, one) for one in seen]
    except RadmoeError as error:
        yield Finding("reference", SKIPPED, str(error))
        return
    rows = seen[0].ids
    assert rows is not None
    there = passes[0][0].shape[1:]
    if there != rows.shape[1:]:
        yield Finding("reference", FAILED, f"the replay has rows of {there}, the engine of {rows.shape[1:]}")
        return
    compared = checks.against(seen, [ids for ids, _ in passes])
    yield compared
    if compared.status == OK:
        yield _noise(engine, reference, seen[0].prompt, sampling)


def _replayed(engine: Engine, reference: Engine, seen: Observation) -> Routed:
    """The routing [S, L, K] of a second pass over a rollout's tokens, of the layers that the engine captures."""
    ids, weights = reference.teacher_forced(list(seen.sequence[:-1]))
    layers = slice(None) if engine.layers is None else list(engine.layers)
    return ids[:, layers], weights[:, layers]


def _noise(engine: Engine, reference: Engine, prompt: Sequence[int], sampling: Sampling) -> Finding:
    """Compare the densities of a few rollouts more with those of a second pass, which has weights only where the engine gives them."""
    groups: tuple[list[Rollout], list[Rollout]] = [], []
    try:
        for number in range(_ROLLOUTS, _ROLLOUTS + _COMPARED):
            one = _with_experts(engine, engine.observe(list(prompt), sampling, number))
            assert one.ids is not None
            tokens, at = np.array(one.tokens), np.arange(len(one.tokens)) + len(one.prompt) - 1
            own = None if one.weights is None else one.weights[at - one.first]
            ids, weights = _replayed(engine, reference, one)
            groups[0].append(Rollout(tokens, one.ids[at - one.first], own))
            groups[1].append(Rollout(tokens, ids[at], None if own is None else weights[at].astype(np.float16)))
        layers = groups[0][0].expert_ids.shape[1]
        shape = RouterShape(layers, engine.shape.experts, engine.shape.top_k)
        return checks.noise(*(RolloutGroup("check-up", group, shape, engine.vocab) for group in groups))
    except RadmoeError as error:  # rows that are no routing, which other checks name
        return Finding("noise", SKIPPED, str(error))
