"""Steps and action boundaries of an agent's trajectory, counted apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe.selection.anchors import find_all, spec_for
from radmoe.types import Trace
from radmoe.vocab import Vocab


class Counts(NamedTuple):
    """How many steps a trajectory has, how many boundaries, and how many of its steps have no boundary."""

    steps: int
    boundaries: int
    without: int


def count_steps(rollout: Trace, vocab: Vocab) -> Counts:
    """Steps and boundaries of a trajectory, counted apart; a rollout of one prompt is one step."""
    starts = rollout.starts if len(rollout.starts) else np.zeros(1, np.int64)
    at = [anchor.start for anchor in find_all(spec_for("boundary", "agent", vocab), rollout.token_ids, vocab)]
    closed = np.unique(np.searchsorted(starts, at, "right"))
    return Counts(len(starts), len(at), len(starts) - len(closed))
