"""A recorded pool as an evaluation sees it: problems by what was asked, the responses of their rollouts, and the pick."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from radmoe.errors import InputError
from radmoe.grading.answers import response
from radmoe.pool import open_pool
from radmoe.selection.kinds import settle_kinds
from radmoe.selection.selector import select
from radmoe.types import Kind, PresetName, Selection

_SHOWN = 60  # characters of a question in a message


class RecordedPool:
    """The pool at a path."""

    def __init__(self, path: str) -> None:
        self._pool = open_pool(path)

    def __contains__(self, problem: str) -> bool:
        return problem in self._pool.kinds

    def problem(self, question: str) -> str:
        """The problem of this id, or else the one whose prompt contains this text, where one prompt alone does.

        A prompt that was asked several times counts as it was asked last.
        """
        if question in self:
            return question
        text = question.strip()  # as chat templates write it
        prompts = {prompt: problem for problem, prompt in self._prompts.items() if text and text in prompt}
        if len(prompts) == 1:
            return prompts.popitem()[1]
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
        raise InputError(
            f"{self._pool.path} has {len(prompts) or 'no'} prompts with {shown!r} in them, and no problem of that id: ask what "
            "was asked when it was recorded, or name problems by their ids"
        )

    def responses(self, problem: str) -> list[str]:
        """What each rollout answers after its thinking, without end tokens; empty where the thinking has not ended."""
        return [(response(text) or "").strip() for text in self._pool.texts(problem)]

    def pick(self, problem: str, preset: PresetName | None = None) -> Selection:
        """What `radmoe select --preset` selects."""
        return select(replace(self._pool.group(problem), kind=self._kinds[problem]), preset=preset)

    @cached_property
    def _kinds(self) -> dict[str, Kind]:
        return settle_kinds(self._pool, where=str(self._pool.path)).kinds

    @cached_property
    def _prompts(self) -> dict[str, str]:
        runs = self._pool.runs(["problem_id", "prompt"]).to_pydict()
        return {problem: prompt or "" for problem, prompt in zip(runs["problem_id"], runs["prompt"], strict=True)}
