"""Raw responses of vLLM, SGLang and prime-rl's inference server, one per line.

A line is what the server answered, with what its client knows besides: `problem_id`, `reward` (a number, or one per choice) and
`prompt_token_ids` where the server does not repeat them. Routing has one row per input position, in vLLM and prime-rl perhaps
without the first ones: it ends at the last but one token, so that R(t) of T tokens is row t of the last T.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Sampling
from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import (
    ordered_choices,
    sglang_answer,
    token_ids,
    unpack_int32,
    unpack_npy,
    vllm_logprobs,
)
from radmoe.engines.http.fields import Field
from radmoe.engines.sglang import unpack
from radmoe.errors import InputError, RadmoeError
from radmoe.pool.limits import check_claim
from radmoe.vocab import MAX_TOKENS
from radmoe_integrations.imports.found import Found, Raw, Unusable

_LONGEST = 1 << 30  # bytes of a line
_MOST = Sampling.topk_logprobs  # log-probabilities that are kept per token
_WIDTHS = {"uint8": "u1", "uint16": "<u2", "int16": "<i2", "int32": "<i4"}


class _Choice(NamedTuple):
    """One rollout of a response, with its routing still encoded."""

    tokens: NDArray[np.int32]
    reason: str
    sampled: NDArray[np.float32] | None
    top: NDArray[np.float32] | None
    routed: Field | None
    prompt: int | None  # how many tokens the prompt has, by the server's own count
    prompt_ids: Field | None


def rollouts(
    file: BinaryIO, where: Path, *, server: str, layout: RouterLayout, words: int
) -> Iterator[Found | tuple[str, Unusable]]:
    """The choices of every line; one without routing comes as its place and the reason."""
    for number, line in _lines(file, where):
        place = f"{where} line {number}"
        try:
            parts = line if isinstance(line, list) else [line]
            shared = Field(parts[0] if parts else None, place)
            choices = [one for part in parts for one in _choices(Field(part, place), server, words)]
            rewards = _rewards(shared.maybe("reward"), len(choices), place)
            known, model = shared.maybe("problem_id"), shared.maybe("model")
            problem = _problem(
                known, place, f"{where.stem}-{number}" if len(choices) > 1 and choices[0].prompt_ids is None else None
            )
            for index, (choice, reward) in enumerate(zip(choices, rewards, strict=True)):
                own = place if len(choices) == 1 else f"{place} choice {index}"
                if choice.routed is None:
                    yield own, Unusable("they have no routing: see the section of their server in docs/integrations.md")
                    continue
                yield _found(choice, own, problem, reward, None if model is None else model.text(), layout, words)
        except InputError as error:
            raise InputError(f"{place}: {error}" if place not in str(error) else str(error)) from None
        except RadmoeError as error:
            raise InputError(f"{place}: {str(error).removeprefix(f'{place} ')}") from None


def _lines(file: BinaryIO, where: Path) -> Iterator[tuple[int, Any]]:
    empty = True
    file.seek(0)
    for number, line in enumerate(iter(partial(file.readline, _LONGEST + 1), b""), 1):
        if not line.strip():
            continue
        if len(line) > _LONGEST:
            raise InputError(f"{where} line {number} is longer than {_LONGEST >> 30} GB: is it a response per line?")
        values = line.count(b",") + line.count(b"[") + line.count(b"{")
        check_claim(where, f"{values:,} values in line {number}", 128 * values)
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where} line {number} is not JSON ({str(error)[:80]}): give one whole response per line (curl -w '\\n')"
            ) from None
        empty = False
        yield number, content
    if empty:
        raise InputError(f"{where} is empty: give one response per line")


def _choices(answer: Field, server: str, words: int) -> list[_Choice]:
    if server == "sglang":
        one = sglang_answer(answer, words=words, most=MAX_TOKENS, logprobs=_top_logprobs(answer))
        routed, counted = (
            answer.get("meta_info").maybe("routed_experts"),
            answer.get("meta_info").maybe("prompt_tokens"),
        )
        prompt = None if counted is None else counted.integer(1, MAX_TOKENS)
        return [_Choice(one.tokens, one.reason, one.sampled, one.top, routed, prompt, answer.maybe("prompt_token_ids"))]
    choices = ordered_choices(answer, max(len(answer.get("choices").items()), 1))
    usage = answer.maybe("usage")
    counted = None if usage is None else usage.maybe("prompt_tokens")
    made = []
    for choice in choices:
        tokens = token_ids(choice.get("token_ids"), words)
        listed = choice.maybe("logprobs")
        chat = listed is not None and listed.maybe("content") is not None
        columns = vllm_logprobs(choice, len(tokens), _MOST, chat=chat)
        ids = choice.maybe("prompt_token_ids") or answer.maybe("prompt_token_ids")
        prompt = None if counted is None else counted.integer(1, MAX_TOKENS)
        made.append(
            _Choice(tokens, choice.get("finish_reason").text(), *columns, choice.maybe("routed_experts"), prompt, ids)
        )
    return made


def _top_logprobs(answer: Field) -> int:
    """How many log-probabilities of a token SGLang was asked for; 0 where it gives none."""
    return _MOST if answer.get("meta_info").maybe("output_top_logprobs") is not None else 0


def _rewards(reward: Field | None, count: int, where: str) -> list[Any]:
    if reward is None:
        return [None] * count
    rewards = reward.value if isinstance(reward.value, list) else [reward.value] * count
    if len(rewards) != count or (count > 1 and not isinstance(reward.value, list)):
        raise InputError(f"{where} has {count} choices and the reward {str(reward.value)[:40]}: give a list of {count}")
    return rewards


def _problem(known: Field | None, where: str, otherwise: str | None) -> str | None:
    if known is None:
        return otherwise
    if type(known.value) not in (str, int) or known.value == "":
        raise InputError(f"{where} has the problem_id {known.value!r:.40}: give a text or a whole number")
    return str(known.value)


def _found(
    choice: _Choice, where: str, problem: str | None, reward: Any, model: str | None, layout: RouterLayout, words: int
) -> Found:
    if choice.reason not in ("stop", "length"):
        raise InputError(f"{where} ended with {choice.reason!r:.40}: leave it out, only whole rollouts are imported")
    prompt = np.empty(0, np.int32) if choice.prompt_ids is None else token_ids(choice.prompt_ids, words)
    if problem is None and not prompt.size:
        raise InputError(
            f"{where} does not say which problem it is of: add problem_id to the line, or ask for return_token_ids, so that "
            "responses are grouped by their prompt"
        )
    assert choice.routed is not None
    length = len(prompt) or choice.prompt
    raw, mass = _unpacked(choice.routed, None if length is None else length + len(choice.tokens) - 1, layout)
    if len(raw) < len(choice.tokens) or (length is not None and len(raw) > length + len(choice.tokens) - 1):
        raise InputError(
            f"{where} has {len(raw)} rows of routing for {length or 'unknown'} + {len(choice.tokens)} tokens: there must be one per "
            "input position, the last token's excepted"
        )
    return Found(
        where,
        problem,
        prompt,
        choice.tokens,
        partial(_rows, raw, mass, len(raw) - len(choice.tokens)),
        None,
        choice.sampled,
        choice.top,
        reward,
        choice.reason,
        model,
    )


def _rows(raw: Raw, mass: NDArray[np.float16] | None, first: int, start: int, stop: int) -> tuple[Raw, Any]:
    """The rows that predict tokens [start, stop) of the response, of which the first one's is row `first`."""
    rows = slice(first + start, first + stop)
    return raw[rows], None if mass is None else mass[rows]


def _unpacked(routed: Field, rows: int | None, layout: RouterLayout) -> tuple[Raw, NDArray[np.float16] | None]:
    """Routing as its server encodes it: prime-rl as an object, vLLM as an .npy, SGLang as bare int32."""
    if isinstance(routed.value, dict):
        return _unpack_object(routed), None
    text = routed.text(None)
    if routed.name.startswith("meta_info"):
        return unpack(unpack_int32(text, rows or 1, layout))
    return unpack_npy(text), None


def _unpack_object(routed: Field) -> Raw:
    shape, width = routed.get("shape").integers(1 << 31), routed.maybe("dtype")
    dtype = _WIDTHS.get("uint8" if width is None else width.text())
    if len(shape) != 3 or dtype is None:
        raise routed.refusal(f"routing of [rows, layers, K] in {', '.join(_WIDTHS)}")
    try:
        data = base64.b64decode(routed.get("data").text(None), validate=True)
    except ValueError:
        raise routed.get("data").refusal("base64") from None
    if math.prod(shape) * np.dtype(dtype).itemsize != len(data):
        raise InputError(
            f"routing claims the shape {shape} of {dtype}, and has {len(data):,} bytes: it is cut or forged"
        )
    return np.frombuffer(data, dtype).reshape(shape)
