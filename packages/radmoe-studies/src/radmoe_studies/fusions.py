"""RAD+DC on panels: density and confidence together, by the two rules that `selector.choose` has.

"conf50" keeps the more confident half of the located rollouts and takes the densest of it, with densities computed in that
half. "ranksum" adds the ranks of density and confidence. Ties go to the more confident rollout, then to the lower index.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from radmoe.errors import InputError
from radmoe.selection.kernels import knn_density, levels, ranks
from radmoe.types import Fusion
from radmoe_studies.evidence import Floats, Ints, Panel, Request
from radmoe_studies.picks import hits, standard


def fused_picks(
    panel: Panel, rule: str = "conf50", request: Request | None = None, confidence: str = "cbw", k: int | None = None
) -> Ints:
    """The index of RAD+DC's pick per problem [P], -1 where it abstains; the request must keep whole matrices.

    Confidence is the scalar named `confidence`, and k the panel's own unless given. Raises MethodUnavailable where the panel
    has no such scalar.
    """
    if rule not in get_args(Fusion):
        raise InputError(f"unknown rule {rule!r}: use one of {', '.join(get_args(Fusion))}")
    read, values = panel.read(request or standard(panel)), panel.scalar(confidence)
    k, out = k or panel.setting.k, np.full(len(panel), -1, np.int64)
    for row, located in enumerate(read.located):
        runs = np.flatnonzero(located)
        if len(runs) < 2:
            continue
        sure = values[row, runs]
        if rule == "conf50":
            kept = np.sort(np.lexsort((runs, -sure))[: (len(runs) + 1) // 2])
            runs, sure = runs[kept], sure[kept]
        score = knn_density(np.ascontiguousarray(read.values[row][np.ix_(runs, runs)]), k)
        if rule == "ranksum":
            score = ranks(levels(score, k)) + ranks(sure)
        out[row] = runs[np.lexsort((runs, -sure, -levels(score, k)))[0]]
    return out


def fused(panel: Panel, rule: str = "conf50", request: Request | None = None) -> Floats:
    """Whether RAD+DC's pick is right: 1 or 0, NaN where it abstains or confidences were not captured."""
    if "cbw" not in panel.scalars:
        return np.full(len(panel), np.nan)
    return hits(panel, fused_picks(panel, rule, request))
