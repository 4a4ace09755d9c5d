"""Work side by side: results in order, few at once, and no thread left."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from radmoe.system.side_by_side import in_order


def test_results_come_in_the_order_of_the_work() -> None:
    later = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            later.wait(5)  # the first one is finished last
        else:
            later.set()
        return item * item

    assert list(in_order(work, range(20), 3)) == [(i, i * i) for i in range(20)]


def test_no_more_items_are_taken_than_are_under_way() -> None:
    taken: list[int] = []

    def items() -> object:
        for i in range(100):
            taken.append(i)
            yield i

    with closing(in_order(lambda item: item, items(), 2)) as results:
        next(results)
        assert len(taken) <= 5


@pytest.mark.parametrize("ending", ["closed", "failed"])
def test_no_thread_is_left(ending: str) -> None:
    def work(item: int) -> int:
        if ending == "failed" and item == 3:
            raise ValueError("three")
        return item

    before = threading.active_count()
    if ending == "failed":
        with pytest.raises(ValueError, match="three"):
            list(in_order(work, range(100), 4))
    else:
        with closing(in_order(work, range(100), 4)) as results:
            next(results)
    assert threading.active_count() == before
