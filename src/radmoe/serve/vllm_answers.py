"""What is asked of vLLM's own endpoints for n rollouts at once, and how the answer is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.http import HttpEngine
from radmoe.engines.http.fields import Field, parse, short
from radmoe.engines.http.routed import generated, unpack_npy
from radmoe.engines.vllm.plugin import NAME
from radmoe.engines.vllm.plugin.payload import decode
from radmoe.errors import EngineError
from radmoe.selection.confidence import likelihood
from radmoe.serve.asks import Ask
from radmoe.serve.backends import usage_of
from radmoe.types import Rollout, check_ids

_FINISHED = ("stop", "length", "tool_calls", "function_call", "content_filter")
_OURS = ("token_ids", "routed_experts", "prompt_token_ids", "prompt_logprobs")  # of a choice: nobody asked for them
_REASONING = ("reasoning", "reasoning_content")
Tokens = NDArray[np.int32]
Floats = NDArray[np.float32]


class Choices(NamedTuple):
    """The n rollouts of an answer: as the client will see them, and what selection reads."""

    documents: list[dict[str, Any]]
    usage: dict[str, Any]
    tokens: list[Tokens]  # empty where the server gives none
    routed: list[str | None]  # stock routing, in base64
    logprobs: list[tuple[Floats, Floats | None] | None]
    likelihoods: list[float] | None
    prompt_tokens: int | None
    prompt: str | None


def body_for(ask: Ask, n: int, logprobs: int, key: str | None, first: int = 0) -> dict[str, Any]:
    """The client's body for n rollouts, with token ids and under the plugin's key; all else is as the client wrote it.

    vLLM draws choice i of a request with seed + i, so rollouts from number `first` on are asked for with seed + first.
    """
    body = {name: value for name, value in ask.body.items() if name not in ("stream", "stream_options")}
    body |= {"n": n, "stream": False, "return_token_ids": True}
    if type(body.get("seed")) is int:
        body["seed"] += first
    if logprobs and ask.route == "chat":
        most = body.get("top_logprobs")
        wanted = max(most if isinstance(most, int) else 0, logprobs if logprobs > 1 else 0)
        body |= {"logprobs": True, "top_logprobs": wanted}
    elif logprobs:
        own = body.get("logprobs")
        body["logprobs"] = max(own if isinstance(own, int) else 0, logprobs)
    if key is not None:
        own_arguments = body.get("vllm_xargs")
        body["vllm_xargs"] = (own_arguments if isinstance(own_arguments, dict) else {}) | {NAME: key}
    return body


def read_choices(
    data: bytes, source: str, ask: Ask, n: int, engine: HttpEngine | None, logprobs: int, most_values: int
) -> Choices:
    """The choices of an answer, in the order of their indices. Raises EngineError for an answer that does not fit."""
    answer = parse(data, source, most_values)
    fields = answer.get("choices").items(n)
    fields.sort(key=lambda field: field.get("index").integer(0, n))
    if [field.get("index").value for field in fields] != list(range(n)):
        raise EngineError(f"{source} answered {n} choices whose indices are not 0 to {n - 1}")
    words = None if engine is None else len(engine.vocab)
    tokens = [] if words is None else [_tokens(field.get("token_ids"), words) for field in fields]
    columns = (
        [_logprobs(field, ask, None if words is None else len(tokens[i])) for i, field in enumerate(fields)]
        if logprobs
        else []
    )
    routed = [field.maybe("routed_experts") for field in fields]
    ids = answer.maybe("prompt_token_ids") or fields[0].maybe("prompt_token_ids")
    prompt_ids = None if ids is None else _tokens(ids, words or 1 << 31)
    usage = answer.maybe("usage")
    likelihoods = [likelihood(column[0]) for column in columns if column is not None]
    return Choices(
        documents=[_document(field, ask) for field in fields],
        usage=_usage(usage) if usage is not None else usage_of(_length(prompt_ids), sum(map(len, tokens))),
        tokens=tokens,
        routed=[None if field is None else field.text(None) for field in routed],
        logprobs=columns or [None] * n,
        likelihoods=likelihoods if len(likelihoods) == n else None,
        prompt_tokens=None if prompt_ids is None else len(prompt_ids),
        prompt=None if prompt_ids is None or engine is None else str(engine.tokenizer.decode(prompt_ids.tolist())),
    )


def stock_rollouts(read: Choices, engine: HttpEngine) -> list[Rollout]:
    """Rollouts with the expert ids that vLLM itself returned."""
    rollouts = []
    for i, (ids, text) in enumerate(zip(read.tokens, read.routed, strict=True)):
        if text is None:
            raise EngineError(f"choice {i} has no routing: {engine.dialect.flag}")
        raw = unpack_npy(text)
        prompt = read.prompt_tokens if read.prompt_tokens is not None else len(raw) - len(ids) + 1
        rows = generated(raw, 0, prompt, len(ids), engine.local, engine.dialect.kernel)
        rollouts.append(Rollout(ids, rows, None, *_both(read.logprobs[i])))
    return rollouts


def plugin_rollouts(
    payload: bytes, read: Choices, engine: HttpEngine, positions: Sequence[NDArray[np.int32] | None]
) -> list[Rollout]:
    """Rollouts with the rows that the plugin handed out: those at `positions`, or all where that is None."""
    routing, rollouts = decode(payload), []
    if set(routing) != set(range(len(read.tokens))):
        raise EngineError(f"the routing is of choices {short(sorted(routing))}, not of 0 to {len(read.tokens) - 1}")
    for i, ids in enumerate(read.tokens):
        rows = routing[i].of_layers(None, engine.shape, engine.layers).generated(len(ids), positions[i])
        check_ids(rows[0], engine.shape.experts)
        rollouts.append(Rollout(ids, *rows, *_both(read.logprobs[i]), positions[i]))
    return rollouts


def _both(columns: tuple[Floats, Floats | None] | None) -> tuple[Floats | None, Floats | None]:
    return (None, None) if columns is None else columns


def _tokens(field: Field, words: int) -> Tokens:
    """Token ids [T] below `words`; at least one."""
    values = field.value
    if not isinstance(values, list) or not values or any(type(value) is not int for value in values):
        raise field.refusal("a list of token ids")
    if min(values) < 0 or max(values) >= words:
        raise EngineError(f"{field.source} answered token ids up to {max(values)}, and there are {words} tokens")
    return np.array(values, np.int32)


def _logprobs(choice: Field, ask: Ask, tokens: int | None) -> tuple[Floats, Floats | None] | None:
    """Logprobs of the sampled tokens [T], and the largest of each [T, C] where they came."""
    logprobs = choice.maybe("logprobs")
    if logprobs is None:
        return None
    if ask.route == "chat":
        steps = logprobs.get("content").items(tokens)
        sampled = [step.get("logprob").number() for step in steps]
        tops = [[top.get("logprob").number() for top in step.get("top_logprobs").items()] for step in steps]
    else:
        sampled = logprobs.get("token_logprobs").numbers(len(logprobs.get("token_logprobs").items(tokens)))
        listed = logprobs.maybe("top_logprobs")
        tops = [] if listed is None else [[top.number() for top in step.members()] for step in listed.items(tokens)]
    most = min((len(top) for top in tops), default=0)
    largest = np.array([sorted(top, reverse=True)[:most] for top in tops], np.float32) if most > 1 else None
    return np.array(sampled, np.float32), largest


def _document(field: Field, ask: Ask) -> dict[str, Any]:
    """A choice as the client sees it: without what it did not ask for, and with its thinking under both names."""
    reason = field.get("finish_reason").text()
    if reason not in _FINISHED:
        raise EngineError(f"{field.source} answered a rollout that ended with {short(reason)}")
    left_out = () if ask.body.get("return_token_ids") else _OURS
    document = {name: value for name, value in field.value.items() if name not in left_out}
    if not ask.body.get("logprobs"):
        document["logprobs"] = None
    if ask.route == "text":
        field.get("text").text(None)
        return document
    message = dict(field.get("message").value) if isinstance(field.get("message").value, dict) else None
    if message is None:
        raise field.get("message").refusal("an object")
    thinking = next((message[name] for name in _REASONING if message.get(name)), None)
    if thinking is not None:
        message |= {name: message.get(name) or thinking for name in _REASONING}
    return document | {"message": message}


def _usage(field: Field) -> dict[str, Any]:
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        field.get(name).integer(0, 1 << 40)
    return dict(field.value)


def _length(tokens: Tokens | None) -> int:
    return 0 if tokens is None else len(tokens)
