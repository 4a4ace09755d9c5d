"""The recipe of CONTRIBUTING.md: a method of one's own is one function, registered where it is written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pools import graded_pool, registry_restored
from radmoe.evaluation import build_report, evaluate_pool
from radmoe.evaluation.methods import GradedProblem, rank_sum, score_method
from radmoe.evaluation.screen import plain
from radmoe_lab.planted import PlantedGroup


def test_a_new_method_shows_in_the_evaluation_and_in_the_tables(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    evaluate_pool(path)  # what is cached does not know the method yet
    with registry_restored():

        @score_method("surprise", "least surprised", reads=("logprobs",), citation="an example")
        def surprise(problem: GradedProblem) -> np.ndarray:
            """Prefer the rollout whose most surprising token surprised least."""
            return np.array([rollout.sampled_logprobs.min() for rollout in problem.group.rollouts])

        rank_sum("rad", "surprise")
        (records,) = evaluate_pool(path)
        text = plain(build_report([records]))
    lowest = [[float(rollout.sampled_logprobs.min()) for rollout in one.group.rollouts] for one in made]
    assert records.outcomes.picks["surprise"].tolist() == [values.index(max(values)) for values in lowest]
    assert re.search(r"^least surprised +logprobs +\d", text, re.MULTILINE)
    assert re.search(r"^RAD \+ least surprised +routing, logprobs +\d", text, re.MULTILINE)
