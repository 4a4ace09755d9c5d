"""A fixture for modules whose tests must leave no thread: import it, and it is used by all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def every_thread_ends() -> Iterator[None]:
    """After the test there are no more threads than before it."""
    before = threading.active_count()
    yield
    until = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.01)
