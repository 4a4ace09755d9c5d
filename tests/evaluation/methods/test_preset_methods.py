"""Presets and rivals as methods: they pick what `select` picks, and say why where they cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_groups import golden_problems, planted_problems
from graded_groups import problem_of
from planted_pools import graded_pool
from radmoe.errors import MethodUnavailable, RolloutError
from radmoe.evaluation.methods import METHODS, GradedProblem
from radmoe.evaluation.methods.overlap import edit_similarity
from radmoe.evaluation.pools import measure_problem, open_graded
from radmoe.evaluation.problem import Marks
from radmoe.pool import Profile
from radmoe.selection.kernels import ranks
from radmoe.selection.overlap import words
from radmoe.selection.rule import PRESETS, Rule
from radmoe.selection.selector import select
from radmoe.types import Rollout
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup


def problems() -> list[GradedProblem]:
    return [
        GradedProblem(group, Rule().settle(group.kind or kind), Marks(tuple(answers), (False,) * len(answers)))  # type: ignore[arg-type]
        for kind, group, answers in [*golden_problems(), *planted_problems()]
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_picks_what_select_picks(preset: str) -> None:
    picks = []
    for problem in problems():
        own = select(problem.group, kind=problem.setting.kind, preset=preset).index
        assert METHODS[f"preset:{preset}"].judge(problem).pick == own, problem.problem_id
        picks.append(own)
    assert len(set(picks)) > 2


def test_a_preset_does_not_follow_the_options_of_evaluation() -> None:
    one = problems()[-1]
    other = replace(
        one, setting=Rule(readout="boundary@4", k=1).settle(one.setting.kind), _results={}, _similarities={}
    )
    for preset in PRESETS:
        method = METHODS[f"preset:{preset}"]
        assert method.judge(one) == method.judge(other)


def test_presets_without_logprobs_say_which_are_missing() -> None:
    made = next(planted.groups(Planted(problems=1, rollouts=6, logprobs=False)))
    problem = GradedProblem(made.group, Rule().settle("math"), Marks(tuple(made.answers), (False,) * 6))
    for preset, reason in (
        ("best", "no logprobs of the sampled tokens"),
        ("best+text", "no logprobs of the sampled tokens"),
        ("paper+dc", "no top-k logprobs"),
    ):
        with pytest.raises(MethodUnavailable, match=reason):
            METHODS[f"preset:{preset}"].judge(problem)
    for preset in ("paper", "strict"):
        assert METHODS[f"preset:{preset}"].judge(problem).pick is not None


def test_a_pool_that_kept_other_rows_is_evaluated_without_the_presets_it_cannot_serve(
    made: list[PlantedGroup], tmp_path: Path
) -> None:
    path = graded_pool(tmp_path / "p", made, profile=Profile(readouts=("delimiter@marker",)))
    outcome = measure_problem(next(iter(open_graded(path, rule=Rule(readout="delimiter@marker"))[0])))
    assert outcome.missing["preset:best"] == "the pool keeps no rows for delimiter@span"
    assert "best-routing+text-overlap" in outcome.missing
    assert outcome.missing["preset:paper"] == "the pool keeps no rows for delimiter@16"
    for name in ("rad", "rad+dc", "preset:strict", "text-overlap", "edit-distance", "likelihood"):
        assert name in outcome.picks


def test_routing_that_no_router_gives_is_not_mistaken_for_rows_that_were_not_kept() -> None:
    problem = problem_of(["a", "b"], truth="a")
    ids = np.array(planted.tokenizer().encode("so \\boxed{7} it").ids)
    broken = Rollout(ids, np.full((len(ids), 2, 1), 3, np.int16), np.ones((len(ids), 2, 1), np.float16))
    broken.weights[:] = 2.0  # type: ignore[index]
    problem = replace(problem, group=replace(problem.group, rollouts=(broken, broken)))
    with pytest.raises(RolloutError, match="sum to 2, not 1"):
        METHODS["best-routing"].judge(problem)


def test_routing_with_overlap_and_likelihood_is_the_sum_of_three_ranks() -> None:
    for problem in problems():
        parts = np.stack([METHODS[name].score(problem) for name in ("best-routing", "text-overlap", "likelihood")])
        scored = ~np.isnan(parts).any(axis=0)
        total = np.sum([ranks(part[scored]) for part in parts], axis=0)
        pick = METHODS["best-routing+text-overlap+likelihood"].judge(problem).pick
        assert pick is not None
        assert total[np.flatnonzero(scored).tolist().index(pick)] == total.max()


# -- edit distance ------------------------------------------------------------------------------------------------------

Texts = st.text(st.sampled_from("ab_1 \n+(é"), max_size=12)


def levenshtein(one: list[str], other: list[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (a != b)))
    return row[-1]


@settings(deadline=None)
@given(st.lists(Texts, max_size=7))
def test_edit_similarity_is_one_minus_the_share_of_edits(texts: list[str]) -> None:
    S = edit_similarity(texts)
    assert S.shape == (len(texts), len(texts))
    for i, one in enumerate(map(words, texts)):
        for j, other in enumerate(map(words, texts)):
            longer = max(len(one), len(other))
            assert S[i, j] == pytest.approx(1 - levenshtein(one, other) / longer if longer else 1.0, abs=1e-6)


def test_edit_distance_finds_the_common_program_and_leaves_out_who_has_none() -> None:
    programs = [f"def f(x):\n    y = x + {i}\n    return y" for i in range(4)]
    problem = problem_of([None, "print(1)", *programs, "import os\nos.abort()"], truth=programs[0], kind="code")
    scores = METHODS["edit-distance"].score(problem)
    assert np.isnan(scores).tolist() == [True] + [False] * 6
    assert METHODS["edit-distance"].judge(problem).pick in (2, 3, 4, 5)


# -- behaviour ----------------------------------------------------------------------------------------------------------


def test_programs_are_counted_by_what_they_do() -> None:
    problem, other = (problem_of(["p", "q", "r", "s", None], truth="r", kind="code") for _ in range(2))
    acting = replace(other, marks=other.marks._replace(behaviours=("0x1", "0x2", "0x2", None, None)))
    method = METHODS["behaviour"]
    assert method.score(acting)[:3].tolist() == [1, 2, 2]
    assert np.isnan(method.score(acting)[3:]).all()
    assert method.judge(acting).pick == 1
    with pytest.raises(MethodUnavailable, match="radmoe grade POOL --behaviours"):
        method.judge(problem)
    with pytest.raises(MethodUnavailable, match="answers of kind math are no programs"):
        method.judge(problem_of(["1"], truth="1"))
