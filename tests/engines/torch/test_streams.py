"""Iterators in threads, merged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from radmoe.engines.torch.streams import merge


def count(stop: int, start: int = 0) -> Iterator[int]:
    yield from range(start, stop)


def test_everything_arrives_once() -> None:
    assert list(merge([count(5)])) == [0, 1, 2, 3, 4]
    assert sorted(merge([count(50), count(90, 50), count(0)])) == list(range(90))


def test_an_error_in_one_stream_ends_all() -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(merge([fail(), count(3)]))


def test_closing_stops_the_threads() -> None:
    def forever() -> Iterator[int]:
        while True:
            time.sleep(0.001)
            yield 1

    before = threading.active_count()
    merged = merge([forever(), forever()])
    assert next(merged) == 1
    merged.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
