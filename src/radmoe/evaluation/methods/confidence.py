"""Methods that read log-probabilities alone: how sure the model was of its own words."""

from __future__ import annotations

from radmoe.evaluation.methods.registry import score_method
from radmoe.evaluation.problem import Floats, GradedProblem


@score_method(
    "likelihood", "likelihood", reads=("logprobs",), citation="Adiwardana et al. 2020 (sample-and-rank), per token"
)
def likelihood(problem: GradedProblem) -> Floats:
    """The rollout that the model found most likely, per token: a baseline that costs nothing."""
    return problem.likelihoods


@score_method(
    "self-certainty", "self-certainty", reads=("logprobs",), citation="Kang et al. 2025, over the kept candidates"
)
def self_certainty(problem: GradedProblem) -> Floats:
    """The mean token confidence of DeepConf, which is self-certainty over the candidates that the pool keeps."""
    return problem.confidence["mean"]


@score_method(
    "confident", "most confident (cBW)", reads=("logprobs",), citation="Fu et al. 2026 (DeepConf), bottom window"
)
def confident(problem: GradedProblem) -> Floats:
    """The bottom-window confidence, by which RAD+DC filters."""
    return problem.confidence["bottom-window"]
