"""The interface of backends, which sample for the gateway, and what they return."""

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
    from radmoe.serve.api_errors import ApiError
    from radmoe.serve.api_request import ApiRequest, Best
    from radmoe.serve.best_of import KindReading

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Tokens = Sequence[NDArray[np.int32]]


@dataclass
class RequestProgress:
    """The progress of a request, which a stream's comments show, and what its line of the log says.

    `identity` is the id of its answer, `client` the address that it came from, and `method` and `margin` say how it was chosen.
    """

    route: str = ""
    identity: str = ""
    client: str | None = None
    ask: ApiRequest | None = None
    method: str | None = None
    margin: float | None = None
    rollouts: int = 0
    finished: int = 0
    stage: str = "waiting"
    queue_seconds: float = 0.0
    upstream_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    fault: ApiError | None = None  # what ended a stream that had begun

    @property
    def seconds(self) -> float:
        """Seconds since the request came."""
        return time.monotonic() - self.began

    @contextmanager
    def upstream(self) -> Iterator[None]:
        """Count the time of the block as time spent on sampling."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.upstream_seconds += time.monotonic() - began


class Router(NamedTuple):
    """The router and the vocabulary of a model. `layers` are the captured layers; None means all."""

    shape: RouterShape
    vocab: Vocab
    layers: tuple[int, ...] | None = None

    @property
    def captured(self) -> RouterShape:
        """The shape of the captured rows."""
        if self.layers is None:
            return self.shape
        return RouterShape(len(self.layers), self.shape.experts, self.shape.top_k)


@dataclass(frozen=True)
class SampledRollouts:
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
    reading: KindReading | None
    trouble: str = ""
    likelihoods: list[float] | None = None
    prompt: str | None = None
    sampling: Sampling | None = None


class Plain(NamedTuple):
    """The answer to a plain request, whole or in parts. `close` must be awaited in any case."""

    content_type: str
    parts: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


class Backend(Protocol):
    """What samples for the gateway: servers, or a model in this process."""

    record: dict[str, Any]  # what a pool's run record says of the sampling
    provenance: dict[str, Any]  # where rollouts come from, for a pool

    async def start(self) -> None:
        """Start the backend. Raises a RadmoeError if it cannot start."""

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

    async def sample(
        self, ask: ApiRequest, n: int, best: Best | None, progress: RequestProgress, *, first: int = 0
    ) -> SampledRollouts:
        """Sample n rollouts of a request, from number `first` on. Raises an ApiError if it cannot.

        Where the client gave a seed, rollout i is drawn with the same random numbers whatever `first` and n are, so
        that rounds draw what one call would have drawn. `best` is None where nothing is selected.
        """


@runtime_checkable
class Forwarder(Protocol):
    """A backend that passes plain requests on as they are; any other samples them as it samples the rest."""

    async def plain(self, ask: ApiRequest, data: bytes, progress: RequestProgress) -> Plain:
        """The answer to a plain request, as the upstream gives it."""


async def in_thread(work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Run blocking work in a thread, and return its result; what it logs has the request's id."""
    return await asyncio.to_thread(work, *arguments)


def usage_of(prompt: int, completion: int) -> dict[str, Any]:
    """OpenAI's usage: the prompt counts once, as servers count it for several choices, and every rollout counts."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
