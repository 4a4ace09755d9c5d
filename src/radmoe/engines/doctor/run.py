"""The requests a check-up makes, and its findings in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Engine, Sampling
from radmoe.engines.doctor import checks
from radmoe.engines.doctor.checks import FAILED, OK, SKIPPED, WARNING, Finding
from radmoe.engines.doctor.observe import Seen, look
from radmoe.engines.doctor.remedies import remedy
from radmoe.engines.kept_rows import listed
from radmoe.errors import RadmoeError

_TEXT = (
    "A train leaves the town at nine and another at ten; the second is faster by a third. "
    "When does it catch up with the first, and how far from the town? Let us write what we know, step by step."
)
_PROMPT, _TOKENS, _ROLLOUTS = 72, 16, 4  # four blocks of a prefix cache, and a few tokens


class Reference(Protocol):
    """What replays given tokens: `TransformersEngine` does."""

    def teacher_forced(self, token_ids: list[int]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Expert ids and weights [S, L, K] of a pass over S tokens."""


def examine(
    open_engine: Callable[[], Engine],
    name: str,
    *,
    open_reference: Callable[[Engine], Reference | None] | None = None,
    seed: int | None = None,
) -> Iterator[Finding]:
    """Check one engine: seven short rollouts, findings as they come.

    `open_engine` makes it (a server's engine with probe=False); what it raises is the first finding.
    `open_reference` gives what the routing is compared with, or None. `seed` names the prompt, so that a
    server's cache does not know it from an earlier check-up.
    """
    for finding in _findings(open_engine, open_reference, seed):
        wrong = finding.status in (FAILED, WARNING)
        yield replace(finding, todo=finding.todo or remedy(name, finding.check)) if wrong else finding


def _findings(
    open_engine: Callable[[], Engine], open_reference: Callable[[Engine], Reference | None] | None, seed: int | None
) -> Iterator[Finding]:
    try:
        engine = open_engine()
    except RadmoeError as error:
        yield Finding("engine", FAILED, str(error))
        return
    versions = ", ".join(f"{what} {version}" for what, version in engine.versions.items())
    yield Finding("engine", OK, f"{engine.name}, router {engine.shape}{', ' + versions if versions else ''}")
    yield _tokenizer(engine)
    prompt = _prompt(engine, random.Random(seed))
    greedy = Sampling(temperature=0, max_tokens=_TOKENS)
    try:
        first = look(engine, prompt, greedy, 0)
        again = look(engine, prompt, greedy, 0)
        drawn = [look(engine, prompt, replace(greedy, temperature=1.0), r) for r in (*range(1, _ROLLOUTS), 1)]
        other = look(engine, _changed(prompt), greedy, 0)
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
    try:
        runs = [_with_experts(engine, seen) for seen in (first, again, *drawn, other)]
    except RadmoeError as error:
        yield Finding("layers", FAILED, str(error))
        return
    yield _layers(engine, first)
    first, again, *drawn, other = runs
    yield from _rows(engine, first, drawn[0])
    if counted.status != OK:
        yield Finding("alignment", SKIPPED, "with another number of rows than positions, no row has a position")
        return
    yield checks.repeatable(first, again)
    yield _seed(drawn[0], drawn[-1])
    yield checks.prefix_cache(first, again)
    yield checks.alignment([first, *drawn[:-1], other])
    yield _reference(engine, open_reference, [first, *drawn[:-1]])


def _rows(engine: Engine, greedy: Seen, drawn: Seen) -> Iterator[Finding]:
    """What rows show by themselves; a greedy rollout may say one token over and over, a drawn one does not."""
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
    """The text's tokens behind some drawn from it, which no cache has seen in this order."""
    ids = list(engine.tokenizer(_TEXT)["input_ids"])
    ids = [rng.choice(ids) for _ in range(4)] + ids
    return ids[: min(_PROMPT, engine.room(ids[:4], "check-up", 10**6) // 2)]


def _changed(prompt: list[int]) -> list[int]:
    """The prompt with one token in its middle replaced by another of its tokens."""
    at = len(prompt) // 2
    return [*prompt[:at], next(token for token in prompt if token != prompt[at]), *prompt[at + 1 :]]


def _tokenizer(engine: Engine) -> Finding:
    check = getattr(engine, "check_spelling", None)
    if check is None:
        return Finding("tokenizer", SKIPPED, "it came with the model")
    try:
        told = check()
    except RadmoeError as error:
        return Finding("tokenizer", FAILED, str(error))
    if not told:
        return Finding("tokenizer", SKIPPED, "the server does not tokenise")
    return Finding("tokenizer", OK, f"{len(engine.vocab):,} tokens, and the server spells a test text alike")


def _with_experts(engine: Any, seen: Seen) -> Seen:
    """Without the layers that have no experts, where a server counts them."""
    from radmoe.engines.http import HttpEngine
    from radmoe.engines.http.routed import moe_layers

    if seen.ids is None or not isinstance(engine, HttpEngine) or seen.weights is not None:
        return seen
    return seen._replace(ids=moe_layers(seen.ids, engine.local))


def _layers(engine: Any, seen: Seen) -> Finding:
    assert seen.ids is not None
    there, shape, captured = seen.ids.shape[1], engine.shape, getattr(engine, "layers", None)
    if captured is not None and there == len(captured):
        return Finding("layers", OK, f"layers {listed(captured)} of {shape.layers} with experts, top-{shape.top_k}")
    if there == shape.layers:
        return Finding("layers", OK, f"{there} layers with experts, top-{seen.ids.shape[2]}")
    dense = [layer for layer in range(there) if layer not in engine.local.sparse]
    if there != engine.local.layers or seen.weights is not None:
        return Finding("layers", FAILED, f"{there} layers came, the router is {shape}")
    if seen.ids[:, dense].any():
        return Finding("layers", FAILED, f"layers {dense} have routing, and config.json gives them no experts")
    return Finding("layers", OK, f"{there} layers, {shape.layers} with experts; {dense} are dense, their rows zero")


def _seed(a: Seen, b: Seen) -> Finding:
    if a.tokens == b.tokens:
        return Finding("seed", OK, "one seed gives one rollout")
    return Finding("seed", WARNING, "one seed gave two rollouts: a resumed capture is another draw, not a wrong one")


def _reference(
    engine: Engine, open_reference: Callable[[Engine], Reference | None] | None, seen: list[Seen]
) -> Finding:
    replay: Any = engine if hasattr(engine, "teacher_forced") else None
    try:
        if replay is None and open_reference is not None:
            replay = open_reference(engine)
        if replay is None:
            return Finding("reference", SKIPPED, "no weights to replay with: --reference DIR compares row by row")
        ids = [replay.teacher_forced(list(one.sequence[:-1]))[0] for one in seen]
    except RadmoeError as error:
        return Finding("reference", SKIPPED, str(error))
    there, captured = seen[0].ids, getattr(engine, "layers", None)
    assert there is not None
    if captured is not None:
        ids = [rows[:, list(captured)] for rows in ids]
    if ids[0].shape[1:] != there.shape[1:]:
        return Finding(
            "reference", FAILED, f"the replay has rows of {ids[0].shape[1:]}, the engine of {there.shape[1:]}"
        )
    return checks.against(seen, ids)
