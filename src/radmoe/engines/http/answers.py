"""Reads the answers of vLLM and SGLang as rollouts, for the engines, the gateway and `from_vllm`.

A rollout comes as tokens, log-probabilities and stock routing (`Answer`). Stock routing has one row per input position;
R(t), the rows of the generated tokens, are the last T of them. With the radmoe plugin the rows come apart, under a key.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import EPLB
from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.fields import Field, short
from radmoe.engines.vllm.plugin.payload import Routing, decode
from radmoe.errors import EngineError
from radmoe.vocab import MAX_TOKENS

Raw = NDArray[np.integer[Any]]  # [R, layers, K], one row per input position
Floats = NDArray[np.float32]
_CUT = "a proxy may have cut it, so ask the server itself (--url)"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Answer(NamedTuple):
    """One rollout as a server sent it: of the right types and counts, and its routing still encoded and unchecked."""

    tokens: NDArray[np.int32]  # [T]
    reason: str
    sampled: Floats | None  # [T]
    top: Floats | None  # [T, C], the largest first
    routed: str | None  # stock routing: one row per input position


def vllm_answers(answer: Field, n: int, *, words: int, most: int, logprobs: int, chat: bool = False) -> list[Answer]:
    """The n choices of an answer of /v1/completions, or with `chat` of /v1/chat/completions, in the order of their indices.

    A choice has at most `most` tokens, whose ids lie below `words`. Of `logprobs`, the C that was asked for, as many
    are kept per token as every token has.
    """
    read = []
    for choice in ordered_choices(answer, n):
        ids = choice.get("token_ids")
        if ids.value is None:
            raise EngineError("this server returns no token ids: it needs vLLM 0.11 or newer (return_token_ids)")
        tokens, routed = token_ids(ids, words, most), choice.maybe("routed_experts")
        columns = vllm_logprobs(choice, len(tokens), logprobs, chat=chat)
        reason = choice.get("finish_reason").text()
        read.append(Answer(tokens, reason, *columns, None if routed is None else routed.text(None)))
    return read


def ordered_choices(answer: Field, n: int) -> list[Field]:
    """The n choices of an answer in the order of their indices. A single choice needs no index."""
    choices = answer.get("choices").items(n)
    if n > 1:
        choices.sort(key=lambda choice: choice.get("index").integer(0, n))
        if [choice.get("index").value for choice in choices] != list(range(n)):
            raise EngineError(f"{answer.source} answered {n} choices whose indices are not 0 to {n - 1}")
    return choices


def vllm_logprobs(
    choice: Field, tokens: int | None, most: int, *, chat: bool = False
) -> tuple[Floats | None, Floats | None]:
    """Log-probabilities of the T sampled tokens, and of the largest [T, C]; None where they did not come.

    `tokens` is T where it is known, and `most` is C. vLLM adds a sampled token that is not among the largest.
    """
    logprobs = choice.maybe("logprobs")
    if logprobs is None or not most:
        return None, None
    if chat:
        steps = logprobs.get("content").items(tokens)
        sampled = [step.get("logprob").number() for step in steps]
        top = [[entry.get("logprob") for entry in step.get("top_logprobs").items()] for step in steps]
    else:
        sampled = [value.number() for value in logprobs.get("token_logprobs").items(tokens)]
        listed = logprobs.get("top_logprobs") if most > 1 else logprobs.maybe("top_logprobs")
        top = [[]] if listed is None else [step.members() for step in listed.items(tokens)]
    return np.array(sampled, np.float32), _largest(top, most)


def sglang_answer(answer: Field, *, words: int, most: int, logprobs: int) -> Answer:
    """The rollout in an answer of SGLang's /generate; see `vllm_answers`."""
    meta = answer.get("meta_info")
    steps = [step.items() for step in meta.get("output_token_logprobs").items()]
    ids = answer.maybe("output_ids")
    if ids is None:
        ids = Field([_entry(step, meta, 1).value for step in steps], meta.source, "meta_info.output_token_logprobs")
    tokens, sampled, top = token_ids(ids, words, most), None, None
    if logprobs:
        meta.get("output_token_logprobs").items(len(tokens))
        sampled = np.array([_entry(step, meta, 0).number() for step in steps], np.float32)
        entries = [step.items() for step in meta.get("output_top_logprobs").items(len(tokens))]
        top = _largest([[_entry(entry.items(), entry, 0) for entry in step] for step in entries], logprobs)
    routed = meta.maybe("routed_experts")
    reason = meta.get("finish_reason").get("type").text()
    return Answer(tokens, reason, sampled, top, None if routed is None else routed.text(None))


def token_ids(field: Field, words: int, most: int = MAX_TOKENS) -> NDArray[np.int32]:
    """Token ids: between one and `most` of them, all below `words`."""
    values = field.integers(MAX_TOKENS)
    if not 1 <= len(values) <= most:
        raise EngineError(
            f"{field.source} answered {len(values)} tokens, where 1 to {most} were asked for: "
            "is this the kind of server that the engine is for?"
        )
    if max(values) >= words:
        raise EngineError(
            f"the server sampled token {max(values)}, and the model's tokenizer ends at {words - 1}: "
            "pass the directory of the model that is served"
        )
    return np.array(values, np.int32)


def plugin_routing(payload: bytes, n: int, source: str) -> dict[int, Routing]:
    """The rows of n choices, from the bytes that the plugin's route answered."""
    routing = decode(payload)
    if set(routing) != set(range(n)):
        raise EngineError(
            f"{source} answered with the routing of choices {short(sorted(routing))} for a request of {n}"
        )
    return routing


def unpack_npy(text: str) -> Raw:
    """The array that vLLM sends as base64 of an .npy file."""
    try:
        data = base64.b64decode(text, validate=True)
        file = io.BytesIO(data)
        read_header = _HEADERS[np.lib.format.read_magic(file)]
        shape, by_columns, dtype = read_header(file)
        if len(shape) != 3 or dtype.kind not in "iu" or by_columns:
            raise ValueError(f"an array of {dtype} and shape {shape}")
        size, rest = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if min(shape) < 0 or size != rest:
            raise ValueError(f"an array of {dtype} and shape {shape} in {rest} bytes")
        array: Raw = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)
    except Exception as error:  # a damaged header is parsed as Python: ValueError, SyntaxError, TokenError, MemoryError
        raise EngineError(
            f"{len(text)} characters of routing are no base64 .npy of [rows, layers, k] ({_line(error)}): {_CUT}"
        ) from None
    return array


def unpack_int32(text: str, rows: int, layout: RouterLayout) -> Raw:
    """The array that SGLang sends as base64 of int32 [rows, layers, K], without its shape.

    `rows` is the number of rows that it should have. Where the size does not fit that number and the model's layers, it
    is read with other layers or other rows, so that the doctor can say which.
    """
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), "<i4")
    except (ValueError, binascii.Error) as error:
        raise EngineError(
            f"{len(text)} characters of routing are no base64 of int32 ({_line(error)}): {_CUT}"
        ) from None
    k = layout.shape.top_k
    widths = [layers * k for layers in dict.fromkeys((layout.layers, layout.shape.layers))]
    other_layers = flat.size and flat.size % (rows * k) == 0 and flat.size % (rows * widths[0])
    if flat.size in [rows * width for width in widths] or other_layers:
        return flat.reshape(rows, -1, k)
    if flat.size % widths[0] or not flat.size:
        raise EngineError(
            f"{flat.size} numbers of routing are no rows of {layout.layers} layers and top-{k}: "
            f"{_CUT}, or give the served model's directory (--model)"
        )
    return flat.reshape(-1, layout.layers, k)


def moe_layers(raw: NDArray[Any], layout: RouterLayout) -> NDArray[Any]:
    """The rows of the layers that have experts. Servers fill the other layers with zeros, or leave them out."""
    shape = layout.shape
    if raw.shape[2] == shape.top_k and raw.shape[1] == shape.layers:
        return raw
    if raw.shape[2] == shape.top_k and raw.shape[1] == layout.layers:
        return raw[:, list(layout.sparse)]
    raise EngineError(
        f"the server returns {raw.shape[1]} layers, top-{raw.shape[2]}; {layout.model} has {layout.layers} layers, "
        f"{shape.layers} of them with experts, top-{shape.top_k}: is this the directory of the served model?"
    )


def unrouted(ids: Raw) -> NDArray[np.bool_]:
    """Which (row, layer) pairs [R, L] cannot be routing, because a token never goes to one expert twice."""
    slots = np.ascontiguousarray(np.moveaxis(ids, 2, 0))  # one against another, in a tenth of the time of sorting
    twice = np.zeros(ids.shape[:2], bool)
    for slot in range(1, len(slots)):
        twice |= (slots[:slot] == slots[slot]).any(0)
    return twice


def stock_rows(
    raw: Raw, prompt: int | None, tokens: int, layout: RouterLayout, advice: str, *, first: int = 0
) -> NDArray[np.int16]:
    """R(t) [T, L, K] of T generated tokens, from rows that begin at input position `first`, or at the first one.

    `prompt` is P where it is known. Raises EngineError where rows are missing, or hold no routing (zeros, of kernels that
    route by themselves and of reused slots); `advice` says what to do about that.
    """
    if raw.ndim != 3:
        raise EngineError(f"routing of shape {raw.shape} is not [rows, layers, k]")
    rows = len(raw) if prompt is None else prompt + tokens - 1
    if len(raw) not in (rows, rows - first) or len(raw) < tokens:
        raise EngineError(
            f"{len(raw)} rows of routing for a prompt of {prompt or 'unknown length'} and {tokens} tokens, from position {first} on: there "
            f"should be {max(rows - first, tokens)}; radmoe doctor tells which are missing"
        )
    ids = moe_layers(raw, layout)[len(raw) - tokens :]
    if bad := int(unrouted(ids).sum()):
        raise EngineError(f"{bad} of {ids.shape[0] * ids.shape[1]} (row, layer) pairs have no routing: {advice}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < layout.shape.experts:
        outside = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise EngineError(
            f"the server's routing names expert {outside}, outside [0, {layout.shape.experts}): is this the directory of "
            f"the served model? If it is, {EPLB}"
        )
    return ids.astype(np.int16)


def _largest(steps: list[list[Field]], most: int) -> Floats | None:
    """The largest values of each step, as many as every step has and at most `most`; None where a step has none."""
    count = min(most, min(map(len, steps), default=0))
    if not count:
        return None
    ordered = [sorted((value.number() for value in step), reverse=True)[:count] for step in steps]
    return np.array(ordered, np.float32)


def _entry(entries: list[Field], of: Field, at: int) -> Field:
    """One part of SGLang's [logprob, token, text]."""
    if len(entries) < 2:
        raise of.refusal("lists of [logprob, token, text]")
    return entries[at]


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
