"""Methods that choose a trajectory: those of `radmoe evaluate`, without its view of the verdicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted_trajectories import write_runs
from radmoe.errors import InputError
from radmoe.evaluation.methods import METHODS as EVALUATED
from radmoe.evaluation.methods import rank_sum
from radmoe.evaluation.problem import GradedProblem, Marks
from radmoe.pool import open_pool
from radmoe.selection.kernels import binary_jaccard
from radmoe.selection.rule import Rule
from radmoe_agent.candidates import read_candidates
from radmoe_agent.methods import METHODS, Cohort, parts_of, scores_of
from radmoe_agent.patches import decide_all

NAMES = {"rad": "rad", "patch-overlap": "text-overlap", "likelihood": "likelihood"}  # here, and in radmoe evaluate


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, "rad+likelihood", "rad+patch-overlap+likelihood"])
def test_the_pick_is_that_of_radmoe_evaluate(method: str, tmp_path: Path) -> None:
    write_runs(tmp_path, issues=6, n=7)
    parts = [NAMES[name] for name in method.split("+")]
    evaluated = EVALUATED.get("+".join(parts)) or rank_sum(*parts)
    pool, candidates = open_pool(tmp_path / "pool"), read_candidates(tmp_path)
    for one in decide_all(tmp_path, method=method):
        answers = tuple(member.patch.strip() for member in candidates[one.instance_id])
        marks = Marks(answers, (False,) * 7)
        problem = GradedProblem(pool.group(one.instance_id), Rule().settle("agent"), marks)
        assert one.run == evaluated.judge(problem).pick


def cohort(patches: list[str]) -> Cohort:
    n = len(patches)
    S = binary_jaccard(np.eye(n, 2 * n, dtype=np.float32) + 1)
    return Cohort(patches, [None] * n, S, np.ones(n, bool), 4)


@pytest.mark.slow
@given(st.lists(st.sampled_from(["+a b c", "+a b d", "-x y z"]), min_size=2, max_size=9))
def test_a_patch_that_most_have_left_wins(patches: list[str]) -> None:
    most = max(patches, key=patches.count)
    made = scores_of("patch-overlap", cohort(patches)).total
    if patches.count(most) > len(patches) / 2:
        assert patches[int(np.argmax(made))] == most
    means = cohort(patches).mean_overlaps
    assert means[int(np.argmax(made))] == pytest.approx(means.max())


def test_without_log_probabilities_likelihood_scores_nobody() -> None:
    made = scores_of("likelihood", cohort(["+a", "+b"]))
    assert np.isnan(made.total).all()
    assert np.isnan(scores_of("patch-overlap+likelihood", cohort(["+a", "+b"])).total).all()


def test_parts_are_named_in_any_order() -> None:
    assert parts_of("likelihood+rad") == ("rad", "likelihood")
    for name in ("rad+rad", "", "rad+", "best", "rad likelihood"):
        with pytest.raises(InputError, match="unknown method"):
            parts_of(name)
