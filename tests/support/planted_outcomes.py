"""Panels that were evaluated, in which every method is right as often as was planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from radmoe.evaluation.pools import Outcomes
from radmoe_studies.evidence import Panel


def evaluated(panel: Panel, right: Mapping[str, float], *, basin: int = 0, seed: int = 0) -> Panel:
    """The panel with hits of each method, which has a known chance of being right; "average" is the chance itself."""
    rng = np.random.default_rng(seed)
    ease = (rng.permutation(len(panel)) + 0.5) / len(panel)  # methods agree on which problems are easy
    hits = {
        name: np.full(len(panel), share) if name == "average" else (ease < share).astype(np.float64)
        for name, share in right.items()
    }
    counts = {"basin": np.full(len(panel), basin, np.int64)}
    return replace(panel, known={"outcomes": Outcomes(counts, {}, hits, {})})
