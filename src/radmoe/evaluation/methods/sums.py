"""Rank sums. A further one is a line here, or a call of `rank_sum` anywhere."""

from __future__ import annotations

from radmoe.evaluation.methods import behaviours, confidence, overlap, presets, routing  # noqa: F401  (they register the parts)
from radmoe.evaluation.methods.registry import rank_sum

rank_sum("rad", "likelihood")
rank_sum("text-overlap", "likelihood")
rank_sum("rad", "text-overlap", "likelihood", label="RAD + text + likelihood")
rank_sum("best-routing", "text-overlap", label="best's routing + text")
rank_sum("best-routing", "text-overlap", "likelihood", label="best + text overlap")
rank_sum("best-routing", "likelihood")
rank_sum("best-routing", "self-certainty", label="best's routing + certainty")
rank_sum("best-routing", "behaviour", label="best's routing + behaviour")
rank_sum("behaviour", "text-overlap", "likelihood", label="behaviour + text + likelihood")
rank_sum("best-routing", "behaviour", "text-overlap", "likelihood", label="all of them")
