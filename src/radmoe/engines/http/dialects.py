"""What differs between vLLM and SGLang: requests, answers and advice."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import SGLANG_KERNEL, VLLM_STOCK_KERNEL
from radmoe.engines.base import Sampling
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.fields import Field, short
from radmoe.engines.http.routed import Raw, unpack_int32, unpack_npy
from radmoe.engines.http.wire import SMALL_BYTES, SMALL_VALUES, Limit, Refused, Server
from radmoe.engines.vllm.plugin import NAME
from radmoe.engines.vllm.plugin.endpoint import ROUTING, STATUS_PATH, captured_layers
from radmoe.engines.vllm.plugin.payload import Routing, decode
from radmoe.errors import EngineError
from radmoe.types import MAX_EXPERTS, RouterShape
from radmoe.vocab import MAX_TOKENS

# Servers take what a request leaves out from the model's generation_config.json.
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}

_LONGEST_VERSION = 100  # characters
_MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Request:
    """One rollout to sample, of at most `limit` tokens; rows of routing are wanted from input position `first` on."""

    prompt: tuple[int, ...]
    limit: int
    sampling: Sampling
    seed: int
    first: int


class Answer(NamedTuple):
    """One rollout as a server sent it: of the right types and counts, and its routing unchecked."""

    tokens: list[int]  # [T]
    reason: str
    sampled: list[float] | None  # [T]
    top: list[list[float]] | None  # [T][C], the largest first
    raw: Raw | None  # stock routing: one row per input position from `first` on
    first: int
    key: str | None  # the key under which the plugin holds its rows


@dataclass(frozen=True)
class PluginStatus:
    """What the radmoe plugin in a server says: the router, the only layers it captures (None: all), and weights."""

    shape: RouterShape
    layers: tuple[int, ...] | None
    weights: bool


class Dialect(Protocol):
    """A kind of server.

    `flag` says how to start it so that it returns routing, `kernel` how to start it so that it does not route inside a
    kernel, where routing is not seen.
    """

    flag: str
    kernel: str

    def version(self, server: Server) -> dict[str, str]:
        """The version of the server, for a pool's provenance; empty where it does not say."""

    def plugin(self, server: Server) -> PluginStatus | None:
        """The status of the radmoe plugin in the server; None without the plugin."""

    def ask(self, server: Server, served: str, request: Request, local: Checkpoint, plugin: bool) -> Answer:
        """Sample one rollout of the model that is `served`; with `plugin` its routing is recorded by the plugin."""


class Vllm:
    """`vllm serve`, with its own routed experts or with the radmoe plugin."""

    flag = "start it with: vllm serve MODEL --enable-return-routed-experts"
    kernel = f"an MoE kernel that routes by itself: {VLLM_STOCK_KERNEL}"

    def version(self, server: Server) -> dict[str, str]:
        try:
            return {"vllm": server.get("/version").get("version").text(_LONGEST_VERSION)}
        except Refused:
            return {}

    def plugin(self, server: Server) -> PluginStatus | None:
        try:
            status = server.get(STATUS_PATH)
        except Refused:  # 404: not installed; 409: installed and not switched on
            return None
        window = status.get("settings").get("window").text(_LONGEST_VERSION)
        if window not in ("all", "generated"):
            raise EngineError(
                f"the plugin in this server keeps only {window}: start it with "
                f"""--additional-config '{{"{NAME}": {{"window": "generated"}}}}' to capture whole rollouts"""
            )
        return _plugin_status(status)

    def ask(self, server: Server, served: str, request: Request, local: Checkpoint, plugin: bool) -> Answer:
        key = uuid.uuid4().hex
        sampling, body = request.sampling, dict[str, Any](NEUTRAL)
        if sampling.topk_logprobs:
            body |= {"logprobs": sampling.topk_logprobs, "return_tokens_as_token_ids": True}
        if plugin:
            body["vllm_xargs"] = {NAME: key}
        answer = server.post(
            "/v1/completions",
            body
            | {
                "model": served,
                "prompt": request.prompt,
                "max_tokens": request.limit,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "seed": request.seed,
                "return_token_ids": True,
                "routed_experts_prompt_start": request.first,
                "skip_special_tokens": False,
            },
            answer_limit(request, local),
        )
        (choice,) = answer.get("choices").items(1)
        if choice.get("token_ids").value is None:
            raise EngineError("this server returns no token ids: it needs vLLM 0.11 or newer (return_token_ids)")
        tokens = _tokens(choice.get("token_ids"), request, local)
        raw, logprobs, sampled, top = choice.maybe("routed_experts"), choice.maybe("logprobs"), None, None
        if logprobs is not None and sampling.topk_logprobs:
            sampled = logprobs.get("token_logprobs").numbers(len(tokens))
            steps = logprobs.get("top_logprobs").items(len(tokens))
            top = [_largest(step.members(), step, sampling.topk_logprobs) for step in steps]
        rollout = Answer(
            tokens,
            choice.get("finish_reason").text(),
            sampled,
            top,
            unpack_npy(raw.text(None)) if raw is not None and not plugin else None,
            request.first,
            key if plugin else None,
        )
        whole = len(request.prompt) + len(tokens) - 1
        if rollout.raw is not None and len(rollout.raw) == whole:  # a server without routed_experts_prompt_start
            rollout = rollout._replace(raw=rollout.raw[request.first :])
        return rollout


class Sglang:
    """`sglang.launch_server`, which returns expert ids without weights."""

    flag = "start it with: python -m sglang.launch_server --model-path MODEL --enable-return-routed-experts"
    kernel = f"an MoE kernel that routes by itself: {SGLANG_KERNEL}"

    def version(self, server: Server) -> dict[str, str]:
        for path in ("/server_info", "/get_server_info"):
            try:
                return {"sglang": server.get(path).get("version").text(_LONGEST_VERSION)}
            except Refused:
                continue
        return {}

    def plugin(self, server: Server) -> PluginStatus | None:
        return None

    def ask(self, server: Server, served: str, request: Request, local: Checkpoint, plugin: bool) -> Answer:
        answer = server.post("/generate", self.body(request), answer_limit(request, local))
        return self.read(answer, request, local)

    def body(self, request: Request) -> dict[str, Any]:
        """What is posted to /generate for one rollout."""
        sampling = request.sampling
        return {
            "input_ids": request.prompt,
            "sampling_params": NEUTRAL
            | {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_new_tokens": request.limit,
                "sampling_seed": request.seed & 0x7FFFFFFF,
                "skip_special_tokens": False,
            },
            "return_logprob": True,  # older versions say only there which tokens were sampled
            "top_logprobs_num": sampling.topk_logprobs,
            "logprob_start_len": -1,
            "return_routed_experts": True,
            "routed_experts_start_len": request.first,
        }

    def read(self, answer: Field, request: Request, local: Checkpoint) -> Answer:
        """The rollout in what /generate answered."""
        sampling = request.sampling
        meta = answer.get("meta_info")
        steps = [step.items() for step in meta.get("output_token_logprobs").items()]
        ids = answer.maybe("output_ids")
        if ids is None:
            ids = Field([_entry(step, meta, 1).value for step in steps], meta.source, "meta_info.output_token_logprobs")
        tokens, sampled, top = _tokens(ids, request, local), None, None
        if sampling.topk_logprobs:
            meta.get("output_token_logprobs").items(len(tokens))
            sampled = [_entry(step, meta, 0).number() for step in steps]
            top = [
                _largest([_entry(entry.items(), entry, 0) for entry in step.items()], step, sampling.topk_logprobs)
                for step in meta.get("output_top_logprobs").items(len(tokens))
            ]
        raw, wanted = meta.maybe("routed_experts"), len(request.prompt) + len(tokens) - 1 - request.first
        return Answer(
            tokens,
            meta.get("finish_reason").get("type").text(),
            sampled,
            top,
            unpack_int32(raw.text(None), wanted, local) if raw is not None else None,
            request.first,
            None,
        )


def answer_limit(request: Request, local: Checkpoint) -> Limit:
    """How large the answer to a request may be, generously: ids as 8 bytes in base64, long words, all logprobs."""
    positions, logprobs = len(request.prompt) + request.limit, request.sampling.topk_logprobs + 2
    per_position = 12 * local.layers * local.shape.top_k + 256 * logprobs + 1024
    return Limit(SMALL_BYTES + positions * per_position, SMALL_VALUES + positions * (80 + 8 * logprobs))


def logprobs_of(answer: Answer) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """Logprobs of the sampled tokens [T] and the C largest [T, C]; None where they were not asked for."""
    if answer.sampled is None or answer.top is None:
        return None, None
    most = min((len(step) for step in answer.top), default=0)
    return np.array(answer.sampled, np.float32), np.array([step[:most] for step in answer.top], np.float32)


def fetch(server: Server, key: str, limit: Limit, spans: Sequence[tuple[int, int]] | None = None) -> Routing:
    """The rows that the plugin holds under a key: all of them, or those of some token ranges. It forgets the others."""
    ranges = {} if spans is None else {"spans": {"0": spans}}
    routing = decode(server.fetch("POST", ROUTING, {"key": key, "n": 1} | ranges, limit=limit))
    if set(routing) != {0}:
        raise EngineError(f"{server.url}{ROUTING} answered with choices {short(sorted(routing))} for a request of one")
    return routing[0]


def _tokens(ids: Field, request: Request, local: Checkpoint) -> list[int]:
    """The tokens of a rollout: between one and as many as were asked for, all in the vocabulary."""
    values, words = ids.integers(MAX_TOKENS), len(local.vocab)
    if not 1 <= len(values) <= request.limit:
        raise EngineError(
            f"{ids.source} answered {len(values)} tokens, where 1 to {request.limit} were asked for: "
            "is this the kind of server that the engine is for?"
        )
    if max(values) >= words:
        raise EngineError(
            f"the server sampled token {max(values)}, the tokenizer of {local.path} ends at {words - 1}: "
            "pass the directory of the model that is served"
        )
    return values


def _entry(entries: list[Field], of: Field, at: int) -> Field:
    """One part of SGLang's [logprob, token, text]."""
    if len(entries) < 2:
        raise of.refusal("lists of [logprob, token, text]")
    return entries[at]


def _largest(logprobs: list[Field], step: Field, most: int) -> list[float]:
    """The largest logprobs of a token, `most` at most. vLLM adds a sampled token that is not among the largest."""
    if not logprobs:
        raise step.refusal("the logprobs of at least one token")
    return sorted((logprob.number() for logprob in logprobs), reverse=True)[:most]


def _plugin_status(status: Field) -> PluginStatus:
    layers = status.get("layers").integer(1, _MOST_LAYERS)
    experts = status.get("experts").integer(1, MAX_EXPERTS + 1)
    top_k = status.get("top_k").integer(1, experts + 1)
    captured = status.get("captured_layers")
    numbers = captured.integers(layers)
    if not numbers or numbers != sorted(set(numbers)):
        raise captured.refusal("distinct layers in ascending order")
    weights = status.get("settings").get("weights").flag()
    return PluginStatus(RouterShape(layers, experts, top_k), captured_layers(status.value), weights)
