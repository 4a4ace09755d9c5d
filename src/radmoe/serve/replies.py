"""Answers in OpenAI's format, whole or as a stream of chunks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from radmoe.serve.api_errors import ApiError
from radmoe.serve.api_request import ApiRequest
from radmoe.serve.backends import RequestProgress
from radmoe.serve.telemetry import as_fault
from radmoe.system.printing import json_text

_OBJECTS = {"chat": ("chat.completion", "chat.completion.chunk"), "text": ("text_completion", "text_completion")}
_PIECE = 80  # characters of a chunk's text
_TEXTS = ("reasoning", "reasoning_content", "content")  # of a message that come in pieces, in this order


def whole(
    ask: ApiRequest, identity: str, choices: list[dict[str, Any]], usage: dict[str, Any], radmoe: dict[str, Any] | None
) -> dict[str, Any]:
    """The answer to a request; `choices` are numbered in the order in which they come."""
    numbered = [choice | {"index": i} for i, choice in enumerate(choices)]
    answer = _head(ask, identity, _OBJECTS[ask.route][0]) | {"choices": numbered, "usage": usage}
    return answer if radmoe is None else answer | {"radmoe": radmoe}


def chunks(ask: ApiRequest, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same answer as the chunks of a stream. `radmoe` is in the chunk that ends the first choice, and in usage's."""
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": _OBJECTS[ask.route][1]}
    extra = {"radmoe": answer["radmoe"]} if "radmoe" in answer else {}
    for choice in answer["choices"]:
        number = choice["index"]
        deltas = _message_deltas(choice["message"]) if ask.route == "chat" else _text_deltas(choice["text"])
        logprobs = choice.get("logprobs")
        for delta in deltas:
            yield head | {"choices": [{"index": number, "logprobs": logprobs, "finish_reason": None} | delta]}
            logprobs = None  # all of them come with the first chunk
        last: dict[str, Any] = {"delta": {}} if ask.route == "chat" else {"text": ""}
        end = {"index": number, "logprobs": None, "finish_reason": choice["finish_reason"]} | last
        yield head | {"choices": [end]} | (extra if number == 0 else {})
    if ask.stream_usage:
        yield head | {"choices": [], "usage": answer["usage"]} | extra


async def stream(
    ask: ApiRequest,
    work: Callable[[], Awaitable[dict[str, Any]]],
    progress: RequestProgress,
    keep_alive: float,
) -> AsyncIterator[bytes]:
    """Comments with the progress while the work goes on, then its answer as chunks; an ApiError ends the stream as data.

    The work is cancelled when the client leaves.
    """
    task = asyncio.ensure_future(work())
    try:
        yield _comment(progress)
        while not (await asyncio.wait({task}, timeout=keep_alive))[0]:
            yield _comment(progress)
        try:
            for chunk in chunks(ask, task.result()):
                yield _event(chunk)
        except ApiError as fault:
            yield _event(fault.document())
        except Exception as error:
            yield _event(as_fault(error).document())
        yield b"data: [DONE]\n\n"
    finally:
        task.cancel()


def _comment(progress: RequestProgress) -> bytes:
    of = f" {progress.finished} of {progress.rollouts} rollouts" if progress.stage == "sampling" else ""
    return f": radmoe {progress.stage}{of}, {progress.seconds:.1f} s\n\n".encode()


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json_text(document)}\n\n".encode()


def _head(ask: ApiRequest, identity: str, name: str) -> dict[str, Any]:
    return {"id": identity, "object": name, "created": int(time.time()), "model": ask.model}


def _message_deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"delta": {"role": message.get("role", "assistant"), "content": ""}}
    thinking = message.get("reasoning") or message.get("reasoning_content")
    for piece in _pieces(thinking):
        yield {"delta": {"reasoning": piece, "reasoning_content": piece}}
    for piece in _pieces(message.get("content")):
        yield {"delta": {"content": piece}}
    rest = {name: value for name, value in message.items() if name not in (*_TEXTS, "role", "tool_calls") and value}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        rest["tool_calls"] = [{"index": i} | call for i, call in enumerate(calls) if isinstance(call, dict)]
    if rest:
        yield {"delta": rest}


def _text_deltas(text: str) -> Iterator[dict[str, Any]]:
    for piece in _pieces(text):
        yield {"text": piece}


def _pieces(text: Any) -> Iterator[str]:
    if isinstance(text, str):
        yield from (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
