"""Rows of a part of the tokens and layers, put where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.kept_rows import filler
from radmoe.engines.vllm.plugin.payload import Routing, decode, encode
from radmoe.engines.vllm.plugin.store import Rows
from radmoe.errors import EngineError
from radmoe.types import RouterShape

SHAPE, TOKENS = RouterShape(4, 8, 2), 12


def sent(tokens: list[int], layers: list[int], *, weights: bool = True) -> tuple[Routing, np.ndarray, np.ndarray]:
    """What a worker sends of these tokens and layers, and all there was: ids and weights [T, L, K]."""
    rng = np.random.default_rng(1)
    ids = np.argsort(rng.random((TOKENS, 4, 8)), -1)[..., :2].astype(np.int16)
    share = rng.random((TOKENS, 4)).astype(np.float16)
    mass = np.stack([share, 1 - share], -1)
    token = np.array(tokens, np.int32)
    part = np.ix_(token, layers)
    rows = Rows(0, token, ids[part].astype(np.uint8), mass[part] if weights else None)
    return decode(encode([rows], layers))[0], ids, mass


@given(
    fetched=st.sets(st.integers(0, TOKENS - 1)),
    wanted=st.sets(st.integers(0, TOKENS - 1)),
    layers=st.sets(st.integers(0, 3), min_size=1),
    weights=st.booleans(),
)
def test_rows_asked_for_are_theirs_and_the_rest_is_filler(
    fetched: set[int], wanted: set[int], layers: set[int], weights: bool
) -> None:
    """No row at all is a rollout without an anchor."""
    captured, rows = sorted(layers), np.array(sorted(wanted), np.int64)
    routing, ids, mass = sent(sorted(fetched | wanted), captured, weights=weights)
    found, found_mass = routing.spread(rows, TOKENS, SHAPE, captured).generated(TOKENS)
    expected, expected_mass = filler(TOKENS, SHAPE)
    part = np.ix_(rows, captured)
    expected[part], expected_mass[part] = ids[part], mass[part]
    assert np.array_equal(found, expected)
    assert np.array_equal(found_mass, expected_mass) if weights else found_mass is None


def test_a_row_that_did_not_come_is_missed() -> None:
    routing, *_ = sent([3, 4, 6], [0, 1, 2, 3])
    with pytest.raises(EngineError, match="the capture has 3 of the 4 rows asked for"):
        routing.spread(np.arange(3, 7), TOKENS, SHAPE, None)


@pytest.mark.parametrize(("captured", "expected"), [([0, 1], None), ([0, 1, 2, 3], (0, 1)), ([0, 2], (0, 1))])
def test_layers_are_never_taken_for_others(captured: list[int], expected: tuple[int, ...] | None) -> None:
    """A server that is started anew under a running capture may capture other layers than it said."""
    routing, *_ = sent([3, 4], captured)
    with pytest.raises(EngineError, match="was the server started anew with other settings"):
        routing.spread(np.array([3]), TOKENS, SHAPE, expected)
