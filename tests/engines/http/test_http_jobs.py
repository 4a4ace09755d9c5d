"""Many requests at a time: bounded, as they finish, and every thread ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ended_threads import every_thread_ends  # noqa: F401 used by all tests here
from radmoe.engines.http.jobs import each_as_finished


def not_cancelled() -> None:
    raise AssertionError("nobody closed the iterator")


@settings(max_examples=30, deadline=None)
@given(jobs=st.integers(0, 40), workers=st.integers(1, 6))
def test_every_job_is_done_once(jobs: int, workers: int) -> None:
    assert sorted(each_as_finished(range(jobs), lambda job: job * 2, workers=workers, cancel=not_cancelled)) == [
        2 * job for job in range(jobs)
    ]


@settings(max_examples=30, deadline=None)
@given(bad=st.integers(0, 19), workers=st.integers(1, 6))
def test_what_was_under_way_is_kept_when_one_fails(bad: int, workers: int) -> None:
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job == bad:
            raise ValueError(f"job {job}")
        return job

    results = []
    with pytest.raises(ValueError, match=f"job {bad}"):
        for done in each_as_finished(range(100), work, workers=workers, cancel=not_cancelled):
            results.append(done)
    assert sorted([*results, bad]) == sorted(begun)
    assert set(range(bad)) <= set(begun)
    if workers == 1:  # with more, the others may do much before the one that fails is heard
        assert len(begun) <= bad + 3  # those that had been handed over


def test_no_more_jobs_are_taken_than_twice_the_crew() -> None:
    taken = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            taken.append(job)
            yield job

    running = each_as_finished(jobs(), lambda job: job, workers=3, cancel=lambda: None)
    next(running)
    assert len(taken) <= 7
    running.close()


def test_closing_the_iterator_ends_the_waiting() -> None:
    over = threading.Event()

    def work(job: int) -> int:
        if job:
            over.wait(30)
        return job

    running = each_as_finished(range(9), work, workers=3, cancel=over.set)
    assert next(running) == 0
    running.close()
    assert over.is_set()
