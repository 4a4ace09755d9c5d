"""Responders answer the requests of agents. All agents of a process share one responder and its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from radmoe.engines.base import Completion, Engine, Sampling, completion_text
from radmoe.errors import EngineError, InputError
from radmoe.types import Rollout

if TYPE_CHECKING:
    from radmoe.pool import Profile


class Responder(Protocol):
    """Answers requests from any thread. `failures` counts those in a row that its engine could not answer."""

    engine: Engine
    sampling: Sampling
    failures: int

    def respond(self, prompt: Sequence[int], *, key: str, rollout_index: int) -> Completion:
        """One completion of a prompt of token ids. `key` and `rollout_index` name it in the random numbers."""

    def close(self) -> None:
        """Give up requests that are under way."""


class EngineResponder(Responder):
    """Answers with an engine, whose batch all agents share. Engines that may be called from several threads, such as those
    over servers, get each request by itself.

    `profile` is that of the pool, for engines that need not fetch all rows.
    """

    def __init__(
        self, engine: Engine, sampling: Sampling, *, batch_size: int = 16, profile: Profile | None = None
    ) -> None:
        self.engine, self.sampling, self._profile = engine, sampling, profile
        self.failures = 0
        self._batch = None
        if not engine.concurrent:
            self._batch = engine.batcher(
                batch_size=batch_size, topk_logprobs=sampling.topk_logprobs, kind="agent", profile=profile
            )

    def respond(self, prompt: Sequence[int], *, key: str, rollout_index: int) -> Completion:
        try:
            if self._batch is None:
                done = self._generate(prompt, key, rollout_index)
            else:
                asked = self._batch.submit(prompt, sampling=self.sampling, key=key, rollout_index=rollout_index)
                done = asked.result()
        except EngineError:
            self.failures += 1
            raise
        self.failures = 0
        return done

    def _generate(self, prompt: Sequence[int], key: str, rollout_index: int) -> Completion:
        (completion,) = self.engine.generate(
            [list(prompt)],
            rollout_index + 1,
            sampling=self.sampling,
            batch_size=1,
            keys=[key],
            missing=[[rollout_index]],
            kinds=["agent"],
            profile=self._profile,
        )
        return completion

    def close(self) -> None:
        if self._batch is not None:
            self._batch.close()


class ScriptedResponder(Responder):
    """Answers with texts from a script and the routing of real passes over them, for tests and demos.

    `script(key, rollout_index)` gives the text of an answer; the key is that of `respond`, `INSTANCE/STEP`.
    """

    failures = 0

    def __init__(self, engine: Engine, script: Callable[[str, int], str], *, topk_logprobs: int = 0) -> None:
        if not engine.replays:
            raise InputError(f"{engine.name} cannot run a pass over given tokens: use the engine transformers")
        self.engine, self._script = engine, script
        self.sampling = Sampling(temperature=0, topk_logprobs=topk_logprobs)
        self._alone = threading.Lock()

    def respond(self, prompt: Sequence[int], *, key: str, rollout_index: int) -> Completion:
        text = self._script(key, rollout_index) + (self.engine.tokenizer.eos_token or "")
        tokens = np.array(self.engine.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)
        self.engine.room(prompt, key, len(tokens))
        with self._alone:
            (forced,) = self.engine.force(prompt, [tokens.tolist()], topk_logprobs=self.sampling.topk_logprobs)
        rollout = Rollout(
            tokens, forced.ids, forced.weights.astype(np.float16), forced.sampled_logprobs, forced.topk_logprobs
        )
        return Completion(0, rollout_index, rollout, completion_text(self.engine.tokenizer, tokens, "stop"), "stop")

    def close(self) -> None:
        return
