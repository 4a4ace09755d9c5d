"""The data types that all parts of radmoe share: frozen dataclasses that check their fields.

names.py       kinds of answers, presets, kernels, fusions
router.py      RouterShape
rollouts.py    Rollout, RolloutGroup, and Trace, which is what selection reads of a rollout
selections.py  Anchor, Selection
steps.py       the turns of a trajectory
arrays.py      checks of arrays that come from elsewhere
html.py        tables for notebooks
"""

from radmoe.types.arrays import WEIGHT_SUM_TOLERANCE, check_ids, check_weights
from radmoe.types.html import html_table
from radmoe.types.names import KINDS, Compare, Confidence, Fusion, Kernel, Kind, PresetName, check_kind
from radmoe.types.rollouts import Rollout, RolloutGroup, Rows, Trace, check_routing, places_of, rows_at
from radmoe.types.router import MAX_EXPERTS, RouterShape, sparse_layers
from radmoe.types.selections import SELECTION_KEYS, Anchor, Selection, check_noise
from radmoe.types.steps import Step, check_starts, check_steps

__all__ = [
    "KINDS", "MAX_EXPERTS", "SELECTION_KEYS", "WEIGHT_SUM_TOLERANCE", "Anchor", "Compare", "Confidence", "Fusion", "Kernel", "Kind",
    "PresetName", "Rollout", "RolloutGroup", "RouterShape", "Rows", "Selection", "Step", "Trace", "check_ids", "check_kind", "check_noise",
    "check_routing", "check_starts", "check_steps", "check_weights", "html_table", "places_of", "rows_at", "sparse_layers",
]  # fmt: skip
