"""Rows that do not fit their router are refused before compiled code, which checks no bounds, reads them."""

from __future__ import annotations

import numpy as np
import pytest

from radmoe.errors import KernelError
from radmoe.selection.routes import RouteSum
from radmoe.types import RolloutGroup
from radmoe_lab.planted import PlantedGroup


@pytest.mark.parametrize(
    ("cut", "named"),
    [
        ((slice(None), slice(1), slice(None)), "ids"),
        ((slice(None), slice(None), slice(1)), "ids"),
        ((slice(None), slice(1)), "weights"),
        ((slice(1),), "weights"),
    ],
)
def test_rows_of_another_shape_are_one_line(made: list[PlantedGroup], cut: tuple[slice, ...], named: str) -> None:
    group: RolloutGroup = made[0].group
    shape = group.shape
    ids, mass = group.rollouts[0].rows(0, 8, weights=True)
    assert mass is not None
    total = RouteSum(group, np.zeros((1, shape.layers * shape.experts), np.float32), np.arange(shape.layers))
    total.rows(0, 0, 1 / 8, (ids[cut], mass) if named == "ids" else (ids, mass[cut]))
    with pytest.raises(KernelError, match=rf"^{named} has shape \[.*\], and \[8, {shape.layers}, {shape.top_k}\] was"):
        total.flush()
