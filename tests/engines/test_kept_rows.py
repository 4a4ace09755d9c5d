"""What a profile keeps of a rollout."""

from __future__ import annotations

import numpy as np
import pytest

from radmoe.engines.kept_rows import check_layers, check_profile, format_layers
from radmoe.errors import InputError
from radmoe.pool import Profile
from radmoe.vocab import Vocab
from radmoe_lab.tokenizer import build


def test_layers_are_listed_as_one_writes_them() -> None:
    assert format_layers((0, 1, 2, 3, 7)) == "0-3,7"
    assert format_layers(None) == "all"


def test_a_fallback_anchor_is_kept_too() -> None:
    """gpt-oss: the final channel stands in for a delimiter that never came, until one comes."""
    tokenizer = build("harmony")
    vocab = Vocab.from_json(tokenizer.to_str())
    thinking, answer = "<|channel|>analysis<|message|>2 plus 3.<|end|>", "<|start|>assistant<|channel|>final<|message|>"
    profile = Profile(readouts=("delimiter@3", "trajectory:so@2"))
    for text, marker in ((answer + "It is 5.", "<|channel|>final<|message|>"), (answer + "\\boxed{5}", "\\boxed{5}")):
        tokens = np.array(tokenizer.encode(thinking + text, add_special_tokens=False).ids, np.int32)
        rows = profile.kept_rows(tokens, vocab, "math")
        assert rows is not None
        assert len(rows) == 3
        assert vocab.decode_bytes(tokens[rows]).decode().startswith(marker[: len("\\boxed{")])
    thought = np.array(tokenizer.encode(thinking, add_special_tokens=False).ids, np.int32)
    assert profile.kept_rows(thought, vocab, "math").tolist() == []
    assert Profile(layers=(0,)).kept_rows(thought, vocab, "math") is None


def test_layers_that_are_not_captured_cannot_be_kept() -> None:
    check_layers(None, None)
    check_layers(None, Profile())
    check_layers((0, 1, 4), Profile(layers=(0, 4)))
    for profile, layers in ((None, "all"), (Profile(), "all"), (Profile(layers=(1, 2, 3)), "1-3")):
        with pytest.raises(InputError, match=f"only layers 0-1,4 are captured here, and {layers} are to be kept"):
            check_layers((0, 1, 4), profile)


def test_a_readout_that_does_not_fit_a_kind_is_refused_before_anything_is_sampled() -> None:
    vocab, profile = Vocab.from_json(build("chatml").to_str()), Profile(readouts=("delimiter@3",))
    check_profile(profile, None, vocab, ["math", "code"])
    check_profile(None, None, vocab, [None])
    with pytest.raises(InputError, match="depends on its kind: give a kind, such as math or code"):
        check_profile(profile, None, vocab, ["math", None])
    with pytest.raises(InputError, match="kind 'text' has no delimiter"):
        check_profile(profile, None, vocab, ["text"])
    with pytest.raises(InputError, match="only layers 0 are captured here"):
        check_profile(profile, (0,), vocab, ["math"])
