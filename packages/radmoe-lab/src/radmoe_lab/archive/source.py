"""Packed rollouts as a source for replay, with the checks that the model is the one that sampled them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from radmoe.engines.base import completion_text
from radmoe.engines.prompts import encode, template_arguments
from radmoe.engines.replay.sources import SAMPLED, Source, SourceRollout
from radmoe.errors import InputError
from radmoe.problems import load_questions
from radmoe.types import Rollout, Step
from radmoe_lab.archive.files import Archive, ArchiveError, Packed, PackedTask
from radmoe_lab.models import weights
from radmoe_lab.sample import FINISH_REASONS, checksums


def check_checkpoint(model: str, sampled: dict[str, str], name: str) -> None:
    """Refuse a checkpoint other than the one that sampled: `sampled` has the sha256 of its files."""
    for file, checksum in checksums(weights(model)).items():
        if sampled.get(file) != checksum:
            raise ArchiveError(
                f"{file} of {model} is not the one that sampled {name}: install the radmoe-lab that the rollouts came with"
            )


def texts(task: PackedTask, problem: int, tokenizer: Any) -> list[str]:
    """Decode the problem's rollouts to texts, as capture does."""
    return [
        completion_text(tokenizer, tokens.astype(np.int32), FINISH_REASONS[reason])
        for tokens, reason in zip(task.rollouts(problem), task.finish_reasons[problem], strict=True)
    ]


class PackedSource(Source):
    """The first `n` rollouts of the first `limit` problems of one task of a configuration.

    The record of a pool made from it depends on neither, so that a pool can be enlarged later.
    """

    def __init__(
        self,
        archive: Archive,
        name: str,
        packed: Packed,
        task: str,
        tokenizer: Any,
        *,
        n: int | None = None,
        limit: int | None = None,
    ) -> None:
        entry, rollouts = archive.configurations[name], packed.tasks[task]
        problems, most = rollouts.lengths.shape
        if n is not None and not 1 <= n <= most:
            raise InputError(f"-n must lie between 1 and {most}, the rollouts that were sampled of a problem, got {n}")
        self._name, self._rollouts, self._tokenizer, self._n = name, rollouts, tokenizer, n or most
        self._expert_ids = packed.expert_ids if task == next(iter(packed.tasks)) else None
        questions, _ = load_questions(task, seed=entry["sampling"]["seed"], limit=min(limit or problems, problems))
        self._questions = {question.problem_id: question for question in questions}
        self._places = {problem_id: place for place, problem_id in enumerate(self._questions)}
        self.kinds = {problem_id: question.kind for problem_id, question in self._questions.items()}
        self.task, self.style = task, entry["style"]
        self.record = {
            "source": {"archive": name, "sha256": entry["sha256"]},
            "sampled": entry["sampling"],
            "raw": False,
            "tokens": SAMPLED,
        }

    @property
    def tokens(self) -> int:
        """The number of tokens of these rollouts."""
        return int(self._rollouts.lengths[: len(self._questions), : self._n].sum(dtype=np.int64))

    def rollouts(self, problem_id: str) -> Iterator[SourceRollout]:
        place = self._places[problem_id]
        arguments = template_arguments(self.style)
        prompt, ids = encode(self._tokenizer, self._questions[problem_id].content, raw=False, **arguments)
        members = self._rollouts.rollouts(place)
        starts = np.cumsum([0, *map(len, members)])
        for index, (tokens, text) in enumerate(
            zip(members[: self._n], texts(self._rollouts, place, self._tokenizer), strict=False)
        ):
            token_ids, captured = tokens.astype(np.int32), None
            if place == 0 and self._expert_ids is not None:
                rows = self._expert_ids[starts[index] : starts[index + 1]]
                captured = Rollout(token_ids, rows.astype(np.int16))
            yield SourceRollout(
                f"rollout {index} of problem {problem_id!r} in {self._name}",
                index,
                prompt,
                (Step(tuple(ids), 0),),
                token_ids,
                text,
                FINISH_REASONS[self._rollouts.finish_reasons[place, index]],
                SAMPLED,
                captured=captured,
            )
