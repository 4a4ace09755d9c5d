"""The threads that torch may use, which small models divide among batches that run side by side (`streams.py`)."""

from __future__ import annotations

import torch


class Cores:
    """The number of threads torch had at first, so that a second engine in one process does not divide the first one's share."""

    def __init__(self) -> None:
        self._before, self._left = 0, 0  # torch's threads before an engine divided them, and after

    @property
    def whole(self) -> int:
        """As many threads as torch had before an engine divided them; what somebody else set since then counts."""
        now = torch.get_num_threads()
        return self._before if now == self._left else now

    def divide(self, threads: int, streams: int) -> None:
        """Give each operation its share of the threads; one at least."""
        before = self.whole
        torch.set_num_threads(max(threads // streams, 1))
        self._before, self._left = before, torch.get_num_threads()


cores = Cores()
