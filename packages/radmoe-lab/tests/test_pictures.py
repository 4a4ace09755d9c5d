"""Pictures of real groups: written, readable, and laid out by routing alone."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import PoolError
from radmoe.grading.labels import Label
from radmoe.types import Rollout, RolloutGroup
from radmoe_lab.pictures import draw_problem, point_classes
from radmoe_lab.planted import PlantedGroup


def labels(made: PlantedGroup) -> list[Label]:
    return [Label(made.group.problem_id, i, a, a == made.truth) for i, a in enumerate(made.answers)]


def size(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize("with_labels", [True, False])
def test_a_problem_becomes_a_png(made: list[PlantedGroup], tmp_path: Path, with_labels: bool) -> None:
    path = tmp_path / "new" / "folder" / "problem.png"
    assert draw_problem(made[0].group, labels(made[0]) if with_labels else None, path) == path
    assert size(path) == (1100, 528)


def test_answers_colour_but_do_not_move(made: list[PlantedGroup], tmp_path: Path) -> None:
    coloured = draw_problem(made[0].group, labels(made[0]), tmp_path / "a.png").read_bytes()
    assert coloured != draw_problem(made[0].group, None, tmp_path / "b.png").read_bytes()
    assert coloured == draw_problem(made[0].group, labels(made[0]), tmp_path / "c.png").read_bytes()


def test_shape_alone_tells_right_from_wrong_and_from_no_answer(made: list[PlantedGroup]) -> None:
    verdicts = [
        Label("p", i, answer, answer == "7")
        for i, answer in enumerate(["7", "7", "8", "8", "9", None, "a long answer"])
    ]
    shapes: dict[str, set[str]] = {}
    for one in point_classes(np.arange(len(verdicts)), verdicts):
        shapes.setdefault(one.name.split(":")[0].split(" (")[0].split(",")[0], set()).add(one.marker)
    assert shapes == {"right": {"o"}, "wrong": {"D"}, "no answer": {"s"}}


def test_a_problem_with_nothing_to_compare_says_so(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    alone = RolloutGroup(group.problem_id, group.rollouts[:1], group.shape, group.vocab)
    assert size(draw_problem(alone, None, tmp_path / "one.png")) == (1100, 528)
    first = group.rollouts[0]
    begun = Rollout(first.token_ids[:5], first.expert_ids[:5], first.weights[:5])
    unmarked = RolloutGroup(
        group.problem_id, [begun] * 3, group.shape, group.vocab
    )  # no kind, and no marker to tell it
    assert size(draw_problem(unmarked, None, tmp_path / "none.png")) == (1100, 528)
    assert size(draw_problem(unmarked, None, tmp_path / "math.png", kind="math")) == (1100, 528)


def test_the_kind_decides_what_is_drawn(made: list[PlantedGroup], tmp_path: Path) -> None:
    as_math = draw_problem(made[0].group, None, tmp_path / "a.png").read_bytes()
    assert draw_problem(made[0].group, None, tmp_path / "b.png", kind="math").read_bytes() == as_math
    assert draw_problem(made[0].group, None, tmp_path / "c.png", kind="agent").read_bytes() != as_math


def test_a_place_that_cannot_be_written_is_one_error(made: list[PlantedGroup], tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(PoolError, match=r"taken\.png"):
        draw_problem(made[0].group, None, tmp_path / "taken.png")


@pytest.mark.slow
def test_a_dollar_sign_is_no_formula(made: list[PlantedGroup], tmp_path: Path) -> None:
    """Matplotlib would read `$...$` as mathematics, and refuse what does not parse."""
    named = [Label(made[0].group.problem_id, i, r"$\frac$\x1b", False) for i in range(len(made[0].answers))]
    path = draw_problem(made[0].group, named, tmp_path / "a.png", title="$\\boxed$ \x1b[2J")
    assert size(path) == (1100, 528)
