"""Methods that read routing: RAD and its relatives. They never see an answer."""

from __future__ import annotations

from dataclasses import replace

from radmoe.errors import MethodUnavailable
from radmoe.evaluation.methods.registry import pick_method, score_method
from radmoe.evaluation.problem import Floats, GradedProblem
from radmoe.selection.kernels import density_scores

MAIN = 'Sec. "Routing Agreement Decoding (RAD)", Eq. 5'
FUSED = 'Sec. "Confidence fusion (RAD+DC)"'
STRICT = 'App. "Strict marker-only readouts"'


@score_method("rad", "RAD", reads=("routing",), citation=MAIN)
def rad(problem: GradedProblem) -> Floats:
    """The K-NN density at the anchor."""
    return _density(problem, None, problem.setting.k)


@pick_method("rad+dc", "RAD+DC", reads=("routing", "logprobs"), citation=FUSED)
def rad_dc(problem: GradedProblem) -> int | None:
    """RAD among the more confident half, by cBW."""
    return _confident_half(problem, None)


@score_method("strict", "RAD", reads=("routing",), citation=STRICT)
def strict(problem: GradedProblem) -> Floats:
    """RAD over the marker's own tokens: no row is conditioned on what the answer says."""
    return _density(problem, _marker_only(problem), problem.setting.k)


@pick_method("strict+dc", "RAD+DC", reads=("routing", "logprobs"), citation=STRICT)
def strict_dc(problem: GradedProblem) -> int | None:
    """RAD+DC over the marker's own tokens."""
    return _confident_half(problem, _marker_only(problem))


@score_method(
    "medoid", "medoid", reads=("routing",), citation='Sec. "Routing Agreement Decoding (RAD)": the global medoid'
)
def medoid(problem: GradedProblem) -> Floats:
    """The similarity to all other rollouts: a density whose neighbourhood is everyone."""
    return _density(problem, None, max(1, len(problem)))


def _density(problem: GradedProblem, readout: str | None, k: int) -> Floats:
    S, reading = problem.similarity(readout)
    return density_scores(S, reading.located, k)


def _confident_half(problem: GradedProblem, readout: str | None) -> int | None:
    setting = replace(problem.setting, readout=readout or problem.setting.readout, fusion="conf50", confidence="cbw")
    return problem.selected(setting).index


def _marker_only(problem: GradedProblem) -> str:
    if problem.setting.strict is None:
        raise MethodUnavailable(f"{problem.setting.readout} has no marker-only form")
    return problem.setting.strict
