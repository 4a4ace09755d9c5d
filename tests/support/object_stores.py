"""Fixtures for pools in object storage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from crooked_store import Crooked, crooked_store
from radmoe.pool import stores
from radmoe.pool.files import place
from radmoe.pool.stores import StorePath
from seaweed import SeaweedFS

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real store, for the whole session."""
    server = SeaweedFS(tmp_path_factory.mktemp("seaweed"))
    yield server
    server.stop()


@pytest.fixture
def bucket(seaweed: SeaweedFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorePath]:
    """A place of its own in the real store. What is not sent yet lies in tmp_path / "unsent"."""
    yield from _bucket(seaweed.environment, f"s3://pools/test-{next(_NAMES)}", tmp_path, monkeypatch)


@pytest.fixture
def crooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crooked]:
    """A store that can be told to misbehave; its bucket is s3://crooked."""
    with crooked_store() as state:
        monkeypatch.setattr(stores, "RETRY", {"max_retries": 1})
        for _ in _bucket(state.environment, "s3://crooked", tmp_path, monkeypatch):
            yield state


def _bucket(
    environment: dict[str, str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorePath]:
    stores._store.cache_clear()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RADMOE_SPOOL", str(tmp_path / "unsent"))
    where = place(url)
    assert isinstance(where, StorePath)
    yield where
    stores._store.cache_clear()
