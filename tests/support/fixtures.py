"""Real parts for the tests of radmoe and its companions: planted rollouts, and pools of them on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from planted_pools import RECIPE, write_pool
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup

settings.register_profile("radmoe", deadline=None)  # timing is not a test
settings.load_profile("radmoe")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Records of evaluated pools go to a directory of this session, not to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RADMOE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


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
