"""Real parts for the tests: planted rollouts, and pools of them on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from planted_pools import RECIPE, write_pool
from radmoe.lab import planted
from radmoe.lab.planted import PlantedGroup


@pytest.fixture(scope="session")
def made() -> list[PlantedGroup]:
    return list(planted.groups(RECIPE))


@pytest.fixture(scope="session")
def shared_pool(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete pool that no test may change."""
    return write_pool(tmp_path_factory.mktemp("shared") / "pool", made)


@pytest.fixture
def pool_path(shared_pool: Path, tmp_path: Path) -> Path:
    """A copy of the shared pool, to damage at will."""
    return Path(shutil.copytree(shared_pool, tmp_path / "pool"))
