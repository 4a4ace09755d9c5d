"""Tokens for a page: exactly what the model emitted, and of long rollouts what matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odd_pools import SHAPE, agent_rollout, rollout_of
from radmoe.explorer.texts import AROUND, BEGIN, END, GIVEN, LOGPROB_STEPS, WHOLE, kept_spans, quantised, text_arrays
from radmoe.types import RolloutGroup
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


def spelled(arrays: dict[str, np.ndarray], name: str = "tokens") -> bytes:
    """The bytes that places in the table stand for."""
    begins, table = arrays["table_begin"], arrays["table"].tobytes()
    return b"".join(table[begins[token] : begins[token + 1]] for token in arrays[name])


def test_the_table_spells_every_rollout(made: list[PlantedGroup]) -> None:
    group = made[0].group
    arrays = text_arrays(group, [[]] * len(group), full=False)
    every = b"".join(group.vocab.decode_bytes(rollout.token_ids) for rollout in group.rollouts)
    assert spelled(arrays) == every
    assert arrays["lengths"].tolist() == [len(rollout) for rollout in group.rollouts]
    controls = {group.vocab.token_bytes(token) for token in group.vocab.controls.values()}
    begins, table = arrays["table_begin"], arrays["table"].tobytes()
    flagged = {table[begins[i] : begins[i + 1]] for i in np.flatnonzero(arrays["control"])}
    assert flagged <= controls
    assert b"</think>" in flagged


@given(st.integers(1, 5000), st.lists(st.tuples(st.integers(0, 4999), st.integers(1, 40)), max_size=6), st.booleans())
def test_what_is_kept_holds_the_windows_the_beginning_and_the_end(
    length: int, places: list[tuple[int, int]], full: bool
) -> None:
    windows = [(start, min(start + width, length)) for start, width in places if start < length]
    spans = kept_spans(length, windows, full)
    kept = {t for start, stop in spans for t in range(start, stop)}
    assert all(start < stop for start, stop in spans)
    assert all(spans[k][1] < spans[k + 1][0] for k in range(len(spans) - 1))
    if full or length <= WHOLE:
        assert spans == [(0, length)]
    wanted = {*range(min(BEGIN, length)), *range(max(0, length - END), length)}
    wanted |= {t for start, stop in windows for t in range(max(0, start - AROUND), min(length, stop + AROUND))}
    assert wanted <= kept <= set(range(length))


def test_a_long_rollout_is_cut_unless_all_is_wanted() -> None:
    rollout = rollout_of("x" * 5000)
    group = RolloutGroup("p", [rollout], SHAPE, planted.vocab(), "math")
    short = text_arrays(group, [[(len(rollout) - 10, len(rollout))]], full=False)
    assert len(short["tokens"]) == BEGIN + END
    assert len(short["logprobs"]) == BEGIN + END
    assert len(text_arrays(group, [[]], full=True)["tokens"]) == len(rollout)


@given(st.floats(-60, 0))
def test_a_stored_logprob_is_near_the_real_one(logprob: float) -> None:
    stored = -((int(quantised(np.array([logprob]))[0]) / LOGPROB_STEPS) ** 2)
    assert stored == pytest.approx(logprob, abs=0.002 + 0.04 * abs(logprob) ** 0.5)


def test_logprobs_out_of_range_are_the_last_value() -> None:
    assert quantised(np.array([-np.inf, -1000.0, 0.0, 1e-7])).tolist() == [255, 255, 0, 0]


def test_steps_keep_what_they_were_given_and_where_they_begin() -> None:
    rollouts = [agent_rollout(0, steps=True), agent_rollout(1, steps=False)]
    group = RolloutGroup("p", rollouts, SHAPE, planted.vocab(), "agent")
    arrays = text_arrays(group, [[], []], full=False)
    assert arrays["step_begin"].tolist() == [0, 3, 3]
    assert arrays["step_start"].tolist() == [step.start for step in rollouts[0].steps]
    given_tokens = [token for step in rollouts[0].steps for token in step.given[:GIVEN]]
    assert spelled(arrays, "given") == planted.vocab().decode_bytes(np.array(given_tokens, np.int32))
    assert "step_begin" not in text_arrays(RolloutGroup("p", rollouts[1:], SHAPE, planted.vocab()), [[]], full=False)
