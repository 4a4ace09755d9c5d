"""Engines in one process divide the same cores, not each other's share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from radmoe.engines import EngineOptions, open_engine
from radmoe_lab.inference.cores import Cores


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_a_second_engine_has_as_many_streams_as_the_first() -> None:
    engines = [open_engine("transformers", name, EngineOptions()) for name in ("lab-qwen", "lab-oss")]
    assert [engine.streams for engine in engines] == [3, 3]
    assert torch.get_num_threads() == 1


def test_what_was_divided_is_remembered_and_what_others_set_counts() -> None:
    cores = Cores()
    assert cores.whole == 3
    cores.divide(3, 3)
    assert (torch.get_num_threads(), cores.whole) == (1, 3)
    cores.divide(2, 2)
    assert (torch.get_num_threads(), cores.whole) == (1, 3)
    torch.set_num_threads(2)
    assert cores.whole == 2
    cores.divide(2, 4)
    assert (torch.get_num_threads(), cores.whole) == (1, 2)
