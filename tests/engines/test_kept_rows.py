"""What a profile keeps of a rollout."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.kept_rows import check_layers, filler, kept, listed, spans
from radmoe.errors import InputError
from radmoe.lab.tokenizer import build
from radmoe.pool import Profile
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab


@given(st.sets(st.integers(0, 60)))
def test_ranges_hold_the_numbers_they_came_from_and_do_not_touch(numbers: set[int]) -> None:
    found = spans(np.array(sorted(numbers), np.int64))
    assert [n for start, stop in found for n in range(start, stop)] == sorted(numbers)
    assert all(stop < start for (_, stop), (start, _) in pairwise(found))


def test_layers_are_listed_as_one_writes_them() -> None:
    assert listed((0, 1, 2, 3, 7)) == "0-3,7"
    assert listed(None) == "all"


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3))
def test_filler_is_routing_that_any_router_could_have_given(tokens: int, layers: int, top_k: int) -> None:
    made = Rollout(np.zeros(tokens, np.int32), *filler(tokens, RouterShape(layers, 3, top_k)))  # checks its weights
    assert made.expert_ids.shape == (tokens, layers, top_k)
    assert made.expert_ids.max() == top_k - 1


def test_a_fallback_anchor_is_kept_too() -> None:
    """gpt-oss: the final channel stands in for a delimiter that never came, until one comes."""
    tokenizer = build("harmony")
    vocab = Vocab.from_json(tokenizer.to_str())
    thinking, answer = "<|channel|>analysis<|message|>2 plus 3.<|end|>", "<|start|>assistant<|channel|>final<|message|>"
    profile = Profile(readouts=("delimiter@3", "trajectory:so@2"))
    for text, marker in ((answer + "It is 5.", "<|channel|>final<|message|>"), (answer + "\\boxed{5}", "\\boxed{5}")):
        tokens = np.array(tokenizer.encode(thinking + text, add_special_tokens=False).ids, np.int32)
        rows = kept(profile, tokens, vocab)
        assert len(rows) == 3
        assert vocab.decode_bytes(tokens[rows]).decode().startswith(marker[: len("\\boxed{")])
    thought = np.array(tokenizer.encode(thinking, add_special_tokens=False).ids, np.int32)
    assert len(kept(profile, thought, vocab)) == 0
    assert np.array_equal(kept(Profile(layers=(0,)), thought, vocab), np.arange(len(thought)))


def test_layers_that_are_not_captured_cannot_be_kept() -> None:
    check_layers(None, None)
    check_layers(None, Profile())
    check_layers((0, 1, 4), Profile(layers=(0, 4)))
    for profile, said in ((None, "all"), (Profile(), "all"), (Profile(layers=(1, 2, 3)), "1-3")):
        with pytest.raises(InputError, match=f"only layers 0-1,4 are captured here, and {said} are to be kept"):
            check_layers((0, 1, 4), profile)
