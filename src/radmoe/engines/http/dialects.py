"""The differences between vLLM and SGLang: request bodies, where the answer lies, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import SGLANG_KERNEL, VLLM_FLAG, VLLM_STOCK_KERNEL
from radmoe.engines.base import Sampling
from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import Answer, Raw, sglang_answer, unpack_int32, unpack_npy, vllm_answers
from radmoe.engines.http.client import SMALL_BYTES, SMALL_VALUES, Limit, ModelServer, Refused
from radmoe.engines.http.fields import Field
from radmoe.engines.sglang import unpack
from radmoe.engines.vllm.plugin import NAME
from radmoe.engines.vllm.plugin.endpoint import STATUS_PATH, captured_layers
from radmoe.errors import EngineError
from radmoe.pool.profile import spans
from radmoe.types import MAX_EXPERTS, RouterShape

# Servers take what a request leaves out from the model's generation_config.json.
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}

_LONGEST_VERSION = 100  # characters
_MOST_LAYERS = 10_000


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to sample, of at most `limit` tokens; rows of routing are wanted from input position `first` on."""

    prompt: tuple[int, ...]
    limit: int
    sampling: Sampling
    seed: int
    first: int


@dataclass(frozen=True)
class PluginStatus:
    """The status of the radmoe plugin in a server: the router, the captured layers (None: all), and whether weights come."""

    shape: RouterShape
    layers: tuple[int, ...] | None
    weights: bool


class Vllm:
    """`vllm serve`, with its own routed experts or with the radmoe plugin.

    `flag` says how to start it so that it returns routing, `kernel` how to start it so that it does not route inside a
    kernel, where routing is not seen, and `path` is where rollouts are asked for.
    """

    flag = VLLM_FLAG
    path = "/v1/completions"
    kernel = f"an MoE kernel that routes by itself: {VLLM_STOCK_KERNEL}"

    def door(self, server: ModelServer) -> Vllm:
        """The dialect for rollouts without log-probabilities: that of the route for token ids, if the server has it open."""
        try:
            server.post(VllmTokens.path, {})
        except Refused as error:
            return VllmTokens() if error.status == 400 else self  # an open route misses the tokens
        return self

    def version(self, server: ModelServer) -> dict[str, str]:
        """The versions of the server, for a pool's provenance, and of its Rust frontend; empty where it does not say."""
        try:
            said = server.get("/version")
        except Refused:
            return {}
        found = {"vllm": said.get("version"), "vllm-rs": said.maybe("rust_frontend_version")}
        return {name: version.text(_LONGEST_VERSION) for name, version in found.items() if version is not None}

    def plugin(self, server: ModelServer) -> PluginStatus | None:
        """The status of the radmoe plugin in the server; None without the plugin."""
        try:
            status = server.get(STATUS_PATH)
        except Refused:  # 404: not installed; 409: installed and not switched on
            return None
        rows = status.get("settings").get("rows").text(_LONGEST_VERSION)
        if rows not in ("all", "generated"):
            raise EngineError(
                f"the plugin in this server keeps only {rows}: start it with "
                f"""--additional-config '{{"{NAME}": {{"rows": "generated"}}}}' to capture whole rollouts"""
            )
        return _plugin_status(status)

    def body(self, request: RolloutRequest, served: str, key: str | None) -> dict[str, Any]:
        """What is posted to `path` for one rollout of the model `served`; with a key the plugin records its routing."""
        body = {"model": served, "prompt": request.prompt, "return_token_ids": True}
        if request.sampling.topk_logprobs:
            body |= {"logprobs": request.sampling.topk_logprobs, "return_tokens_as_token_ids": True}
        if key is not None:
            body["vllm_xargs"] = {NAME: key}
        return body | self._sampling(request)

    def _sampling(self, request: RolloutRequest) -> dict[str, Any]:
        return NEUTRAL | {
            "max_tokens": request.limit,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "seed": request.seed,
            "routed_experts_prompt_start": request.first,
            "skip_special_tokens": False,
        }

    def read(self, answer: Field, request: RolloutRequest, words: int) -> Answer:
        """Read the rollout from the answer of `path`; `words` is the size of the vocabulary."""
        return vllm_answers(answer, 1, words=words, most=request.limit, logprobs=request.sampling.topk_logprobs)[0]

    def unpack(self, routed: str, rows: int, layout: RouterLayout) -> tuple[Raw, NDArray[np.float16] | None]:
        """Decode the routing of an answer, which should have `rows` rows: ids, and weights where the server packs them in."""
        return unpack_npy(routed), None


class VllmTokens(Vllm):
    """vLLM's route for token ids in and out, which `--enable-scale-out` opens.

    Of C log-probabilities it leaves the C-th largest out where the sampled token is none of them.
    """

    path = "/inference/v1/generate"

    def body(self, request: RolloutRequest, served: str, key: str | None) -> dict[str, Any]:
        sampling = self._sampling(request) | {"detokenize": False, "extra_args": key and {NAME: key}}
        return {"model": served, "token_ids": request.prompt, "sampling_params": sampling}


class Sglang:
    """`sglang.launch_server`, which returns expert ids, and with our plugin weights within them. Its methods are those of `Vllm`."""

    path = "/generate"
    flag = "start it with: python -m sglang.launch_server --model-path MODEL --enable-return-routed-experts"
    kernel = f"an MoE kernel that routes by itself: {SGLANG_KERNEL}"

    def version(self, server: ModelServer) -> dict[str, str]:
        for path in ("/server_info", "/get_server_info"):
            try:
                return {"sglang": server.get(path).get("version").text(_LONGEST_VERSION)}
            except Refused:
                continue
        return {}

    def plugin(self, server: ModelServer) -> PluginStatus | None:
        return None

    def body(self, request: RolloutRequest, served: str = "", key: str | None = None) -> dict[str, Any]:
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

    def read(self, answer: Field, request: RolloutRequest, words: int) -> Answer:
        return sglang_answer(answer, words=words, most=request.limit, logprobs=request.sampling.topk_logprobs)

    def unpack(self, routed: str, rows: int, layout: RouterLayout) -> tuple[Raw, NDArray[np.float16] | None]:
        return unpack(unpack_int32(routed, rows, layout))


Dialect = Vllm | Sglang


def answer_limit(request: RolloutRequest, layout: RouterLayout) -> Limit:
    """How large the answer to a request may be, generously: ids as 8 bytes in base64, long words, all logprobs."""
    positions, logprobs = len(request.prompt) + request.limit, request.sampling.topk_logprobs + 2
    per_position = 12 * layout.layers * layout.shape.top_k + 256 * logprobs + 1024
    return Limit(SMALL_BYTES + positions * per_position, SMALL_VALUES + positions * (80 + 8 * logprobs))


def rows_request(key: str, n: int, positions: Sequence[NDArray[np.int32] | None]) -> dict[str, Any]:
    """What is posted to the plugin's route for the rows of n choices: those of tokens at `positions`, or all (None)."""
    ranges = {str(i): spans(rows) for i, rows in enumerate(positions) if rows is not None}
    return {"key": key, "n": n} | ({"spans": ranges} if ranges else {})


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
