"""Evidence from real pools: what was read is what selection reads, once, and the cache is believed only for that pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool as make_pool
from radmoe.cohort import open_cohort
from radmoe.lab import planted
from radmoe.lab.planted import Planted
from radmoe.studies.evidence import Panel, Request, gather

SIXTEEN, DENSE, COSINE = Request("delimiter@16"), Request("delimiter@16", k=5), Request("delimiter@16", "cosine")
EARLY = Request("trajectory:so@8", budget=100)


@pytest.fixture
def graded_pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "pool", list(planted.groups(Planted(problems=4, rollouts=12, tokens=120))))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))


def wanted(panel: Panel) -> list[Request]:
    return [SIXTEEN, DENSE, COSINE, EARLY]


def test_similarities_and_densities_are_those_of_selection(graded_pool: Path) -> None:
    evidence = gather([graded_pool])
    evidence.read(wanted)
    (panel,) = evidence.panels
    for row, problem in enumerate(open_cohort(graded_pool)):
        S, reading = problem.similarity("delimiter@16")
        read = panel.read(SIXTEEN)
        located = read.located[row]
        assert np.array_equal(located[: len(problem)], reading.located)
        assert np.array_equal(read.values[row][np.ix_(located, located)], S)
        assert int(np.nanargmax(panel.density(SIXTEEN)[row])) == problem.selection.index
        assert np.array_equal(panel.correct[row, : len(problem)], problem.correct)
    assert panel.density(DENSE).shape == panel.here.shape
    assert float(np.nanmax(panel.read(COSINE).values)) <= 1.0


def test_what_was_read_once_is_not_read_again(graded_pool: Path) -> None:
    first = gather([graded_pool])
    first.read(wanted)
    first.read(wanted)
    assert first.windows == 4 * int(first.panels[0].here.sum())
    second = gather([graded_pool])
    second.read(wanted)
    assert second.windows == 0
    assert second.kept == first.windows
    for request in wanted(first.panels[0]):
        for one, other in zip(first.panels[0].read(request), second.panels[0].read(request), strict=True):
            assert np.array_equal(one, other, equal_nan=True)


def test_a_damaged_cache_is_read_anew(graded_pool: Path, tmp_path: Path) -> None:
    gather([graded_pool]).read(wanted)
    files = list((tmp_path / "cache").rglob("*.npz"))
    assert len(files) == 5  # four requests, and the scalars
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    again = gather([graded_pool])
    again.read(wanted)
    assert again.windows > 0
