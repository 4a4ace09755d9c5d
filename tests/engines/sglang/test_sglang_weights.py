"""Weights within the ids that SGLang returns: packed by the server's plugin, unpacked by the engine."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines import sglang


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from([8, 256, 40_000]))
def test_what_is_packed_is_unpacked(seed: int, k: int, experts: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, experts, (5, k)).astype(np.int32)
    weights = rng.dirichlet(np.ones(k), 5).astype(np.float32) * 2.5 + 1e-3  # scaled, as DeepSeek's are
    packed = sglang.pack(torch.from_numpy(ids), torch.from_numpy(weights))
    assert packed.dtype == torch.int32
    read, mass = sglang.unpack(packed.numpy()[None])
    assert mass is not None
    assert np.array_equal(read[0], ids)
    assert np.allclose(mass[0], weights / weights.sum(-1, keepdims=True), atol=2e-3)


@pytest.mark.parametrize("raw", [np.zeros((0, 2, 4)), np.full((3, 2, 4), -1), np.arange(24).reshape(3, 2, 4)])
def test_plain_ids_have_no_weights(raw: Any) -> None:
    read, mass = sglang.unpack(raw.astype(np.int32))
    assert mass is None
    assert np.array_equal(read, raw)


def test_a_server_that_was_not_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sglang.SWITCH, raising=False)
    for name in ("sglang", "sglang.srt.plugins.hook_registry"):
        monkeypatch.setitem(sys.modules, name, None)  # so that whatever it imported of it would fail
    sglang.register()
    monkeypatch.setenv(sglang.SWITCH, "1")
    with pytest.raises(ImportError):
        sglang.register()
