"""Rows come back by position, whatever order steps, chunks and repetitions brought them in."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.vllm.plugin.payload import decode, encode
from radmoe.engines.vllm.plugin.store import RowStore
from radmoe.errors import EngineError

LAYERS, EXPERTS, TOP_K = 2, 16, 3


def store(rows: int = 10_000, **options: object) -> RowStore:
    shape = {"layers": LAYERS, "experts": EXPERTS, "top_k": TOP_K, "weights": True, "entries": 8, "positions": 64}
    return RowStore(**(shape | {"memory": rows * LAYERS * TOP_K * 3} | options))  # type: ignore[arg-type]


def row(request: int, position: int) -> np.ndarray:
    """The routing a position of a request has, [L, K]: no two rows alike."""
    return np.random.default_rng([request, position]).permuted(np.tile(np.arange(EXPERTS), (LAYERS, 1)), axis=1)[
        :, :TOP_K
    ]


def mass(request: int, position: int) -> np.ndarray:
    return np.random.default_rng([request, position]).dirichlet(np.ones(TOP_K), LAYERS).astype(np.float16)


def step(kept: RowStore, parts: list[tuple[int, int, int]]) -> None:
    """One pass: (request, first position, count) each."""
    requests, starts, counts = zip(*parts, strict=True)
    plan = kept.plan([f"{r}_x" for r in requests], np.array(starts), np.array(counts))
    if plan is not None:
        places = [(r, s + i) for r, s, c in parts for i in range(c)]
        ids = np.stack([row(*places[at]) for at in plan.source])
        kept.fill(plan.slots, ids, np.stack([mass(*places[at]) for at in plan.source]))


def check(rows, request: int, prompt: int) -> None:
    for token, ids, weights in zip(rows.token, rows.ids, rows.weights, strict=True):
        assert np.array_equal(ids, row(request, token + prompt - 1))
        assert np.array_equal(weights, mass(request, token + prompt - 1))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[tuple[int, int, int]]]]:
    """Prompt and total lengths of some requests, and the passes that compute them: chunks, and restarts from any
    position after a preemption (what is before it was found in the cache)."""
    prompts = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    totals = [p + draw(st.integers(0, 12)) for p in prompts]
    at, restarts = [draw(st.integers(0, p - 1)) for p in prompts], [2] * len(prompts)  # a prefix may be cached
    passes = []
    while any(a < t for a, t in zip(at, totals, strict=True)):
        parts = []
        for r in draw(st.permutations(range(len(prompts)))):
            if at[r] < totals[r] and not draw(st.booleans()):
                count = draw(st.integers(1, totals[r] - at[r]))
                parts.append((r, at[r], count))
                at[r] += count
            elif restarts[r] and draw(st.integers(0, 9)) == 9:
                at[r], restarts[r] = draw(st.integers(0, at[r])), restarts[r] - 1
        if parts:
            passes.append(parts)
    return prompts, totals, passes


@pytest.mark.slow
@given(histories(), st.booleans())
def test_generated_rows_are_complete_and_their_own(history, prompt_too: bool) -> None:
    prompts, totals, passes = history
    kept = store(prompt=prompt_too)
    for r, length in enumerate(prompts):
        kept.open(f"{r}_x", "key", length)
    for parts in passes:
        step(kept, parts)
    n = len(prompts)
    taken = kept.take("key", n)
    assert [rows.choice for rows in taken] == (list(range(n)) if n > 1 else [0])
    for r, rows in enumerate(taken):
        check(rows, r, prompts[r])
        assert set(range(totals[r] - prompts[r] + 1)) <= set(rows.token.tolist())
        assert prompt_too or rows.token.min() == 0
    assert kept.used == 0
    assert len(kept) == 0


@pytest.mark.slow
@given(histories(), st.integers(1, 8))
def test_a_tail_keeps_the_last_tokens(history, tail: int) -> None:
    prompts, totals, passes = history
    kept = store(tail=tail)
    for r, length in enumerate(prompts):
        kept.open(f"{r}_x", "key", length)
    for parts in passes:
        step(kept, parts)
    for r, rows in enumerate(kept.take("key", len(prompts))):
        check(rows, r, prompts[r])
        last = totals[r] - prompts[r] + 1
        assert set(range(max(last - tail, 0), last)) <= set(rows.token.tolist())
    assert kept.used == 0


def test_only_the_ranges_asked_for_leave() -> None:
    kept = store()
    for r in range(2):
        kept.open(f"{r}_x", "key", 5)
    step(kept, [(0, 0, 30), (1, 0, 25)])
    first, second = kept.take("key", 2, {0: [(3, 5), (20, 99)]})
    assert first.token.tolist() == [3, 4, 20, 21, 22, 23, 24, 25]
    check(first, 0, 5)
    assert len(second.token) == 0


def test_requests_that_did_not_ask_are_not_recorded() -> None:
    kept = store()
    kept.open("1_x", "key", 3)
    step(kept, [(0, 0, 6), (1, 0, 4), (2, 0, 5)])
    (rows,) = kept.take("key", 1)
    assert rows.token.tolist() == [0, 1]
    check(rows, 1, 3)
    assert kept.plan(["0_x"], np.array([6]), np.array([1])) is None


def test_finished_requests_make_room_oldest_first() -> None:
    kept = store(rows=20)
    for r in range(3):
        kept.open(f"{r}_x", f"key{r}", 1)
        step(kept, [(r, 0, 8)])
        kept.finish(f"{r}_x")
    with pytest.raises(EngineError, match="holds nothing under the key 'key0'"):
        kept.take("key0", 1)
    for r in (1, 2):
        check(kept.take(f"key{r}", 1)[0], r, 1)


def test_the_youngest_running_request_is_given_up_and_says_so() -> None:
    kept = store(rows=20)
    for r in range(3):
        kept.open(f"{r}_x", f"key{r}", 1)
    step(kept, [(r, 0, 8) for r in range(3)])
    with pytest.raises(EngineError, match="routing of 2_x was lost: rows did not fit in memory_mib=0: raise it"):
        kept.take("key2", 1)
    for r in (0, 1):
        assert len(kept.take(f"key{r}", 1)[0].token) == 8
    kept.drop("key2")
    assert (len(kept), kept.used) == (0, 0)


def test_more_requests_than_entries_are_refused_not_mixed_up() -> None:
    kept = store(entries=2)
    for r in range(3):
        kept.open(f"{r}_x", f"key{r}", 1)
    step(kept, [(r, 0, 4) for r in range(3)])
    with pytest.raises(EngineError, match="too many requests"):
        kept.take("key2", 1)
    check(kept.take("key0", 1)[0], 0, 1)


def test_aborted_requests_do_not_pile_up() -> None:
    kept = store(rows=40)
    for r in range(200):
        kept.open(f"{r}_x", f"key{r}", 1)
        step(kept, [(r, 0, 9)])
        kept.finish(f"{r}_x")
    assert len(kept) <= 8
    assert kept.used <= 40 * kept.row_bytes


def test_a_spoilt_request_is_an_error() -> None:
    kept = store()
    kept.open("0_x", "key", 1)
    step(kept, [(0, 0, 4)])
    kept.spoil(["0_x"], "a kernel went around the router")
    with pytest.raises(EngineError, match="a kernel went around the router"):
        kept.take("key", 1)


def test_a_payload_reads_back() -> None:
    kept = store()
    for r in range(3):
        kept.open(f"{r}_x", "key", 4)
    step(kept, [(r, 0, 10 + r) for r in range(3)])
    payload = encode(kept.take("key", 3), [0, 5])
    for r, routing in decode(payload).items():
        ids, weights = routing.generated(5 + r)
        assert ids.dtype == np.int16
        assert weights is not None
        assert weights.dtype == np.float16
        assert routing.layers.tolist() == [0, 5]
        for t in range(5 + r):
            assert np.array_equal(ids[t], row(r, 3 + t))
        with pytest.raises(EngineError, match=f"has {7 + r} of {9 + r} rows"):
            routing.generated(9 + r)


@pytest.mark.parametrize("payload", [b"", b"{}", b"RADR", b"RADR\x02\x00\x00\x00{}", b"RADR\x02\x00\x00\x00[]"])
def test_what_is_no_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(EngineError, match="are no routing payload"):
        decode(payload)


@given(st.binary(max_size=400), st.integers(0, 3000), st.integers(0, 255))
def test_a_damaged_payload_is_refused_or_read(tail: bytes, at: int, byte: int) -> None:
    kept = store()
    kept.open("0_x", "key", 4)
    step(kept, [(0, 0, 10)])
    payload = bytearray(encode(kept.take("key", 1), [0, 1]))
    payload[at % len(payload)] = byte
    with contextlib.suppress(EngineError):
        decode(bytes(payload) + tail)
