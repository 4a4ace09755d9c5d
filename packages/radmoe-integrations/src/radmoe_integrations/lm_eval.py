"""Filters for lm-eval's tasks that answer with the rollouts of a recorded pool.

lm-eval has no entry points. A task names a filter as `function: !function radmoe_integrations.lm_eval.Pick`, and lm-eval
imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.filter import Filter

from radmoe.errors import InputError
from radmoe.types import PresetName
from radmoe_integrations.recorded import RecordedPool


class Rollouts(Filter):  # type: ignore[misc]
    """The responses of all rollouts of a document's problem, in place of those that lm-eval has.

    `key` names the field of a document that holds the problem's id, or a text of its prompt.
    """

    def __init__(self, pool: str, key: str) -> None:
        self._pool, self._key = RecordedPool(pool), key

    def apply(self, resps: Sequence[Any], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
        """The responses for each document."""
        return [self._kept(self._problem(doc)) for doc in docs]

    def _kept(self, problem: str) -> list[str]:
        return self._pool.responses(problem)

    def _problem(self, doc: dict[str, Any]) -> str:
        if self._key not in doc:
            raise InputError(f"the task's documents have no field {self._key!r} for key: they have {', '.join(doc)}")
        return self._pool.problem(str(doc[self._key]))


class Pick(Rollouts):
    """The response of the rollout that `radmoe select` picks. It is empty, and so counts as wrong, where RAD abstains."""

    def __init__(self, pool: str, key: str, preset: PresetName | None = None) -> None:
        super().__init__(pool, key)
        self._preset = preset

    def _kept(self, problem: str) -> list[str]:
        index = self._pool.pick(problem, self._preset).index
        return ["" if index is None else self._pool.responses(problem)[index]]
