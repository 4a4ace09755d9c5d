"""Real parts for the tests: planted rollouts, and pools of them on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from radmoe.lab import planted
from radmoe.lab.planted import Planted, PlantedGroup
from radmoe.pool import PoolWriter

RECIPE = Planted(problems=4, rollouts=12, tokens=120)


def write_pool(path: Path, groups: list[PlantedGroup], **options: object) -> Path:
    """A pool of planted groups, texts included."""
    shape = groups[0].group.shape
    with PoolWriter(path, shape=shape, vocab=planted.vocab(), model="planted", **options) as writer:  # type: ignore[arg-type]
        for made in groups:
            for i, (rollout, text) in enumerate(zip(made.group.rollouts, made.texts, strict=True)):
                writer.add(made.group.problem_id, rollout, rollout_index=i, text=text, finish_reason="stop")
    return path


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
