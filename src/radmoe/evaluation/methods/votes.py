"""Votes over exact answers. A rollout without an answer casts none; a vote without voters abstains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from radmoe.evaluation import baselines
from radmoe.evaluation.methods.registry import draw_method, pick_method
from radmoe.evaluation.problem import GradedProblem

SELF_CONSISTENCY = "Wang et al. 2023 (self-consistency)"

# DeepConf's votes by our names: the vote (`baselines.DEEPCONF`) and the label.
DEEPCONF = {
    "deepconf": ("bottom-window", "DeepConf"),
    "deepconf-mean": ("mean", "DeepConf mean"),
    "deepconf-tail": ("tail", "DeepConf tail"),
    "deepconf-lowest-window": ("lowest-window", "DeepConf lowest window"),
    "deepconf-tail-top10": ("tail-top10", "DeepConf tail, top 10%"),
    "deepconf-bottom-window-top10": ("bottom-window-top10", "DeepConf bottom window, top 10%"),
}


@pick_method("majority", "Cons@N", reads=("answers",), citation=SELF_CONSISTENCY, vote=True)
def majority(problem: GradedProblem) -> int | None:
    """The most frequent answer; of equally frequent ones, that which was seen first."""
    return baselines.majority(problem.answers)


@draw_method("majority-split", "Cons@N, ties split", reads=("answers",), citation=SELF_CONSISTENCY, vote=True)
def majority_split(problem: GradedProblem) -> Sequence[int]:
    """The most frequent answer; of equally frequent ones, one at random: a tie of t answers, r of them right, is r/t."""
    return baselines.most_frequent(problem.answers)


def deepconf(problem: GradedProblem, vote: str) -> int | None:
    """A vote that is weighted, and perhaps filtered, by confidence."""
    return baselines.deepconf(problem.answers, problem.confidence, vote)


for _name, (_vote, _label) in DEEPCONF.items():
    pick_method(_name, _label, reads=("logprobs", "answers"), citation="Fu et al. 2026 (DeepConf)", vote=True)(
        partial(deepconf, vote=_vote)
    )
