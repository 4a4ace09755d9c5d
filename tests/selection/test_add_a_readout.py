"""The recipe of CONTRIBUTING.md, "Add a readout": a family is one function and one line in a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import write_pool
from radmoe import Profile, open_pool, select
from radmoe.errors import ReadoutError
from radmoe.selection.readout import READERS, Place, Readout, Window, read
from radmoe.types import Anchor
from radmoe_lab.planted import PlantedGroup


def read_tail(readout: Readout, place: Place) -> Window:
    """The last W tokens of a rollout, wherever its answer stands."""
    assert isinstance(readout.width, int)
    start = max(0, place.end - readout.width)
    return Anchor(start, place.end - start, "tail"), [(start, place.end)]


@pytest.fixture
def tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "tail", read_tail)


@pytest.mark.usefixtures("tail")
def test_a_new_family_is_read_selected_and_kept_by_its_name(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    reading = read(group, "tail@8")
    assert reading.located.all()
    ids, weights = group.rollouts[3].rows(len(group.rollouts[3]) - 8, len(group.rollouts[3]))
    z = np.zeros((group.shape.layers, group.shape.experts))
    for token in range(8):
        for layer in range(group.shape.layers):
            np.add.at(z[layer], ids[token, layer], weights[token, layer] / 8)
    np.testing.assert_allclose(reading.Z[3], z.ravel(), atol=1e-4)
    assert select(group, readout="tail@8").readout == "tail@8"
    windows = open_pool(write_pool(tmp_path / "p", made, profile=Profile(readouts=("tail@8",))))
    stored = windows.group(group.problem_id)
    assert select(stored, readout="tail@8").index == select(group, readout="tail@8").index
    assert all(len(trace.positions) == 8 for trace in stored.rollouts)


def test_without_the_line_in_the_table_the_name_is_unknown(made: list[PlantedGroup]) -> None:
    with pytest.raises(ReadoutError, match="unknown readout family 'tail': use one of trajectory, boundary, delimiter"):
        select(made[0].group, readout="tail@8")
