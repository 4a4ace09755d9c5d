"""Starting worker processes: an interrupt in the middle of it waits."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from radmoe.evaluation.workers import _interrupts_blocked


def test_an_interrupt_that_another_thread_takes_waits_until_processes_are_started() -> None:
    """Otherwise a child that was being started would read half of what it is told, and print a traceback."""
    leave, steps = threading.Event(), []
    other = threading.Thread(target=leave.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
            with _interrupts_blocked():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
                steps.append("started")
        assert steps == ["started"]
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        leave.set()
        other.join()


def test_without_an_interrupt_nothing_is_raised() -> None:
    with _interrupts_blocked():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
