"""Records of evaluated panels, in which every method is right as often as was planted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from radmoe.evaluation import Records
from radmoe_studies.evidence import Panel


def records(panel: Panel, right: Mapping[str, float], *, basin: int = 0, seed: int = 0) -> Records:
    """Hits of each method with a known chance of being right; "average" is the chance itself on every problem."""
    rng = np.random.default_rng(seed)
    ease = (rng.permutation(len(panel)) + 0.5) / len(panel)  # methods agree on which problems are easy
    hits = {
        name: np.full(len(panel), share) if name == "average" else (ease < share).astype(np.float64)
        for name, share in right.items()
    }
    counts = {"basin": np.full(len(panel), basin, np.int64)}
    return Records(str(panel.path), panel.setting, panel.problem_ids, counts, {}, hits, panel.confidence_window)
