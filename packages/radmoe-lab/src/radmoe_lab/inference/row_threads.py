"""Splits work on the rows of arrays among as many threads as torch uses. The work must release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch


def in_shares(work: Callable[[slice], None], rows: int, least: int = 1) -> None:
    """Call `work` with slices that cover all rows, in parallel; each slice has at least `least` rows."""
    shares = min(torch.get_num_threads(), rows // least)
    if shares <= 1:
        work(slice(0, rows))
        return
    cuts = [slice(i * rows // shares, (i + 1) * rows // shares) for i in range(shares)]
    list(_threads().map(work, cuts))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "share")
