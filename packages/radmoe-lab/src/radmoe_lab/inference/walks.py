"""Which pass over a tree is under way in this thread (see `tree`). Apart from the kernels, so that a GPU needs none of them."""

from __future__ import annotations

import threading
from typing import Any


class _UnderWay(threading.local):
    walk: Any = None  # a `tree_layers.Walk`


under_way = _UnderWay()


def current_walk() -> Any:
    """The pass of this thread, or None."""
    return under_way.walk
