"""Answers field by field: any JSON at all is read or is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from radmoe.engines.base import Sampling
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.dialects import RolloutRequest, Sglang, Vllm, answer_limit
from radmoe.engines.http.fields import Field, parse, short
from radmoe.errors import EngineError

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
READERS: list[Callable[[Field], object]] = [
    Field.members,
    Field.items,
    Field.text,
    Field.flag,
    Field.number,
    lambda field: field.get("a"),
    lambda field: field.maybe("a"),
    lambda field: field.items(2),
    lambda field: field.integer(0, 9),
    lambda field: field.integers(9),
]


@settings(max_examples=200)
@given(value=ANY_JSON)
def test_any_value_is_read_or_is_one_line(value: Any) -> None:
    for read in READERS:
        try:
            read(Field(value, "http://host/path", "field"))
        except EngineError as error:
            (line,) = str(error).splitlines()
            assert line.startswith("http://host/path answered ")
            assert len(line) < 400


@settings(max_examples=200)
@given(body=st.binary(max_size=60) | ANY_JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_json_or_one_line(body: bytes) -> None:
    try:
        value, line = parse(body, "http://host/path", 1000).value, "JSON"
    except EngineError as error:
        line = str(error)
    else:
        assert value == json.loads(body.decode("utf-8-sig"))
    assert len(line.splitlines()) == 1


PLACES = [
    ("vllm", ("choices",)),
    ("vllm", ("choices", 0)),
    ("vllm", ("choices", 0, "token_ids")),
    ("vllm", ("choices", 0, "token_ids", 1)),
    ("vllm", ("choices", 0, "finish_reason")),
    ("vllm", ("choices", 0, "logprobs")),
    ("vllm", ("choices", 0, "logprobs", "token_logprobs")),
    ("vllm", ("choices", 0, "logprobs", "token_logprobs", 0)),
    ("vllm", ("choices", 0, "logprobs", "top_logprobs")),
    ("vllm", ("choices", 0, "logprobs", "top_logprobs", 1)),
    ("vllm", ("choices", 0, "routed_experts")),
    ("sglang", ("output_ids",)),
    ("sglang", ("meta_info",)),
    ("sglang", ("meta_info", "output_token_logprobs")),
    ("sglang", ("meta_info", "output_token_logprobs", 0)),
    ("sglang", ("meta_info", "output_top_logprobs", 0)),
    ("sglang", ("meta_info", "output_top_logprobs", 0, 0)),
    ("sglang", ("meta_info", "finish_reason")),
    ("sglang", ("meta_info", "routed_experts")),
]
ANSWERS: dict[str, dict[str, Any]] = {
    "vllm": {
        "choices": [
            {
                "token_ids": [1, 2],
                "finish_reason": "length",
                "logprobs": {"token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}, {"b": -2.0}]},
                "routed_experts": None,
            }
        ]
    },
    "sglang": {
        "output_ids": [1, 2],
        "meta_info": {
            "output_token_logprobs": [[-1.0, 1, None], [-2.0, 2, None]],
            "output_top_logprobs": [[[-1.0, 1, None]], [[-2.0, 2, None]]],
            "finish_reason": {"type": "length"},
            "routed_experts": None,
        },
    },
}


@settings(max_examples=300, deadline=None)
@example(place=("vllm", ("choices", 0, "logprobs", "top_logprobs", 1)), value={"\r\x1b[2J": None})
@given(place=st.sampled_from(PLACES), value=ANY_JSON)
def test_an_answer_with_anything_anywhere_is_read_or_is_one_line(
    local: Checkpoint, place: tuple[str, tuple[str | int, ...]], value: Any
) -> None:
    kind, where = place
    answer = json.loads(json.dumps(ANSWERS[kind]))
    part = answer
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    dialect = Vllm() if kind == "vllm" else Sglang()
    request = RolloutRequest((5, 6), 2, Sampling(max_tokens=2, topk_logprobs=3), 0, 1)
    try:
        read = dialect.read(parse(json.dumps(answer).encode(), "http://host", 10_000), request, len(local.vocab))
        assert 1 <= len(read.tokens) <= 2
        assert 0 <= read.tokens.min() <= read.tokens.max() < len(local.vocab)
        if read.routed is not None:
            dialect.unpack(read.routed, 3, local.router)
    except EngineError as error:
        (line,) = str(error).splitlines()
        assert len(line) < 400


@pytest.fixture(scope="module")
def local(checkpoint: Any) -> Checkpoint:
    return Checkpoint(checkpoint)


@pytest.mark.parametrize("limit", [1, 8192])
def test_the_size_limit_leaves_room_for_an_honest_answer(local: Checkpoint, limit: int) -> None:
    """Ids as int32 in base64, twenty logprobs of every token as SGLang spells them, and long words."""
    request = RolloutRequest((5,) * 1000, limit, Sampling(max_tokens=limit), 0, 0)
    routing = (1000 + limit) * local.router.layers * local.shape.top_k * 4 * 4 / 3
    logprobs = limit * 21 * len('[-12.345678901234567, 123456, "\\u4f60\\u597d\\u4f60\\u597d"], ')
    most = answer_limit(request, local.router)
    assert routing + logprobs + 100 * limit < most.size
    assert limit * 21 * 4 < most.values


def test_what_is_shown_of_a_value_is_short_and_one_line() -> None:
    for value in (
        "x\n" * 10_000,
        list(range(10_000)),
        {str(i): i for i in range(1000)},
        10**80,
        b"\n" * 9999,
        [[[[1]]]],
    ):
        assert len(short(value)) <= 80
        assert len(short(value).splitlines()) == 1
