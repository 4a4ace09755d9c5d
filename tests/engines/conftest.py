"""A checkpoint on disk, and fake servers over its model. Nothing is imported before a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny_moe

    return tiny_moe.save(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """`serve("vllm", family="qwen3-moe", faults={...})`: a running fake server."""
    import tiny_moe
    from fake_server import FakeServer

    with ExitStack() as servers:

        def start(kind: str = "vllm", *, family: str = "qwen3-moe", **options: Any) -> FakeServer:
            return servers.enter_context(FakeServer(tiny_moe.engine(family), kind, **options).running())

        yield start
