"""The engines "vllm-http" and "sglang-http": rollouts from a running server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Engine, Job, Observation, Sampling, completion_text, rollout_seed
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.answers import Answer, Raw, moe_layers, plugin_routing, stock_rows
from radmoe.engines.http.client import ModelServer, Refused
from radmoe.engines.http.dialects import Dialect, RolloutRequest, Sglang, Vllm, answer_limit, rows_request
from radmoe.engines.http.fields import Field, short
from radmoe.engines.http.jobs import each_as_finished
from radmoe.engines.models import recorded_name, resolve_model
from radmoe.engines.options import EngineOptions, refuse_options
from radmoe.engines.vllm.plugin.endpoint import ROUTING
from radmoe.engines.vllm.plugin.payload import Routing
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.types import Kind, Rollout, RouterShape, Rows, check_ids
from radmoe.vocab import MAX_TOKENS

if TYPE_CHECKING:
    from radmoe.pool import Profile

_SPELLING = "So the sum of 12 and 30 is \\boxed{42}.\n\n```python\nprint('ä, 你好')\n```\n"
_NAMES = 8  # models that a message lists
_LOST = 409  # the plugin's rows made room for others, or went to an answer that never arrived: sample again


class HttpEngine(Engine):
    """A server that samples, and the directory of the model that it serves.

    `model` may be left out where the server names a directory of this machine. `served` is the name that the model has
    in the server, needed where it has several. Every rollout is a request of its own: SGLang returns routing for
    one choice only, each rollout has its own seed, and a broken connection costs one rollout. With the radmoe plugin in
    a vLLM server rollouts have weights, else expert ids only. `shape` is the router's; where the plugin captures a
    layer subset, `layers` has its numbers, and `generate` needs a profile that keeps no others. `probe=False` leaves
    out the first short request, which shows whether the server returns routing. `timeout`, `retries`, `backoff` and
    `largest` are limits of a request (see `client.Server`).
    """

    dialect: Dialect
    concurrent = True
    tokens_sampled = 0  # of the rollouts that the current or last `generate` has finished

    def __init__(
        self,
        url: str,
        model: str | Path | None = None,
        *,
        served: str | None = None,
        timeout: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        api_key: str | None = None,
        largest: int | None = None,
        probe: bool = True,
    ) -> None:
        self._counting, self._packed = threading.Lock(), False
        self.server = ModelServer(
            url, timeout=timeout, retries=retries, backoff=backoff, api_key=api_key, largest=largest
        )
        try:
            self._open(model, served, probe)
        except BaseException:
            self.server.close()
            raise

    def _open(self, model: str | Path | None, served: str | None, probe: bool) -> None:
        card = _card(self.server, served)
        self.served: str = card.get("id").value
        self.model_name = recorded_name(self.served)
        self.local = Checkpoint(model if model is not None else _local_root(self.server, card))
        self.checkpoint = self.local.path if self.local.has_weights else None
        self.tokenizer, self.vocab = self.local.tokenizer, self.local.vocab
        longest = card.maybe("max_model_len")
        limits = [None if longest is None else longest.integer(1, 1 << 32), self.local.context]
        self.context = min((limit for limit in limits if limit), default=None)
        self.plugin = self.dialect.plugin(self.server)
        self.layers = None if self.plugin is None else self.plugin.layers
        self.shape: RouterShape = self._shape()
        self.versions = self.dialect.version(self.server)
        self._door = self.dialect.door(self.server) if isinstance(self.dialect, Vllm) else self.dialect
        if probe:
            self.check_tokenizer()
            prompt = self.tokenizer(_SPELLING)["input_ids"]
            request = RolloutRequest(tuple(prompt), 2, Sampling(temperature=0, max_tokens=2, topk_logprobs=0), 0, 0)
            try:
                answer, key = self._ask(request)
                _check_end(answer)
                self.rollout(answer, len(prompt), None if key is None else self._rows(request, key, None))
            except InputError as error:
                raise EngineError(f"{self.server.url} answered with a faulty rollout: {error}") from None

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        if options.url is None:
            raise InputError(f"{cls.name} needs --url, the address of a server")
        refuse_options(
            options, ("dtype", "device", "threads"), f"is not of {cls.name}: it was settled when the server was started"
        )
        return cls(
            options.url,
            None if model is None else resolve_model(model),
            served=options.served,
            timeout=options.timeout,
            retries=options.retries,
            api_key=options.api_key,
            probe=options.probe,
        )

    @property
    def weights(self) -> bool:
        """Whether rollouts come with weights."""
        return self._packed or (self.plugin is not None and self.plugin.weights)

    def suggested(self, name: str, otherwise: Any) -> Any:
        return self.local.suggested(name, otherwise)

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs as `Engine.run` says, with `batch_size` requests under way at a time.

        Rollout r of a key has a seed of its own, whatever was sampled before; how far equal seeds give equal
        rollouts depends on the server. When a request fails for good, those under way are still yielded. Of what
        the plugin recorded, only the rows and layers that a `profile` keeps are handed over.
        """
        self.tokens_sampled = 0
        self.server.resume()
        work = partial(self._complete, profile=profile)
        return each_as_finished(jobs, work, workers=batch_size, cancel=self.server.stop)

    def observe(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Observation:
        """Sample one rollout and hand it over as it came, with the rows of the prompt's positions where they come."""
        request = RolloutRequest(tuple(prompt), sampling.max_tokens, sampling, seed, 0)
        answer, key = self._ask(request)
        ids: Raw | None = None
        weights, first, dense = None, 0, self.local.router.dense
        if key is not None:
            routing = self._rows(request, key, None)
            ids, weights, dense = routing.ids, routing.weights, ()
            first = len(prompt) - 1 + (int(routing.token[0]) if len(routing.token) else 0)
        elif answer.routed is not None:
            ids, weights = self._unpacked(answer, len(prompt) + len(answer.tokens) - 1)
        return Observation(
            tuple(prompt), tuple(answer.tokens.tolist()), ids, weights, first, answer.sampled, answer.top, dense
        )

    def check_tokenizer(self) -> bool:
        text = _SPELLING + "".join(islice(self.vocab.added, 8))
        mine = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        try:
            answer = self.server.post("/tokenize", {"model": self.served, "prompt": text, "add_special_tokens": False})
        except Refused:  # this server does not tokenise
            return False
        theirs = answer.get("tokens").integers(MAX_TOKENS)
        if theirs != list(mine):
            apart = (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            at = next(apart, min(len(mine), len(theirs)))
            raise EngineError(
                f"the tokenizer of {self.local.path} is not the server's: token {at} of a test text is {_at(mine, at)} here "
                f"and {_at(theirs, at)} there; pass the directory of the served model"
            )
        return True

    def close(self) -> None:
        """Close the connections to the server and end the client's thread."""
        self.server.close()

    def rollout(
        self,
        answer: Answer,
        prompt: int | None,
        routing: Routing | None = None,
        positions: NDArray[np.int32] | None = None,
        *,
        first: int = 0,
        layers: tuple[int, ...] | None = None,
    ) -> Rollout:
        """The rollout of an answer to a prompt of `prompt` tokens (None: unknown). Raises EngineError if its routing is faulty.

        With the plugin's `routing` it has the rows at `positions` (None: of all tokens) and these `layers` alone (None:
        all). Else it has the server's own rows, which begin at input position `first`.
        """
        tokens = len(answer.tokens)
        if routing is not None:
            rows: Rows = routing.of_layers(layers, self.shape, self.layers).generated(tokens, positions)
            check_ids(rows[0], self.shape.experts)
        elif answer.routed is None:
            raise EngineError(f"this server returns no routing: {self.dialect.flag}")
        else:
            wanted = tokens if prompt is None else prompt + tokens - 1 - first
            raw, mass = self._unpacked(answer, wanted)
            ids = stock_rows(raw, prompt, tokens, self.local.router, self.dialect.kernel, first=first)
            rows = ids, None if mass is None else moe_layers(mass, self.local.router)[len(mass) - tokens :]
        return Rollout(answer.tokens, *rows, answer.sampled, answer.top, positions)

    def _unpacked(self, answer: Answer, rows: int) -> tuple[Raw, NDArray[np.float16] | None]:
        """The ids of an answer, and the weights that our plugin of SGLang has packed into them."""
        assert answer.routed is not None
        ids, weights = self.dialect.unpack(answer.routed, rows, self.local.router)
        self._packed = weights is not None
        return ids, weights

    def _ask(self, request: RolloutRequest) -> tuple[Answer, str | None]:
        """Sample one rollout, unchecked. With the plugin, also returns the key under which the plugin holds its rows."""
        key = None if self.plugin is None else uuid.uuid4().hex
        dialect = self.dialect if request.sampling.topk_logprobs else self._door
        body = dialect.body(request, self.served, key)
        answer = self.server.post(dialect.path, body, answer_limit(request, self.local.router))
        return dialect.read(answer, request, len(self.vocab)), key

    def _rows(self, request: RolloutRequest, key: str, positions: NDArray[np.int32] | None) -> Routing:
        """The rows that the plugin holds under a key, of the tokens at `positions` (None: all). It forgets the others."""
        body, limit = rows_request(key, 1, [positions]), answer_limit(request, self.local.router)
        payload = self.server.fetch("POST", ROUTING, body, limit=limit)
        return plugin_routing(payload, 1, self.server.url + ROUTING)[0]

    def _sample(self, request: RolloutRequest, kind: Kind | None, profile: Profile | None) -> tuple[Rollout, str]:
        """Sample one rollout with the rows that the profile keeps, and say why it ended."""
        answer, key = self._ask(request)
        _check_end(answer)
        routing = positions = None
        if key is not None:
            positions = None if profile is None else profile.kept_rows(answer.tokens, self.vocab, kind)
            routing = self._rows(request, key, positions)
        layers = None if profile is None else profile.layers
        prompt, first = len(request.prompt), request.first
        return self.rollout(answer, prompt, routing, positions, first=first, layers=layers), answer.reason

    def _complete(self, job: Job, *, profile: Profile | None) -> Completion:
        """Sample the rollout of a job. If the plugin lost its rows, it is sampled once more."""
        seed = rollout_seed(job.sampling.seed, job.key, job.rollout_index)
        request = RolloutRequest(job.prompt, job.limit, job.sampling, seed, len(job.prompt) - 1)
        try:
            try:
                rollout, reason = self._sample(request, job.kind, profile)
            except Refused as error:
                if error.status != _LOST:
                    raise
                rollout, reason = self._sample(request, job.kind, profile)
        except RadmoeError as error:
            raise EngineError(f"rollout {job.rollout_index} of {job.key!r}: {error}") from None
        with self._counting:
            self.tokens_sampled += len(rollout)
        text = completion_text(self.tokenizer, rollout.token_ids, reason)
        return Completion(job.prompt_index, job.rollout_index, rollout, text, reason)

    def _shape(self) -> RouterShape:
        """The router's shape by the model's directory; EngineError where the plugin names another."""
        if self.plugin is None:
            return self.local.shape
        there = self.plugin.shape
        if there != self.local.shape:
            raise EngineError(
                f"the server's router is {there}, that of {self.local.path} {self.local.shape}: "
                "pass the directory of the model that is served"
            )
        return there


class VllmHttpEngine(HttpEngine):
    """`vllm serve` at a URL."""

    name, dialect = "vllm-http", Vllm()


class SglangHttpEngine(HttpEngine):
    """An SGLang server at a URL."""

    name, dialect = "sglang-http", Sglang()


def _check_end(answer: Answer) -> None:
    """Refuse a rollout that did not come to its end."""
    if answer.reason not in ("stop", "length"):
        raise EngineError(
            f"it ended with {short(answer.reason)} after {len(answer.tokens)} tokens: such a rollout is not kept"
        )


def _card(server: ModelServer, served: str | None) -> Field:
    """The server's entry for the model called `served`, or for its only model."""
    cards = {card.get("id").text(): card for card in server.get("/v1/models").get("data").items()}
    if served is None and len(cards) == 1:
        (served,) = cards
    if served not in cards:
        which = f"has no model {served!r}" if served is not None else "serves several models, and one must be named"
        names = [name if len(name) < 80 else short(name) for name in islice(cards, _NAMES)]
        names += [f"{len(cards) - _NAMES} more"] * (len(cards) > _NAMES)
        raise EngineError(f"{server.url} {which}: use one of {', '.join(names) or 'none'}")
    return cards[served]


def _local_root(server: ModelServer, card: Field) -> Path:
    """The directory that a server names as its model's, if it is on this machine too."""
    named = card.maybe("root") or card.get("id")
    root = Path(named.text())
    try:
        here = (root / "config.json").is_file()
    except (OSError, ValueError):  # a name that is too long for a path, or holds a zero
        here = False
    if not here:
        raise EngineError(
            f"{server.url} serves {short(card.get('id').value)}, which is no directory here: give the model's directory "
            "too; its config.json and tokenizer.json suffice"
        )
    return root


def _at(tokens: Sequence[int], place: int) -> int | str:
    return tokens[place] if place < len(tokens) else "missing"
