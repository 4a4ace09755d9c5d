"""What every registered method gives on the problems of a panel: the records that `radmoe evaluate` makes its tables from.

Methods that read texts cannot be computed from a panel's arrays, so the pools are evaluated, or their records are taken
from the cache of evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from radmoe.errors import InputError
from radmoe.evaluation import Records, evaluate_pool
from radmoe_studies.evidence import Evidence, Floats, Panel


def records_of(evidence: Evidence) -> dict[Panel, Records]:
    """The records of every panel, over the panel's problems in its order."""
    out: dict[Panel, Records] = {}
    evaluated: dict[object, tuple[Records, ...]] = {}
    for panel in evidence.panels:
        if panel.path not in evaluated:
            evaluated[panel.path] = evaluate_pool(
                panel.path, confidence_window=panel.confidence_window, jobs=evidence.jobs, use_cache=evidence.use_cache
            )
        own = next((one for one in evaluated[panel.path] if one.setting.kind == panel.kind), None)
        if own is None or own.problem_ids != panel.problem_ids:
            raise InputError(f"{panel.path} was graded anew while it was read: run the study again")
        out[panel] = own
    return out


def hits_of(records: Mapping[Panel, Records], panel: Panel, method: str) -> Floats:
    """How right a method is on each problem [P], an abstention being wrong; NaN where it has no result on this panel."""
    return records[panel].hits.get(method, np.full(len(panel), np.nan))
