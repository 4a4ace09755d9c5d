"""Turns a client's request into one for n rollouts at vLLM's endpoints, and reads the choices of the answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from radmoe.engines.http import HttpEngine
from radmoe.engines.http.answers import Answer, ordered_choices, token_ids, vllm_answers, vllm_logprobs
from radmoe.engines.http.fields import Field, parse, short
from radmoe.engines.vllm.plugin import NAME
from radmoe.errors import EngineError
from radmoe.selection.confidence import likelihood
from radmoe.serve.api_request import ApiRequest
from radmoe.serve.backends import usage_of
from radmoe.vocab import MAX_TOKENS

_FINISHED = ("stop", "length", "tool_calls", "function_call", "content_filter")
_OURS = ("token_ids", "routed_experts", "prompt_token_ids", "prompt_logprobs")  # of a choice: nobody asked for them
_REASONING = ("reasoning", "reasoning_content")


class Choices(NamedTuple):
    """The n rollouts of an answer: as the client will see them, and as selection reads them."""

    documents: list[dict[str, Any]]
    usage: dict[str, Any]
    answers: list[Answer]  # empty where the server gives no routing
    likelihoods: list[float] | None
    prompt_tokens: int | None
    prompt: str | None


def body_for(ask: ApiRequest, n: int, logprobs: int, key: str | None, first: int = 0) -> dict[str, Any]:
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
    data: bytes, source: str, ask: ApiRequest, n: int, engine: HttpEngine | None, logprobs: int, most_values: int
) -> Choices:
    """The choices of an answer, in the order of their indices. Raises EngineError for an answer that does not fit."""
    answer, chat = parse(data, source, most_values), ask.route == "chat"
    fields, answers = ordered_choices(answer, n), []
    words = 1 << 31
    if engine is not None:
        words = len(engine.vocab)
        answers = vllm_answers(answer, n, words=words, most=MAX_TOKENS, logprobs=logprobs, chat=chat)
        sampled = [each.sampled for each in answers]
    else:
        sampled = [vllm_logprobs(field, None, min(logprobs, 1), chat=chat)[0] for field in fields]
    ids = answer.maybe("prompt_token_ids") or fields[0].maybe("prompt_token_ids")
    prompt = None if ids is None else token_ids(ids, words).tolist()
    usage = answer.maybe("usage")
    completion = sum(len(each.tokens) for each in answers)
    likelihoods = [likelihood(column) for column in sampled if column is not None]
    return Choices(
        documents=[_document(field, ask) for field in fields],
        usage=_usage(usage) if usage is not None else usage_of(len(prompt or ()), completion),
        answers=answers,
        likelihoods=likelihoods if len(likelihoods) == n else None,
        prompt_tokens=None if prompt is None else len(prompt),
        prompt=None if prompt is None or engine is None else str(engine.tokenizer.decode(prompt)),
    )


def _document(field: Field, ask: ApiRequest) -> dict[str, Any]:
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
