"""Routing Agreement Decoding (RAD): best-of-N for sparse-MoE models, without parsing or comparing answers.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radmoe.capture import Plan, capture_pool
    from radmoe.engines import EngineOptions, open_engine
    from radmoe.engines.base import Engine, Sampling
    from radmoe.engines.http.engine import SglangHttpEngine, VllmHttpEngine
    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe.engines.vllm.engine import VllmEngine
    from radmoe.engines.vllm.outputs import from_vllm
    from radmoe.errors import RadmoeError
    from radmoe.evaluation import evaluate_pool
    from radmoe.grading import grade_pool
    from radmoe.pool import Pool, PoolWriter, Profile, merge_pools, open_pool
    from radmoe.problems import Question, load_questions
    from radmoe.selection.calibration import Calibration, find_calibration, load_calibration
    from radmoe.selection.online import Decision, OnlineSelector, Stopping
    from radmoe.selection.rule import Rule
    from radmoe.selection.selector import medoid, select, select_many
    from radmoe.system.plugins import Plugin
    from radmoe.types import Anchor, Rollout, RolloutGroup, RouterShape, Selection, Step
    from radmoe.vocab import Vocab

__version__ = "0.1.0"

_HOME = {
    name: home
    for home, names in {
        "capture": "Plan capture_pool",
        "engines": "EngineOptions open_engine",
        "engines.base": "Engine Sampling",
        "engines.http.engine": "SglangHttpEngine VllmHttpEngine",
        "engines.torch.engine": "TransformersEngine",
        "engines.vllm.engine": "VllmEngine",
        "engines.vllm.outputs": "from_vllm",
        "errors": "RadmoeError",
        "evaluation": "evaluate_pool",
        "grading": "grade_pool",
        "pool": "Pool PoolWriter Profile merge_pools open_pool",
        "problems": "Question load_questions",
        "selection.calibration": "Calibration find_calibration load_calibration",
        "selection.online": "Decision OnlineSelector Stopping",
        "selection.rule": "Rule",
        "selection.selector": "medoid select select_many",
        "system.plugins": "Plugin",
        "types": "Anchor Rollout RolloutGroup RouterShape Selection Step",
        "vocab": "Vocab",
    }.items()
    for name in names.split()
}
_MODULES = {
    "anchors": "selection.anchors", "confidence": "selection.confidence", "errors": "errors",
    "kernels": "selection.kernels", "kinds": "selection.kinds", "pool": "pool", "readout": "selection.readout",
    "selector": "selection.selector", "stats": "evaluation.stats", "types": "types", "vocab": "vocab",
}  # fmt: skip

__all__ = [
    "Anchor", "Calibration", "Decision", "Engine", "EngineOptions", "OnlineSelector", "Plan", "Plugin", "Pool",
    "PoolWriter", "Profile", "Question", "RadmoeError", "Rollout", "RolloutGroup", "RouterShape", "Rule", "Sampling",
    "Selection", "SglangHttpEngine", "Step", "Stopping", "TransformersEngine", "VllmEngine", "VllmHttpEngine", "Vocab",
    "capture_pool", "evaluate_pool", "find_calibration", "from_vllm", "grade_pool", "load_calibration", "load_questions",
    "medoid", "merge_pools", "open_engine", "open_pool", "select", "select_many",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"radmoe.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"radmoe.{_MODULES[name]}")
    raise AttributeError(f"module 'radmoe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
