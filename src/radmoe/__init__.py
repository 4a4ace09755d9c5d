"""Routing Agreement Decoding (RAD): best-of-N for sparse-MoE models, without reading an answer.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radmoe.errors import RadmoeError
    from radmoe.pool import Pool, PoolWriter, Profile, merge_pools, open_pool
    from radmoe.selector import medoid, select, select_many
    from radmoe.types import Anchor, Rollout, RolloutGroup, RouterShape, Selection
    from radmoe.vocab import Vocab

__version__ = "0.1.0"

_HOME = {
    "RadmoeError": "errors",
    "Anchor": "types",
    "Rollout": "types",
    "RolloutGroup": "types",
    "RouterShape": "types",
    "Selection": "types",
    "Vocab": "vocab",
    "medoid": "selector",
    "select": "selector",
    "select_many": "selector",
    "Pool": "pool",
    "PoolWriter": "pool",
    "Profile": "pool",
    "open_pool": "pool",
    "merge_pools": "pool",
}
_MODULES = ("anchors", "confidence", "errors", "kernels", "pool", "readout", "selector", "stats", "types", "vocab")

__all__ = [
    "Anchor",
    "Pool",
    "PoolWriter",
    "Profile",
    "RadmoeError",
    "Rollout",
    "RolloutGroup",
    "RouterShape",
    "Selection",
    "Vocab",
    "medoid",
    "merge_pools",
    "open_pool",
    "select",
    "select_many",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"radmoe.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"radmoe.{name}")
    raise AttributeError(f"module 'radmoe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
