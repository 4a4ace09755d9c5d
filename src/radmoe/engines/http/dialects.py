"""What differs between vLLM and SGLang: requests, answers and advice."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Sampling
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http.routed import Raw, unpack_int32, unpack_npy
from radmoe.engines.http.wire import Refused, Server
from radmoe.engines.vllm.plugin import NAME
from radmoe.engines.vllm.plugin.endpoint import ROUTING, STATUS_PATH
from radmoe.engines.vllm.plugin.payload import Routing, decode
from radmoe.errors import EngineError

# Servers take what a request leaves out from the model's generation_config.json.
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True)
class Request:
    """One rollout to sample, of at most `limit` tokens; rows of routing are wanted from input position `first` on."""

    prompt: tuple[int, ...]
    limit: int
    sampling: Sampling
    seed: int
    first: int


class Answer(NamedTuple):
    """One rollout as a server sent it, unchecked."""

    tokens: list[int]  # [T]
    text: str
    reason: str
    sampled: list[float] | None  # [T]
    top: list[list[float]] | None  # [T][C], the largest first
    raw: Raw | None  # stock routing: one row per input position from `first` on
    first: int
    key: str | None  # the key under which the plugin holds its rows
    cached: int | None  # prompt tokens that were in the prefix cache, where the server says


class Dialect(Protocol):
    """A kind of server.

    `flag` says how to start it so that it returns routing, `kernel` how to start it so that it does not route inside a
    kernel, where routing is not seen.
    """

    flag: str
    kernel: str

    def version(self, server: Server) -> dict[str, str]:
        """The version of the server, for a pool's provenance; empty where it does not say."""

    def plugin(self, server: Server) -> dict[str, Any] | None:
        """The status of the radmoe plugin in the server; None without the plugin."""

    def ask(self, server: Server, served: str, request: Request, local: Checkpoint, plugin: bool) -> Answer:
        """Sample one rollout of the model that is `served`; with `plugin` its routing is recorded by the plugin."""


class Vllm:
    """`vllm serve`, with its own routed experts or with the radmoe plugin."""

    flag = "start it with: vllm serve MODEL --enable-return-routed-experts"
    kernel = (
        "an MoE kernel that routes by itself: start vllm serve with --moe-backend triton, or with the radmoe plugin"
    )

    def version(self, server: Server) -> dict[str, str]:
        try:
            return {"vllm": str(server.get("/version")["version"])}
        except (EngineError, KeyError, TypeError):
            return {}

    def plugin(self, server: Server) -> dict[str, Any] | None:
        try:
            status: dict[str, Any] = server.get(STATUS_PATH)
        except Refused:  # 404: not installed; 409: installed and not switched on
            return None
        window = status["settings"]["window"]
        if window not in ("all", "generated"):
            raise EngineError(
                f"the plugin in this server keeps only {window}: start it with "
                f"""--additional-config '{{"{NAME}": {{"window": "generated"}}}}' to capture whole rollouts"""
            )
        return status

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
        )
        try:
            (choice,) = answer["choices"]
            tokens, raw, logprobs = choice["token_ids"], choice.get("routed_experts"), choice.get("logprobs")
            if tokens is None:
                raise EngineError("this server returns no token ids: it needs vLLM 0.11 or newer (return_token_ids)")
            sampled, top = None, None
            if logprobs is not None:
                sampled = logprobs["token_logprobs"]
                # A sampled token that is not among the largest comes as one more.
                most = sampling.topk_logprobs
                top = [sorted(step.values(), reverse=True)[:most] for step in logprobs["top_logprobs"]]
            details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
            rollout = Answer(
                tokens,
                choice["text"],
                choice["finish_reason"],
                sampled,
                top,
                unpack_npy(raw) if raw and not plugin else None,
                request.first,
                key if plugin else None,
                details.get("cached_tokens"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _strange(server, "/v1/completions", error) from None
        whole = len(request.prompt) + len(tokens) - 1
        if rollout.raw is not None and len(rollout.raw) == whole:  # a server without routed_experts_prompt_start
            rollout = rollout._replace(raw=rollout.raw[request.first :])
        return rollout


class Sglang:
    """`sglang.launch_server`, which returns expert ids without weights."""

    flag = "start it with: python -m sglang.launch_server --model-path MODEL --enable-return-routed-experts"
    kernel = "an MoE kernel that routes by itself: start SGLang with --moe-runner-backend triton"

    def version(self, server: Server) -> dict[str, str]:
        for path in ("/server_info", "/get_server_info"):
            try:
                return {"sglang": str(server.get(path)["version"])}
            except (EngineError, KeyError, TypeError):
                continue
        return {}

    def plugin(self, server: Server) -> dict[str, Any] | None:
        return None

    def ask(self, server: Server, served: str, request: Request, local: Checkpoint, plugin: bool) -> Answer:
        sampling = request.sampling
        answer = server.post(
            "/generate",
            {
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
            },
        )
        try:
            meta = answer["meta_info"]
            steps, top = meta["output_token_logprobs"], None
            tokens = answer.get("output_ids") or [int(step[1]) for step in steps]
            if sampling.topk_logprobs:
                top = [sorted((entry[0] for entry in step), reverse=True) for step in meta["output_top_logprobs"]]
            raw, wanted = meta.get("routed_experts"), len(request.prompt) + len(tokens) - 1 - request.first
            return Answer(
                tokens,
                answer["text"],
                meta["finish_reason"]["type"],
                [step[0] for step in steps] if sampling.topk_logprobs else None,
                top,
                unpack_int32(raw, wanted, local) if raw else None,
                request.first,
                None,
                meta.get("cached_tokens"),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise _strange(server, "/generate", error) from None


def logprobs_of(answer: Answer) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """Logprobs of the sampled tokens [T] and the C largest [T, C]; None where they were not asked for."""
    if answer.sampled is None or answer.top is None:
        return None, None
    most = min((len(step) for step in answer.top), default=0)
    return np.array(answer.sampled, np.float32), np.array([step[:most] for step in answer.top], np.float32)


def fetch(server: Server, key: str, spans: Sequence[tuple[int, int]] | None = None) -> Routing:
    """The rows that the plugin holds under a key: all of them, or those of some token ranges. It forgets the others."""
    ranges = {} if spans is None else {"spans": {"0": spans}}
    routing = decode(server.fetch("POST", ROUTING, {"key": key, "n": 1} | ranges))
    if set(routing) != {0}:
        raise EngineError(f"{server.url}{ROUTING} answered with choices {sorted(routing)} for a request of one")
    return routing[0]


def _strange(server: Server, path: str, error: Exception) -> EngineError:
    return EngineError(
        f"{server.url}{path} answered otherwise than expected ({type(error).__name__}: {str(error)[:80]}): "
        "is this the kind of server the engine is for?"
    )
