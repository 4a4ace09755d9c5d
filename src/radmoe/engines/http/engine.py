"""The engines "vllm-http" and "sglang-http": rollouts from a running server, asked as `TransformersEngine` is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Sampling, asked, rollout_seed, room_left
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.dialects import Answer, Dialect, Request, Sglang, Vllm, fetch, logprobs_of
from radmoe.engines.http.routed import generated
from radmoe.engines.http.wire import Refused, Server
from radmoe.engines.http.workers import each
from radmoe.engines.kept_rows import check_layers, kept, spans
from radmoe.engines.vllm.plugin.endpoint import captured_layers
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.pool import Profile
from radmoe.types import Rollout, RouterShape, check_ids

_SPELLING = "So the sum of 12 and 30 is \\boxed{42}.\n\n```python\nprint('ä, 你好')\n```\n"
_LOST = 409  # the plugin's rows made room for others, or went to an answer that never arrived: sample again


class _Job(NamedTuple):
    prompt_index: int
    rollout_index: int
    key: str
    prompt: tuple[int, ...]
    limit: int


class HttpEngine:
    """A server that samples, and the directory of the model it serves.

    `model` may be left out where the server names a directory of this machine. `served` is the name the model has
    in the server, needed where it has several. Every rollout is a request of its own: SGLang returns routing for
    one choice only, each has its own seed, and a broken connection costs one rollout. With the radmoe plugin in a
    vLLM server rollouts have weights, else expert ids only. `shape` is the router's; where the plugin captures a
    layer subset, `layers` has its numbers, and `generate` wants a profile that keeps no others. `probe=False` leaves
    out the first short request that shows whether the server returns routing.
    """

    name: str
    dialect: Dialect

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
        probe: bool = True,
    ) -> None:
        self.server = Server(url, timeout=timeout, retries=retries, backoff=backoff, api_key=api_key)
        card = _card(self.server, served)
        self.served: str = card["id"]
        self.local = Checkpoint(model if model is not None else _local_root(self.server, card))
        self.tokenizer, self.vocab = self.local.tokenizer, self.local.vocab
        limits = [limit for limit in (card.get("max_model_len"), self.local.context) if limit]
        self.context: int | None = min(limits, default=None)
        self.plugin = self.dialect.plugin(self.server)
        self.layers = None if self.plugin is None else captured_layers(self.plugin)
        self.shape: RouterShape = self._shape()
        self.versions = self.dialect.version(self.server)
        self.tokens_sampled = 0
        self._counting = threading.Lock()
        if probe:
            self.check_spelling()
            prompt = self.tokenizer(_SPELLING)["input_ids"]
            self.check(prompt, self.look(prompt, Sampling(temperature=0, max_tokens=2, topk_logprobs=0), 0))

    @property
    def dtype(self) -> str:
        return "unknown"

    @property
    def weights(self) -> bool:
        """Whether rollouts come with weights."""
        return self.plugin is not None and bool(self.plugin["settings"]["weights"])

    def suggested(self, name: str, otherwise: Any) -> Any:
        return self.local.suggested(name, otherwise)

    def room(self, ids: Sequence[int], name: str, max_tokens: int) -> int:
        return room_left(self.context, ids, name, max_tokens)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        sampling: Sampling | None = None,
        batch_size: int = 64,
        keys: Sequence[str] | None = None,
        missing: Sequence[Sequence[int]] | None = None,
        profile: Profile | None = None,
    ) -> Iterator[Completion]:
        """Rollouts missing[i] (default: all n) of every prompt of token ids, `batch_size` requests at a time.

        Rollout r of a key has a seed of its own, whatever was sampled before; how far equal seeds give equal
        rollouts is the server's matter. When a request fails for good, those under way are still yielded. Of what
        the plugin recorded, only the rows that a `profile` keeps are fetched.
        """
        sampling = sampling or Sampling()
        names, wanted = asked(len(prompts), n, batch_size, keys, missing)
        check_layers(self.layers, profile)
        given = [tuple(int(token) for token in prompt) for prompt in prompts]
        for prompt in given:
            if not prompt:
                raise InputError("a prompt of zero tokens has nothing to continue")
            if min(prompt) < 0 or max(prompt) >= len(self.vocab):
                raise InputError(
                    f"token ids of a prompt lie in [0, {len(self.vocab)}), got {min(prompt)}..{max(prompt)}"
                )
        limits = [self.room(ids, name, sampling.max_tokens) for ids, name in zip(given, names, strict=True)]
        jobs = [_Job(i, r, names[i], given[i], limits[i]) for i in range(len(given)) for r in wanted[i]]
        self.tokens_sampled = 0
        self.server.answer_again()
        return each(
            jobs, lambda job: self._complete(job, sampling, profile), workers=batch_size, give_up=self.server.hang_up
        )

    def look(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        seed: int,
        *,
        first: int = 0,
        profile: Profile | None = None,
    ) -> Answer:
        """One rollout as the server gives it, unchecked, with routing from input position `first` on.

        What the plugin recorded is fetched as it is, or, with a `profile`, what that keeps, amid filler.
        """
        request = Request(tuple(int(t) for t in prompt), sampling.max_tokens, sampling, seed, first)
        answer = self.dialect.ask(self.server, self.served, request, self.local, self.plugin is not None)
        if answer.key is None:
            return answer
        if profile is None:
            return answer._replace(rows=fetch(self.server, answer.key))
        tokens = self._tokens(answer)
        rows = kept(profile, tokens, self.vocab)
        found = fetch(self.server, answer.key, spans(rows))
        return answer._replace(rows=found.spread(rows, len(tokens), self.shape, self.layers))

    def check(self, prompt: Sequence[int], answer: Answer) -> Rollout:
        """The rollout of an answer, or one line on what is wrong with it."""
        tokens, weights = self._tokens(answer), None
        if answer.rows is not None:
            ids, weights = answer.rows.generated(len(tokens))
            check_ids(ids, self.shape.experts)
        elif answer.raw is not None:
            ids = generated(answer.raw, answer.first, len(prompt), len(tokens), self.local, self.dialect.kernel)
        else:
            raise EngineError(f"this server returns no routing: {self.dialect.flag}")
        return Rollout(tokens, ids, weights, *logprobs_of(answer))

    def check_spelling(self) -> bool:
        """Refuse a tokenizer that is not the server's; False where the server does not tokenise."""
        text = _SPELLING + "".join(islice(self.vocab.added, 8))
        mine = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        try:
            answer = self.server.post("/tokenize", {"model": self.served, "prompt": text, "add_special_tokens": False})
            theirs = [int(token) for token in answer["tokens"]]
        except (Refused, KeyError, TypeError, ValueError):
            return False
        if theirs != list(mine):
            at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
            raise EngineError(
                f"the tokenizer of {self.local.path} is not the server's: token {at} of a test text is {mine[at]} here "
                f"and {theirs[at] if at < len(theirs) else 'missing'} there; pass the directory of the served model"
            )
        return True

    def _tokens(self, answer: Answer) -> NDArray[np.int32]:
        """The tokens [T] of a rollout that came to its end."""
        tokens = np.array(answer.tokens, np.int32)
        if answer.reason not in ("stop", "length"):
            raise EngineError(f"it ended with {answer.reason!r} after {len(tokens)} tokens: such a rollout is not kept")
        if tokens.size and int(tokens.max()) >= len(self.vocab):
            raise EngineError(
                f"the server sampled token {int(tokens.max())}, the tokenizer of {self.local.path} ends at "
                f"{len(self.vocab) - 1}: pass the directory of the model that is served"
            )
        return tokens

    def _complete(self, job: _Job, sampling: Sampling, profile: Profile | None) -> Completion:
        own, seed = replace(sampling, max_tokens=job.limit), rollout_seed(sampling.seed, job.key, job.rollout_index)
        try:
            look = partial(self.look, job.prompt, own, seed, first=len(job.prompt) - 1, profile=profile)
            try:
                answer = look()
            except Refused as error:
                if error.status != _LOST:
                    raise
                answer = look()
            rollout = self.check(job.prompt, answer)
        except RadmoeError as error:
            raise EngineError(f"rollout {job.rollout_index} of {job.key!r}: {error}") from None
        with self._counting:
            self.tokens_sampled += len(rollout)
        shown = rollout.token_ids[:-1] if answer.reason == "stop" else rollout.token_ids
        text = self.tokenizer.decode(shown.tolist(), skip_special_tokens=False)
        return Completion(job.prompt_index, job.rollout_index, rollout, text, answer.reason)

    def _shape(self) -> RouterShape:
        if self.plugin is None:
            return self.local.shape
        there = RouterShape(self.plugin["layers"], self.plugin["experts"], self.plugin["top_k"])
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


def _card(server: Server, served: str | None) -> dict[str, Any]:
    """The server's entry of the model that is meant."""
    try:
        cards = {str(card["id"]): card for card in server.get("/v1/models")["data"]}
    except (KeyError, TypeError):
        raise EngineError(f"{server.url}/v1/models lists no models: is this a vLLM or SGLang server?") from None
    if served is None and len(cards) == 1:
        (served,) = cards
    if served not in cards:
        which = f"has no model {served!r}" if served is not None else "serves several models, and one must be named"
        raise EngineError(f"{server.url} {which}: use one of {', '.join(cards) or 'none'}")
    found: dict[str, Any] = cards[served]
    return found


def _local_root(server: Server, card: dict[str, Any]) -> Path:
    root = Path(str(card.get("root") or card["id"]))
    if not (root / "config.json").is_file():
        raise EngineError(
            f"{server.url} serves {card['id']}, which is no directory here: give the model's directory too; "
            "its config.json and tokenizer.json suffice"
        )
    return root
