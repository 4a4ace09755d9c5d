"""Gateways that really listen, before planted servers that really answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def served_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the model that planted servers claim to serve."""
    from planted_upstream import save_checkpoint

    return save_checkpoint(tmp_path_factory.mktemp("served") / "planted")


@pytest.fixture
def upstream(served_checkpoint: Path) -> Iterator[Callable[..., Any]]:
    """`upstream(fault="hangs")`: a running planted server."""
    from planted_upstream import PlantedUpstream

    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(PlantedUpstream(served_checkpoint, **options).running())


@pytest.fixture
def gateway() -> Iterator[Callable[..., Any]]:
    """`gateway(upstreams=(url,))`: a running gateway with these settings."""
    from running_gateway import RunningGateway

    with ExitStack() as gateways:
        yield lambda **settings: gateways.enter_context(RunningGateway(**settings))


@pytest.fixture(scope="module")
def shared(served_checkpoint: Path) -> Iterator[Any]:
    """A gateway before one planted server, for tests that change nothing in it."""
    from planted_upstream import PlantedUpstream
    from running_gateway import RunningGateway

    with PlantedUpstream(served_checkpoint).running() as server, RunningGateway(upstreams=(server.url,)) as made:
        made.upstream = server
        yield made
