"""Rank sums. A further one is a line here, or a call of `rank_sum` anywhere."""

from __future__ import annotations

from radmoe.cohort.methods import confidence, overlap, routing  # noqa: F401  (they register the parts)
from radmoe.cohort.registry import rank_sum

rank_sum("rad", "likelihood")
rank_sum("text-overlap", "likelihood")
