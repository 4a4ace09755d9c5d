"""Graded problems: labels joined once, kinds settled once, similarities computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planted_pools import write_pool
from pools import graded_pool, labels
from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation import problem
from radmoe.evaluation.methods import GradedProblem
from radmoe.evaluation.pools import GradedPool, open_graded
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import PoolWriter, open_pool
from radmoe.selection.readout import read
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup


@pytest.fixture(scope="module")
def graded(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graded_pool(tmp_path_factory.mktemp("graded") / "pool", made)


def opened(path: Path, **options: Any) -> GradedPool:
    """A graded pool of one kind."""
    (pool,) = open_graded(path, **options)
    return pool


def test_every_rollout_has_its_own_label(graded: Path, made: list[PlantedGroup]) -> None:
    pool = opened(graded)
    assert pool.problem_ids == tuple(one.group.problem_id for one in made)
    for one, graded_problem in zip(made, pool, strict=True):
        assert list(graded_problem.answers) == one.answers
        assert graded_problem.correct.tolist() == [answer == one.truth for answer in one.answers]
        assert graded_problem.lengths.tolist() == [len(rollout) for rollout in one.group.rollouts]


def test_labels_follow_rollout_indices_and_not_places(made: list[PlantedGroup], tmp_path: Path) -> None:
    """Rollouts 7, 3 and 5 are written in this order; the pool hands them out by index, and so are their labels."""
    group = made[0].group
    with PoolWriter(tmp_path / "p", shape=group.shape, vocab=group.vocab, model="m") as writer:
        for index in (7, 3, 5):
            writer.add("one", group.rollouts[index], kind="math", rollout_index=index)
    write_labels(tmp_path / "p", [Label("one", index, f"answer {index}", index == 5) for index in (5, 7, 3)])
    one = opened(tmp_path / "p").problem("one")
    assert one.answers == ("answer 3", "answer 5", "answer 7")
    assert one.correct.tolist() == [False, True, False]
    assert one.group.rollout_indices == (3, 5, 7)


def test_problems_with_fewer_rollouts_than_asked_for_are_left_out_and_counted(
    made: list[PlantedGroup], tmp_path: Path
) -> None:
    one = made[0].group
    with PoolWriter(tmp_path / "p", shape=one.shape, vocab=one.vocab, model="m") as writer:
        for problem_id, count in (("few", 3), ("many", 6)):
            for rollout in one.rollouts[:count]:
                writer.add(problem_id, rollout, kind="math")
    write_labels(tmp_path / "p", [Label(p, i, "1", i == 4) for p, c in (("few", 3), ("many", 6)) for i in range(c)])
    pool = opened(tmp_path / "p", n=4)
    assert (pool.problem_ids, pool.problem("many").correct.tolist()) == (("many",), [False] * 4)
    assert pool.notes == ("1 of 2 problems have fewer than 4 rollouts and are left out",)
    with pytest.raises(InputError, match="has 7 rollouts, the most are 6: ask for fewer"):
        opened(tmp_path / "p", n=7)
    with pytest.raises(InputError, match="n must be at least 1, got 0"):
        opened(tmp_path / "p", n=0)


def test_problems_without_all_labels_are_left_out_and_counted(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "pool", made)
    wanted = [label for label in labels(made) if label.problem_id != "planted-0001"]
    write_labels(path, [label for label in wanted if (label.problem_id, label.rollout_index) != ("planted-0002", 3)])
    pool = opened(path)
    assert pool.problem_ids == ("planted-0000", "planted-0003")
    assert pool.notes == (
        "1 of 4 problems have no labels and are left out",
        "1 of 4 problems have labels for some rollouts only and are left out",
    )
    with pytest.raises(InputError, match="no graded problem 'planted-0001': it has 2 others"):
        pool.problem("planted-0001")


def test_every_problem_is_read_as_its_kind_says(made: list[PlantedGroup], tmp_path: Path) -> None:
    code = list(planted.groups(Planted(problems=1, rollouts=12, tokens=60, kind="code", seed=5)))
    code = [replace(code[0], group=replace(code[0].group, problem_id="program"))]
    agent = replace(made[1], group=replace(made[1].group, kind="agent"))
    pools = open_graded(graded_pool(tmp_path / "pool", [made[0], *code, agent]))
    readings = [(one.setting.kind, one.setting.readout, one.setting.k, one.setting.kernel) for one in pools]
    assert readings == [
        ("math", "delimiter@16", 10, "weighted"),
        ("code", "delimiter@16", 10, "weighted"),
        ("agent", "boundary@union", 4, "binary"),
    ]
    for (one,), source in zip(pools, [made[0].group, code[0].group, agent.group], strict=True):
        assert one.selection.index == select(source).index
    assert pools[0].inferred == ""


def test_a_kind_that_nobody_said_is_told_from_markers_and_said(tmp_path: Path) -> None:
    code = list(planted.groups(Planted(problems=3, rollouts=8, tokens=60, kind="code", seed=5)))
    pool = opened(graded_pool(tmp_path / "pool", code, record_kind=False))
    assert pool.kind == "code"
    assert pool.inferred.startswith("kind code: inferred from ``` in ")
    assert all(one.selection.located.mean() > 0.5 for one in pool)


def test_a_kind_that_contradicts_the_pool_is_one_clear_line(graded: Path) -> None:
    with pytest.raises(
        InputError, match="records that problem 'planted-0000' is of kind math, --kind code contradicts"
    ):
        opened(graded, kind="code")


def test_options_replace_what_the_kind_says(graded: Path) -> None:
    one = opened(graded, rule=Rule(readout="boundary@8", k=3, kernel="binary", confidence_window=32)).problem(
        "planted-0000"
    )
    assert (one.setting.readout, one.setting.k, one.setting.kernel, one.setting.confidence_window) == (
        "boundary@8",
        3,
        "binary",
        32,
    )


class Counting:
    """Counts calls of a function, and remembers how the last one was made."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, list[dict[str, Any]]()

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls.append(options)
        return self.function(*args, **options)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counter = Counting(similarity)
    monkeypatch.setattr(problem, "similarity", counter)
    return counter


def test_a_similarity_is_computed_once_per_readout_and_kernel(graded: Path, counted: Counting) -> None:
    one = opened(graded).problem("planted-0000")
    first = one.similarity()
    assert one.similarity("delimiter@16")[0] is first[0]
    assert one.similarity(kernel="weighted")[0] is first[0]
    assert one.selection.located is first[1].located
    assert len(counted.calls) == 1
    others = [one.similarity("delimiter@4"), one.similarity(kernel="binary")]
    assert len(counted.calls) == 3
    assert not any(np.array_equal(S, first[0]) for S, _ in others)


def test_a_similarity_is_that_of_the_selector(graded: Path) -> None:
    one = opened(graded).problem("planted-0001")
    for readout, kernel in (("delimiter@16", "weighted"), ("boundary@8", "binary"), ("delimiter@marker", "weighted")):
        S, reading = one.similarity(readout, kernel=kernel)
        expected, _ = similarity(one.group, replace(one.setting, readout=readout, kernel=kernel))
        assert np.array_equal(S, expected)
        assert reading.anchors == read(one.group, readout, "math").anchors


def test_anchors_are_not_searched_again_for_another_width(graded: Path, counted: Counting) -> None:
    one = opened(graded).problem("planted-0000")
    anchors = one.similarity()[1].anchors
    one.similarity("delimiter@marker")
    one.similarity("boundary@16")
    assert [call["anchors"] for call in counted.calls] == [None, anchors, None]


def test_what_a_rollout_lacks_is_said_by_whoever_asks(made: list[PlantedGroup]) -> None:
    def without(**columns: Any) -> GradedProblem:
        rollouts = [replace(rollout, **columns) for rollout in made[0].group.rollouts]
        source = planted_problem(made[0])
        return replace(source, group=replace(source.group, rollouts=rollouts))

    bare = without(topk_logprobs=None)
    with pytest.raises(MethodUnavailable, match="no top-k logprobs"):
        bare.confidence  # noqa: B018
    assert len(bare.likelihoods) == 12
    with pytest.raises(MethodUnavailable, match="no logprobs of the sampled tokens"):
        without(sampled_logprobs=None).likelihoods  # noqa: B018


def test_a_likelihood_that_is_no_number_is_not_taken_for_unscored(made: list[PlantedGroup]) -> None:
    rollouts = list(made[0].group.rollouts)
    values = np.array(rollouts[2].sampled_logprobs)
    rollouts[2] = replace(rollouts[2], sampled_logprobs=values)  # type: ignore[type-var]
    values[1] = np.nan
    source = planted_problem(made[0])
    with pytest.raises(MethodUnavailable, match="rollout 2 of planted-0000: logprobs contain NaN: recapture"):
        replace(source, group=replace(source.group, rollouts=rollouts)).likelihoods  # noqa: B018


def planted_problem(one: PlantedGroup) -> GradedProblem:
    """A planted problem in memory, graded."""
    marks = problem.Marks(tuple(one.answers), tuple(answer == one.truth for answer in one.answers))
    return GradedProblem(one.group, Rule().settle(one.group.kind), marks)


def test_steps_are_paragraphs_or_action_boundaries(made: list[PlantedGroup]) -> None:
    one = planted_problem(made[0])
    assert one.steps.tolist() == [text.count("\n\n") for text in made[0].texts]
    agent = replace(one, setting=Rule().settle("agent"))
    assert agent.steps.tolist() == [text.count("</think>") for text in made[0].texts]


def test_a_graded_pool_needs_labels_for_its_own_problems(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "pool", made)
    write_labels(path, [label._replace(problem_id="elsewhere") for label in labels(made)])
    with pytest.raises(InputError, match="other problems"):
        opened(path)
    assert len(open_pool(path).problems) == 4
