"""Rewards as the labels of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from radmoe.errors import InputError
from radmoe.grading.answers import extract
from radmoe.grading.grade import AnswerKey, grade_texts
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import open_pool
from radmoe.pool.work import Name
from radmoe.problems import Problem
from radmoe.selection.kinds import settle_kinds
from radmoe.types import Kind


def write_rewards(path: Path, correct: Mapping[Name, bool]) -> None:
    """Write the labels of a pool: whether each rollout is right by its reward, and its answer.

    Answers are read from the texts and sorted into classes as grading does, so that votes can be counted. What is right is the
    reward's say alone. Answers of math and of choices stand in the terms of the first that is right. Where neither the pool nor
    the rollouts say of which kind answers are, there are none.
    """
    pool = open_pool(path)
    try:
        kinds: Mapping[str, Kind | None] = settle_kinds(pool, None, where=str(path)).kinds
    except InputError:
        kinds = pool.kinds
    labels: list[Label] = []
    for problem, kind in kinds.items():
        texts = list(zip(pool.rollout_indices(problem), pool.texts(problem), strict=True))
        if kind is None:
            own = [Label(problem, index, None, False) for index, _ in texts]
        elif kind in ("code", "agent"):
            own = [Label(problem, index, extract(kind, text), False) for index, text in texts]
        else:
            key = AnswerKey(Problem(problem, "", "", ""), kind, integer=False)
            first = (key.extract(text) for index, text in sorted(texts, key=lambda one: not correct[problem, one[0]]))
            gold = next((answer for answer in first if answer is not None), "")
            key = AnswerKey(Problem(problem, "", "", gold), kind, integer=False)
            own = grade_texts({problem: key}, [(problem, index, text) for index, text in texts])
        labels += [label._replace(correct=correct[problem, label.rollout_index]) for label in own]
    write_labels(path, labels)
