"""Rows of a part of the tokens and layers: those that are wanted, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.vllm.plugin.payload import Routing, decode, encode
from radmoe.engines.vllm.plugin.store import ChoiceRows
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
    rows = ChoiceRows(0, token, ids[part].astype(np.uint8), mass[part] if weights else None)
    return decode(encode([rows], layers))[0], ids, mass


@given(
    fetched=st.sets(st.integers(0, TOKENS - 1)),
    wanted=st.sets(st.integers(0, TOKENS - 1)),
    captured=st.sets(st.integers(0, 3), min_size=1),
    weights=st.booleans(),
    data=st.data(),
)
def test_rows_and_layers_that_are_wanted_come_as_they_are(
    fetched: set[int], wanted: set[int], captured: set[int], weights: bool, data: st.DataObject
) -> None:
    """No row at all is a rollout without an anchor."""
    layers = sorted(data.draw(st.sets(st.sampled_from(sorted(captured)), min_size=1)))
    positions = np.array(sorted(wanted), np.int32)
    routing, ids, mass = sent(sorted(fetched | wanted), sorted(captured), weights=weights)
    part, part_mass = routing.of_layers(layers, SHAPE, sorted(captured)).generated(TOKENS, positions)
    expected = np.ix_(positions, layers)
    assert np.array_equal(part, ids[expected])
    assert np.array_equal(part_mass, mass[expected]) if weights else part_mass is None


def test_which_tokens_have_rows() -> None:
    every, *_ = sent(list(range(TOKENS)), [0, 1, 2, 3])
    assert every.positions(TOKENS) is None
    assert every.of_layers(None, SHAPE, None) is every
    assert np.array_equal(every.generated(TOKENS)[0], every.ids)
    some, *_ = sent([3, 4, 6], [0, 1, 2, 3])
    assert some.positions(TOKENS).tolist() == [3, 4, 6]
    assert some.positions(5).tolist() == [3, 4]


def test_a_row_that_did_not_come_is_missed() -> None:
    routing, *_ = sent([3, 4, 6], [0, 1, 2, 3])
    with pytest.raises(EngineError, match="the capture has 3 of 4 rows of this completion"):
        routing.generated(TOKENS, np.arange(3, 7, dtype=np.int32))
    with pytest.raises(EngineError, match=f"the capture has 3 of {TOKENS} rows of this completion"):
        routing.generated(TOKENS)


@pytest.mark.parametrize(("captured", "expected"), [([0, 1], None), ([0, 1, 2, 3], (0, 1)), ([0, 2], (0, 1))])
def test_layers_are_never_taken_for_others(captured: list[int], expected: tuple[int, ...] | None) -> None:
    """A server that is started anew under a running capture may capture other layers than it said."""
    routing, *_ = sent([3, 4], captured)
    with pytest.raises(EngineError, match="was the server started anew with other settings"):
        routing.of_layers((0,), SHAPE, expected)


@pytest.mark.parametrize("tokens", [[1, 0], [0, 0], [0, 2, 1]])
def test_rows_out_of_order_are_refused(tokens: list[int]) -> None:
    """They would else become the routing of other tokens."""
    with pytest.raises(EngineError, match="its tokens do not ascend"):
        sent(tokens, [0, 1])
