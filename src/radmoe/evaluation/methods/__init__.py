"""The methods of `radmoe evaluate`. Every module of this folder, and of plugins, is loaded and registers what it defines.

registry.py     Method, and how one is registered; rank sums
routing.py      RAD, RAD+DC, their marker-only forms, the medoid
confidence.py   what reads log-probabilities alone
votes.py        majority and DeepConf: votes over exact answers
behaviours.py   programs grouped by what they return for the visible examples
overlap.py      minimum Bayes risk over the answers' text: bigrams, edit distance
presets.py      the presets of `radmoe select`
lengths.py      the number of tokens and of steps
bounds.py       the average rollout and the oracle
sums.py         rank sums of the above
"""

from importlib import import_module
from pkgutil import iter_modules

from radmoe.evaluation.methods.registry import (
    METHODS,
    Method,
    MethodOutcome,
    draw_method,
    pick_method,
    rank_sum,
    score_method,
)
from radmoe.evaluation.problem import GradedProblem
from radmoe.system.plugins import import_modules

__all__ = [
    "METHODS", "GradedProblem", "Method", "MethodOutcome", "draw_method", "pick_method", "rank_sum", "score_method",
]  # fmt: skip

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
import_modules("methods")
