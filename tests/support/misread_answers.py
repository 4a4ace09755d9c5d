"""Cases of `server_misbehaviours`: right answers in which one field is wrong, and routing that claims what it lacks."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from misbehaving_server import (
    COMPLETIONS,
    EXPERTS,
    GENERATE,
    GONE,
    MODELS,
    ROUTING,
    STATUS,
    TOKENIZE,
    TOKENS,
    VERSION,
    Case,
    endless,
    head,
    npy,
    payload,
    plain,
    put,
    rows,
    sends,
    sends_with,
)


def _values(kind: str, path: str, places: dict[tuple[str | int, ...], list[Any]], **options: Any) -> Iterator[Case]:
    """Right answers in which one field is wrong; the line names the field."""
    for where, values in places.items():
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
        for value in values:
            written = (
                "gone"
                if value is GONE
                else json.dumps(value)
                if len(json.dumps(value)) < 40
                else f"{json.dumps(value)[:30]}..."
            )
            change = put(*where, value=value)
            line = re.escape(f"{path} answered ")
            yield Case(
                f"{kind} {path} {name or 'all'}: {written}", line, sends_with(change=change), path, kind, **options
            )


def wrong_fields() -> Iterator[Case]:
    """Wrong types, counts and ranges in every field that is read."""
    yield from _values(
        "vllm",
        COMPLETIONS,
        {
            (): [None, [], "x", 1, {}],
            ("choices",): [None, [], {}, "x", 1, [None], [[]], [1], ["x"], GONE, [{}, {}]],
            ("choices", 0, "token_ids"): [
                [],
                {},
                "x",
                1,
                [None] * 6,
                ["1"] * 6,
                [1.0] * 6,
                [True] * 6,
                [[1]] * 6,
                [-1] * 6,
                [2**31] * 6,
                [2**63] * 6,
                [10**30] * 6,
                [1] * 7,
                list(range(100)),
                GONE,
            ],
            ("choices", 0, "finish_reason"): [None, 1, [], {}, True, "x" * 100_000, GONE],
            ("choices", 0, "logprobs"): [1, "x", [], {}, True],
            ("choices", 0, "logprobs", "token_logprobs"): [
                None,
                [],
                {},
                "x",
                [None] * 6,
                ["-1"] * 6,
                [[]] * 6,
                [True] * 6,
                [10**400] * 6,
                [-1.0] * 5,
                [-1.0] * 7,
                [-1e300] * 6,
                GONE,
            ],
            ("choices", 0, "logprobs", "top_logprobs"): [
                None,
                [],
                {},
                "x",
                [None] * 6,
                [[]] * 6,
                [{}] * 6,
                [{"a": None}] * 6,
                [{"a": "b"}] * 6,
                [{"a": -1.0}] * 5,
                [{"a": True}] * 6,
                GONE,
            ],
            ("choices", 0, "routed_experts"): [1, [], {}, True, [1, 2], "\ud800"],
        },
        probe=False,
    )
    for kind, path, where in (
        ("vllm", COMPLETIONS, ("choices", 0, "token_ids")),
        ("sglang", GENERATE, ("output_ids",)),
    ):
        beyond, line = (
            put(*where, value=[515] * 2),
            "the server sampled token 515, and the model's tokenizer ends at 514",
        )
        yield Case(f"{kind} token beyond the vocabulary", line, sends_with(change=beyond), path, kind)
    no_ids = sends_with(change=put("choices", 0, "token_ids", value=None))
    yield Case("vllm without token ids", "returns no token ids: it needs vLLM 0.11", no_ids)
    for reason in ("abort", "", "\x1b[2J", "x" * 900):
        change = put("choices", 0, "finish_reason", value=reason)
        yield Case(f"ended with {reason[:9]!r}", r"it ended with '.*' after 2 tokens", sends_with(change=change))
    yield from _values(
        "vllm",
        MODELS,
        {
            (): [None, [], "x", 1, {}],
            ("data",): [None, {}, "x", 1, [1], [None], [[]], ["x"], GONE],
            ("data", 0, "id"): [None, 1, [], {}, True, "x" * 5000, "\ud800", GONE],
            ("data", 0, "max_model_len"): ["x", 0, -1, 1.5, [], {}, True, 2**70],
        },
    )
    yield from _values(
        "vllm", TOKENIZE, {("tokens",): [None, 1, "x", {}, ["1"], [1.5], [None], [-1], [2**70], [True], GONE]}
    )
    yield from _values("vllm", VERSION, {(): [[], "x", 1], ("version",): [None, 1, [], {}, "x" * 5000, GONE]})
    yield from _values(
        "vllm",
        STATUS,
        {
            (): [None, [], "x"],
            ("layers",): [None, 0, -1, 1.5, "3", [], True, 2**70, GONE],
            ("experts",): [None, 0, "8", 2**70, GONE],
            ("top_k",): [None, 0, 9, "4", 2**70, GONE],
            ("captured_layers",): [None, [], [0, 0], [2, 1, 0], [-1], [3], ["0"], [True], {}, "x", 1, GONE],
            ("settings",): [None, [], "x", {}, GONE],
            ("settings", "rows"): [None, 1, [], "x" * 5000, GONE],
            ("settings", "weights"): [None, 1, "yes", GONE],
        },
        plugin=True,
    )
    yield from _values(
        "sglang",
        GENERATE,
        {
            (): [None, [], "x", 1, {}, [{}]],
            ("meta_info",): [None, [], "x", 1, {}, GONE],
            ("output_ids",): [
                [],
                {},
                "x",
                1,
                ["1"] * 6,
                [1.5] * 6,
                [-1] * 6,
                [2**70] * 6,
                [1] * 5,
                [1] * 7,
                [True] * 6,
            ],
            ("meta_info", "output_token_logprobs"): [
                None,
                {},
                "x",
                1,
                [],
                [None] * 6,
                [[]] * 6,
                [[-1.0]] * 6,
                [["x", 1, None]] * 6,
                [[None, 1]] * 6,
                GONE,
            ],
            ("meta_info", "output_top_logprobs"): [
                None,
                {},
                "x",
                1,
                [],
                [None] * 6,
                [[]] * 6,
                [[None]] * 6,
                [[[]]] * 6,
                [[["x", 1]]] * 6,
                GONE,
            ],
            ("meta_info", "finish_reason"): [None, [], "x", 1, {}, {"type": None}, {"type": 1}, GONE],
            ("meta_info", "routed_experts"): [1, [], {}, True],
        },
        probe=False,
    )
    change = put("meta_info", "finish_reason", "type", value="abort")
    yield Case(
        "sglang ended with 'abort'", "it ended with 'abort' after", sends_with(change=change), GENERATE, "sglang"
    )


def wrong_routing() -> Iterator[Case]:
    """Arrays that claim what they do not have."""
    good = rows()
    unreadable = r"characters of routing are no base64 \.npy"
    for name, text, line in [
        ("no base64", "%%%%", unreadable),
        ("empty", "", unreadable),
        ("base64 of nothing known", "AAAA", unreadable),
        ("half of a file", npy(good)[:100], unreadable),
        ("rows missing from the file", npy(good, shape=(99, 3, 4)), unreadable),
        ("10^15 rows", npy(good, shape=(10**15, 3, 4)), unreadable),
        ("10^30 rows", npy(good, shape=(10**30, 3, 4)), unreadable),
        ("negative rows", npy(good, shape=(-1, 3, 4)), unreadable),
        ("no rows", npy(good[:0]), "0 rows of routing for a prompt"),
        ("two dimensions", npy(good[0]), unreadable),
        ("40 dimensions", npy(good, shape=(1,) * 40), unreadable),
        ("floats", npy(good.astype(np.float64)), unreadable),
        ("objects", npy(good, descr="|O"), unreadable),
        ("texts", npy(good, descr="|S1"), unreadable),
        ("by columns", npy(good, fortran_order=True), unreadable),
        ("more rows than tokens", npy(rows(500)), "500 rows of routing for a prompt"),
        ("other layers", npy(rows(TOKENS)[:, :2]), "the server returns 2 layers"),
    ]:
        change = put("choices", 0, "routed_experts", value=text)
        yield Case(f"routing: {name}", line, sends_with(change=change), probe=False)
    yield Case(
        "routing: no expert of the model",
        r"outside \[0, 8\)",
        sends_with(change=put("choices", 0, "routed_experts", value=_shifted)),
    )
    for name, text in {"no base64": "%%%%", "odd bytes": "AAAA", "empty": "", "one number": "AAAAAA=="}.items():
        change = put("meta_info", "routed_experts", value=text)
        yield Case(f"sglang routing: {name}", "of routing are no", sends_with(change=change), GENERATE, "sglang")
    for name, data in {
        "empty": b"",
        "JSON": b'{"error": "no"}',
        "header of 4 GB": b"RADR" + struct.pack("<I", 2**32 - 1),
        "deep header": b"RADR" + struct.pack("<I", 90_000) + b"[" * 90_000,
        "header of wrong types": payload([[1, 2, 3]]),
        "columns of 10^30 rows": payload([["token", "<i4", [10**30]]]),
        "columns of 10^18 rows": payload([["ids", "<i2", [10**18, 3, 4]]]),
        "empty columns of huge sides": payload([["ids", "<i2", [0, 10**30, 4]]]),
        "objects": payload([["ids", "|O", [1, 3, 4]]]),
        "no columns": payload([]),
        "ids of floats": payload([["ids", "<f2", [1, 3, 4]]], bytes(24)),
    }.items():
        yield Case(f"plugin routing: {name}", "bytes are no routing payload", sends(plain(data)), ROUTING, plugin=True)
    yield Case(
        "plugin routing: endless",
        r"answered more than [\d,]+ bytes",
        endless(head(), bytes(65536)),
        ROUTING,
        plugin=True,
    )
    yield Case(
        "plugin routing: lost again and again",
        "answered 409: lost",
        sends(plain(b"lost", "409 Conflict")),
        ROUTING,
        plugin=True,
    )


def _shifted(text: str) -> str:
    """The right routing, with all experts beyond the last."""
    return npy(np.load(io.BytesIO(base64.b64decode(text))) + np.uint8(EXPERTS))
