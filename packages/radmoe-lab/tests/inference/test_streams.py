"""Iterators in threads, merged."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from radmoe.engines.torch.decode import Stopped
from radmoe_lab.inference.streams import Stream, merge


def count(stop: int, start: int = 0) -> Stream[int]:
    return lambda stopped: iter(range(start, stop))


def forever(stopped: Stopped) -> Iterator[int]:
    """Yields one item and then steps until it is told to stop, as a batch of long rollouts does."""
    yield 1
    while not stopped():
        time.sleep(0.001)


def test_everything_arrives_once() -> None:
    assert list(merge([count(5)])) == [0, 1, 2, 3, 4]
    assert sorted(merge([count(50), count(90, 50), count(0)])) == list(range(90))


def test_an_error_in_one_stream_ends_all_before_it_is_raised() -> None:
    def fail(stopped: Stopped) -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"):
        list(merge([fail, forever]))
    assert threading.active_count() == before


def test_threads_have_ended_when_closing_returns() -> None:
    before = threading.active_count()
    merged = merge([forever, forever])
    assert next(merged) == 1
    assert threading.active_count() == before + 2
    merged.close()
    assert threading.active_count() == before


def test_a_process_whose_caller_never_closes_ends_by_itself() -> None:
    code = (
        "import time\n"
        "from radmoe_lab.inference.streams import merge\n"
        "def stream(stopped):\n"
        "    yield 1\n"
        "    while not stopped():\n"
        "        time.sleep(0.001)\n"
        "running = merge([stream, stream])\n"
        "next(running)\n"
        "raise SystemExit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, "")
