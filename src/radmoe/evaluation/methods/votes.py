"""Votes over exact answers. A rollout without an answer casts none; a vote without voters abstains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from radmoe.evaluation import baselines
from radmoe.evaluation.methods.registry import draw_method, pick_method
from radmoe.evaluation.problem import GradedProblem

SELF_CONSISTENCY = "Wang et al. 2023 (self-consistency)"

# DeepConf's votes by our names: the confidence scalar that weighs, whether only the most confident tenth may vote, and the label.
DEEPCONF = {
    "deepconf": ("bottom-window", False, "DeepConf"),
    "deepconf-mean": ("mean", False, "DeepConf mean"),
    "deepconf-tail": ("tail", False, "DeepConf tail"),
    "deepconf-lowest-window": ("lowest-window", False, "DeepConf lowest window"),
    "deepconf-tail-top10": ("tail", True, "DeepConf tail, top 10%"),
    "deepconf-bottom-window-top10": ("bottom-window", True, "DeepConf bottom window, top 10%"),
}


@pick_method("majority", "Cons@N", reads=("answers",), citation=SELF_CONSISTENCY, vote=True)
def majority(problem: GradedProblem) -> int | None:
    """The most frequent answer; of equally frequent ones, that which was seen first."""
    return baselines.majority(problem.answers)


@draw_method("majority-split", "Cons@N, ties split", reads=("answers",), citation=SELF_CONSISTENCY, vote=True)
def majority_split(problem: GradedProblem) -> Sequence[int]:
    """The most frequent answer; of equally frequent ones, one at random: a tie of t answers, r of them right, is r/t."""
    return baselines.most_frequent(problem.answers)


def deepconf(problem: GradedProblem, scalar: str, filtered: bool) -> int | None:
    """A vote that is weighted, and perhaps filtered, by confidence."""
    vote = baselines.filtered_vote if filtered else baselines.weighted_vote
    return vote(problem.answers, problem.confidence[scalar])


for _name, (_scalar, _filtered, _label) in DEEPCONF.items():
    pick_method(_name, _label, reads=("logprobs", "answers"), citation="Fu et al. 2026 (DeepConf)", vote=True)(
        partial(deepconf, scalar=_scalar, filtered=_filtered)
    )
