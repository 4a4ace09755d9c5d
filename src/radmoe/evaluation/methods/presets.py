"""The presets of `radmoe select --preset`, each as a method.

A preset has its own readout, k and kernel, so the options of `radmoe evaluate` do not change it.
"""

from __future__ import annotations

from functools import partial

from radmoe.evaluation.methods.registry import pick_method, score_method
from radmoe.evaluation.problem import Floats, GradedProblem
from radmoe.selection.kernels import density_scores
from radmoe.selection.rule import PRESETS, Rule
from radmoe.types import PresetName

CITATION = "radmoe, docs/readouts.md"


def selected(problem: GradedProblem, preset: PresetName) -> int | None:
    """What `select(group, preset=...)` picks."""
    return problem.selected(Rule(preset=preset).settle(problem.setting.kind, len(problem))).index


for _preset in PRESETS.values():
    pick_method(f"preset:{_preset.name}", f"preset {_preset.name}", reads=_preset.reads, citation=CITATION)(
        partial(selected, preset=_preset.name)
    )


@score_method("best-routing", "best's routing", reads=("routing",), citation=CITATION)
def best_routing(problem: GradedProblem) -> Floats:
    """The density of routing by the readout, k and kernel of the preset best, without its confidence."""
    setting = Rule(preset="best", fusion="none").settle(problem.setting.kind, len(problem))
    S, reading, _ = problem.compared(setting)
    return density_scores(S, reading.located, setting.k)
