"""What samples for the gateway: the interface, and what a backend hands over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, TypeVarTuple, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.engines.base import Sampling
    from radmoe.serve.asks import Ask, Best
    from radmoe.serve.faults import Fault
    from radmoe.serve.picks import Reading

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Tokens = Sequence[NDArray[np.int32]]


@dataclass
class Progress:
    """How far a request is, for the comments of a stream; and how long it waited for others."""

    rollouts: int = 0
    finished: int = 0
    stage: str = "waiting"
    queue_seconds: float = 0.0
    upstream_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    fault: Fault | None = None  # what ended a stream that had begun

    @property
    def seconds(self) -> float:
        """Seconds since the request came."""
        return time.monotonic() - self.began

    @contextmanager
    def upstream(self) -> Iterator[None]:
        """Counts the time of the block as waiting for what samples."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.upstream_seconds += time.monotonic() - began


class Router(NamedTuple):
    """The router and the vocabulary of a model; `layers` are the only ones that are captured, None all."""

    shape: RouterShape
    vocab: Vocab
    layers: tuple[int, ...] | None = None

    @property
    def captured(self) -> RouterShape:
        """The shape of the rows that come."""
        if self.layers is None:
            return self.shape
        return RouterShape(len(self.layers), self.shape.experts, self.shape.top_k)


@dataclass(frozen=True)
class Sampled:
    """The rollouts of one request.

    `choices` are OpenAI's, in the order of sampling. `rollouts` decodes their routing, which takes time and belongs
    into a thread; it raises EngineError for routing that does not fit. It is None where there is no routing, and
    `trouble` says why. `reading` says what was settled about the kind before routing was fetched, and `sampling` how the
    rollouts were drawn, where the backend knows it.
    """

    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    tokens: int
    rollouts: Callable[[], list[Rollout]] | None
    router: Router | None
    reading: Reading | None
    trouble: str = ""
    likelihoods: list[float] | None = None
    prompt: str | None = None
    sampling: Sampling | None = None


class Plain(NamedTuple):
    """The answer to a plain request, whole or in parts; `close` must be awaited in the end, whatever became of them."""

    content_type: str
    parts: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


class Backend(Protocol):
    """Something that samples."""

    record: dict[str, Any]  # what a pool's run record says of the sampling
    provenance: dict[str, Any]  # where rollouts come from, for a pool

    async def start(self) -> None:
        """Get ready; raises a RadmoeError where it cannot."""

    async def close(self) -> None:
        """End everything that is under way."""

    def models(self) -> dict[str, int | None]:
        """The models that can be asked now, and the longest context of each where it is known."""

    def router(self) -> Router | None:
        """The router of the models, where it is known."""

    def status(self) -> dict[str, Any]:
        """What /health says."""

    def loads(self) -> list[tuple[str, bool, int]]:
        """Each upstream's name, whether it is up, and how many requests it has under way."""

    async def sample(self, ask: Ask, n: int, best: Best | None, progress: Progress, *, first: int = 0) -> Sampled:
        """n rollouts of a request, from number `first` on; a Fault where they cannot be had.

        Where the client gave a seed, rollout i is drawn with the same random numbers whatever `first` and n are, so
        that rounds draw what one call would have drawn. `best` is None where nothing is selected.
        """


@runtime_checkable
class Forwarder(Protocol):
    """A backend that passes plain requests on as they are; any other samples them as it samples the rest."""

    async def plain(self, ask: Ask, data: bytes, progress: Progress) -> Plain:
        """The answer to a plain request, as the upstream gives it."""


async def in_thread(work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """The result of work that would hold the event loop up."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def usage_of(prompt: int, completion: int) -> dict[str, Any]:
    """OpenAI's usage: the prompt counts once, as servers count it for several choices, and every rollout counts."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
