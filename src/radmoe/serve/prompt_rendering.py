"""Renders prompts and builds choices for backends that take token ids: a model in this process, and SGLang."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from radmoe.engines.base import Completion, Engine, Sampling, check_prompt, sampling_for
from radmoe.engines.prompts import encode
from radmoe.errors import InputError
from radmoe.selection.anchors import MARKERS, markers_for, text_response
from radmoe.serve.api_errors import ApiError, bad_request
from radmoe.serve.api_request import ApiRequest
from radmoe.serve.backends import in_thread
from radmoe.serve.best_of import RESHAPING
from radmoe.types import Rollout
from radmoe.vocab import Vocab

_READ = [
    "model", "messages", "prompt", "n", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature",
    "top_p", "seed", "stop", "chat_template_kwargs", "reasoning_effort",
]  # fmt: skip
_IGNORED = [
    "user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "tool_choice",
    "parallel_tool_calls",
]  # fmt: skip
_NEUTRAL: dict[str, tuple[Any, ...]] = RESHAPING | {  # what changes nothing
    "logprobs": (False,),
    "tools": ([],),
    "response_format": ({"type": "text"},),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
}
_TOKEN_BYTES = 16  # that a prompt may have for each token of the context: text has about four
_LONG_CONTEXT = 1 << 17  # tokens, where the model does not say its own
_LONG_BODY = 1 << 16  # bytes of a request whose prompt may take seconds to tokenise
_MOST_TOKENS = 1 << 20  # of an answer, where the model's context is not known
_TEMPLATE = (  # what a client may tell a chat template; everything else, such as a template of its own, it may not
    "enable_thinking",
    "thinking",
    "thinking_budget",
    "clear_thinking",
    "preserve_thinking",
    "reasoning_effort",
    "model_identity",
)
_LONGEST_ARGUMENT = 200  # characters of one of them
_CONTROL = re.compile(  # what Harmony writes around its messages
    r"<\|(?:start|end|return|call)\|>(?:assistant)?|<\|channel\|>\w*|\s*<\|constrain\|>\s*\w*|<\|message\|>"
)


class Prompt(NamedTuple):
    """A prompt as the model sees it, how rollouts of it are drawn, and the texts at which they end."""

    text: str
    ids: list[int]
    sampling: Sampling
    stops: tuple[str, ...]


class Renderer:
    """Renders prompts in threads; long ones one at a time, so that they never take the threads that others need."""

    def __init__(self) -> None:
        self._long = asyncio.Semaphore(1)

    async def __call__(self, ask: ApiRequest, engine: Engine, topk_logprobs: int) -> Prompt:
        """Render a request as `render` does, without blocking the event loop."""
        async with self._long if ask.size > _LONG_BODY else nullcontext():
            return await in_thread(render, ask, engine, topk_logprobs)


def render(ask: ApiRequest, engine: Engine, topk_logprobs: int) -> Prompt:
    """The prompt and the sampling of a request. Raises an ApiError that names a field which cannot be used."""
    _check_fields(ask)
    body = ask.body
    try:
        if ask.route == "chat":
            messages, arguments = _messages(body.get("messages")), _arguments(body)
            _check_size((part for message in messages for part in (*message.values(), " " * _TOKEN_BYTES)), engine)
            text, ids = encode(engine.tokenizer, messages, **arguments)
        else:
            text, ids = _prompt(body.get("prompt"), engine)
    except (InputError, UnicodeError) as error:
        raise bad_request(str(error)[:300], "messages" if ask.route == "chat" else "prompt") from None
    try:
        check_prompt(ids, len(engine.vocab))
        sampling = sampling_for(
            engine,
            temperature=_number(body, "temperature"),
            top_p=_number(body, "top_p"),
            max_tokens=_whole(body, "max_completion_tokens") or _whole(body, "max_tokens"),
            seed=_seed(body),
            topk_logprobs=topk_logprobs,
        )
        room = engine.room(ids, "this", min(sampling.max_tokens, _MOST_TOKENS))
        return Prompt(text, ids, replace(sampling, max_tokens=room), _stops(body))
    except InputError as error:
        param = str(error).partition(" ")[0]
        raise bad_request(str(error)[:300], param if param in _READ else None) from None


def cut(done: Completion, stops: tuple[str, ...], vocab: Vocab) -> Completion:
    """The completion cut at the first stop text. Its last token is the one that completes the stop text."""
    pieces = [vocab.token_bytes(int(token)) for token in done.rollout.token_ids]
    whole = b"".join(pieces)
    places = [(at, stop) for stop in stops if (at := whole.find(stop.encode())) >= 0]
    if not places:
        return done
    at, stop = min(places)
    ends = np.cumsum([len(piece) for piece in pieces])
    count = int(np.searchsorted(ends, at + len(stop.encode()))) + 1
    own = done.rollout
    rollout = Rollout(
        own.token_ids[:count],
        own.expert_ids[:count],
        None if own.weights is None else own.weights[:count],
        None if own.sampled_logprobs is None else own.sampled_logprobs[:count],
        None if own.topk_logprobs is None else own.topk_logprobs[:count],
    )
    return done._replace(rollout=rollout, text=whole[:at].decode("utf-8", "replace"), finish_reason="stop")


def choice_of(ask: ApiRequest, index: int, text: str, finish_reason: str, vocab: Vocab) -> dict[str, Any]:
    """A completion as a choice of OpenAI's; of a chat, the thinking is told apart from the answer."""
    end = {"index": index, "finish_reason": finish_reason, "logprobs": None}
    if ask.route == "text":
        return {"text": text} | end
    thinking, answer = split_thinking(text, vocab)
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if thinking is not None:
        message |= {"reasoning": thinking, "reasoning_content": thinking}
    return {"message": message} | end


def split_thinking(text: str, vocab: Vocab) -> tuple[str | None, str]:
    """The thinking in a text, None where there is none, and the answer, which is the final response (`text_response`)."""
    markers = markers_for(vocab)
    opening = text_response(text, markers)
    if opening == (0, 0):
        return None, text
    before, answer = (text, "") if opening is None else (text[: opening[0]], text[opening[1] :])
    if markers is MARKERS["gpt-oss"]:
        return _CONTROL.sub("", before).strip() or None, _CONTROL.sub("", answer)
    return before.replace(markers.thinking.pattern.decode(), "", 1).strip("\n"), answer.lstrip("\n")


def _check_fields(ask: ApiRequest) -> None:
    for name, value in ask.body.items():
        if name in _READ or name in _IGNORED or value is None or value in _NEUTRAL.get(name, ()):
            continue
        raise ApiError(
            400,
            "unsupported_field",
            f"{name[:60]} is not supported by this model server: leave it out; vLLM behind the gateway takes it",
            param=name[:60],
        )


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        raise InputError("messages must be a list of objects with role and content")
    return [_message(message) for message in value]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        texts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        content = "".join(text for text in texts if isinstance(text, str)) if None not in texts else None
    if not isinstance(message.get("role"), str) or not isinstance(content, str):
        raise InputError("a message needs a role and a content of text; other content is not supported by this model")
    (message["role"] + content).encode()  # a lone surrogate is no text
    return {"role": message["role"], "content": content}


def _check_size(parts: Iterable[str], engine: Engine) -> None:
    """Refuse a prompt with too many bytes before it is tokenised. Each message counts as one token more."""
    context = engine.context or _LONG_CONTEXT
    size, most = sum(len(part.encode()) for part in parts), _TOKEN_BYTES * context
    if size > most:
        raise InputError(
            f"the prompt has {size:,} bytes, and at most {most:,} are read for a context of {context:,} tokens: shorten it"
        )


def _arguments(body: dict[str, Any]) -> dict[str, Any]:
    """The arguments for the chat template: only known names with scalar values. A client's own template would be a program."""
    arguments = body.get("chat_template_kwargs") or {}
    if not isinstance(arguments, dict):
        raise bad_request("chat_template_kwargs must be an object of arguments", "chat_template_kwargs")
    effort = body.get("reasoning_effort")
    for name, value, param in (
        *((name, value, "chat_template_kwargs") for name, value in arguments.items()),
        ("reasoning_effort", effort, "reasoning_effort"),
    ):
        if name not in _TEMPLATE:
            raise bad_request(
                f"chat_template_kwargs has no argument {name[:60]!r} here: use {', '.join(_TEMPLATE)}", param
            )
        scalar = value is None or isinstance(value, bool | str) or (type(value) is int and abs(value) < 1 << 31)
        if not scalar or (isinstance(value, str) and len(value) > _LONGEST_ARGUMENT):
            raise bad_request(
                f"{name} must be true, false, a whole number, or a text of at most {_LONGEST_ARGUMENT} characters",
                param,
            )
        str(value).encode()  # a lone surrogate is no text
    return arguments if effort is None else arguments | {"reasoning_effort": effort}


def _prompt(value: Any, engine: Engine) -> tuple[str, list[int]]:
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        (value,) = value
    if isinstance(value, str):
        _check_size([value], engine)
        return value, engine.encode(value, raw=True)
    if not isinstance(value, list) or not value or any(type(token) is not int for token in value):
        raise InputError("prompt must be one text, or one list of token ids")
    engine.room(value, "this", 1)
    ids = check_prompt(value, len(engine.vocab))
    return str(engine.tokenizer.decode(ids)), ids


def _number(body: dict[str, Any], name: str) -> float | None:
    value = body.get(name)
    return None if value is None else float(value)


def _whole(body: dict[str, Any], name: str) -> int | None:
    value: int | None = body.get(name)
    if value == 0:
        raise bad_request(f"{name} must be a whole number from 1 up", name)
    return value


def _seed(body: dict[str, Any]) -> int:
    value: int | None = body.get("seed")
    return secrets.randbelow(1 << 31) if value is None else value % (1 << 63)


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or []
    return tuple(text for text in ([stop] if isinstance(stop, str) else stop) if text)
