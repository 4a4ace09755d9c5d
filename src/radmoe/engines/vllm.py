"""Rollouts with their routing from vLLM: its own routed experts (ids), or the plugin (ids and weights).

`from_vllm` turns a finished `RequestOutput`, of `LLM` or of the asynchronous engine, into a group.
`VllmEngine` is the offline engine, asked as `TransformersEngine` is. docs/engines.md says what runs where.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Sampling
from radmoe.engines.prompts import Content, encode
from radmoe.engines.vllm_plugin import NAME, STATUS, TAKE
from radmoe.engines.vllm_plugin.endpoint import answered
from radmoe.engines.vllm_plugin.payload import Routing, decode
from radmoe.engines.vllm_plugin.settings import Settings
from radmoe.errors import EngineError, InputError
from radmoe.types import Rollout, RolloutGroup, RouterShape
from radmoe.vocab import Vocab


def from_vllm(
    output: Any,
    *,
    vocab: Vocab,
    shape: RouterShape,
    problem_id: str | None = None,
    routing: dict[int, Routing] | None = None,
) -> RolloutGroup:
    """The group of a finished `RequestOutput`: its completions, in their order.

    Without `routing` the ids are those vLLM returned itself (`enable_return_routed_experts=True`) and the
    group has no weights; with it (`vllm_plugin.payload.decode`), ids and weights are the plugin's. Logprobs
    are kept where the request asked for them. `shape.layers` counts the layers that have experts.
    """
    if not output.finished:
        raise EngineError(f"request {output.request_id} is not finished: pass its last RequestOutput")
    rollouts = [_rollout(output.request_id, c, shape, routing) for c in output.outputs]
    return RolloutGroup(output.request_id if problem_id is None else problem_id, rollouts, shape, vocab)


def _rollout(request: str, completion: Any, shape: RouterShape, routing: dict[int, Routing] | None) -> Rollout:
    where = f"completion {completion.index} of request {request}"
    if completion.finish_reason == "abort":
        raise EngineError(f"{where} was aborted: it has no end, and its routing is not kept")
    tokens = np.asarray(completion.token_ids, np.int32)
    weights: NDArray[np.float16] | None = None
    if routing is None:
        ids = stock_rows(completion.routed_experts, len(tokens), shape, where)
    elif completion.index in routing:
        ids, weights = routing[completion.index].generated(len(tokens))
    else:
        raise EngineError(f"{where} is not in the capture, which holds {sorted(routing)}")
    return Rollout(tokens, ids, weights, *_logprobs(completion, tokens))


def stock_rows(rows: Any, tokens: int, shape: RouterShape, where: str) -> NDArray[np.int16]:
    """R(t) [T, L, K] from vLLM's routed experts, one row per input position up to the last token but one.

    A layer without experts is zero there, and left out. Zeros where experts should be are refused: kernels
    that route by themselves and reused slots have left such rows.
    """
    if rows is None:
        raise EngineError(
            f"{where} has no routed experts: make the engine with enable_return_routed_experts=True "
            "(vllm serve --enable-return-routed-experts)"
        )
    array = np.asarray(rows)
    if array.ndim != 3 or len(array) < tokens or array.shape[2] != shape.top_k:
        raise EngineError(f"{where} has routed experts of shape {array.shape} for {tokens} tokens and a router {shape}")
    ids: NDArray[np.int16] = array[len(array) - tokens :].astype(np.int16)
    if shape.top_k == 1:
        return ids
    empty = ids[:, :, 0] == ids[:, :, 1]  # a token never goes to one expert twice
    routed = ~empty.all(0)
    if int(routed.sum()) != shape.layers or empty[:, routed].any():
        raise EngineError(
            f"{where} has rows without routing, {int(empty.sum())} of {empty.size} (row, layer) pairs, and {shape.layers} "
            "layers have experts: an MoE kernel that routes by itself; choose another with --moe-backend, or use the plugin"
        )
    return ids[:, routed]


def _logprobs(completion: Any, tokens: NDArray[np.int32]) -> tuple[Any, Any]:
    """Logprobs of the sampled tokens [T] and the C largest [T, C], of the raw logits; None where not asked for."""
    if not completion.logprobs:
        return None, None
    sampled = np.array(
        [step[t].logprob for step, t in zip(completion.logprobs, tokens.tolist(), strict=True)], np.float32
    )
    most = min(len(step) for step in completion.logprobs)
    ranked = [sorted((p.logprob for p in step.values()), reverse=True)[:most] for step in completion.logprobs]
    return sampled, np.array(ranked, np.float32)


class VllmEngine:
    """vLLM in this process, capturing.

    `model` is a checkpoint directory, or a name vLLM knows. With `weights` (the default) the plugin records ids and
    weights; without, vLLM's own routed experts are used and the pool has ids only. `window`, `layers` and
    `memory_mib` are the plugin's (see `Settings`). Anything else is an option of `vllm.LLM`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        weights: bool = True,
        layers: str | None = None,
        memory_mib: int = 4096,
        **options: Any,
    ) -> None:
        vllm = _vllm()
        settings = Settings(layers=layers, memory_mib=memory_mib)
        if not weights and layers is not None:
            raise InputError("layers are the plugin's: vLLM's own routed experts have all; leave weights=True")
        if weights:
            _check_plugin()
            options["additional_config"] = (options.get("additional_config") or {}) | {NAME: settings.to_json()}
        else:
            options["enable_return_routed_experts"] = True
        _check_model(vllm, model)
        try:
            self.llm = vllm.LLM(str(model), **options)
        except (RuntimeError, ValueError, OSError, AssertionError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(f"vLLM did not start with {model}: {reason}") from error
        self.weights = weights
        self.tokenizer = self.llm.get_tokenizer()
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.tokens_sampled = 0
        config = self.llm.llm_engine.vllm_config
        self.context: int = config.model_config.max_model_len
        self._seats: int = config.scheduler_config.max_num_seqs
        self.shape = self._plugin_shape() if weights else _stock_shape(config.model_config)

    @property
    def dtype(self) -> str:
        return str(self.llm.llm_engine.model_config.dtype).removeprefix("torch.")

    def generate(
        self,
        prompts: Sequence[Content | Sequence[int]],
        n: int,
        *,
        sampling: Sampling | None = None,
        keys: Sequence[str] | None = None,
        start: Sequence[int] | None = None,
        raw: bool = False,
    ) -> Iterator[Completion]:
        """Sample n rollouts of every prompt; yields those of a prompt when all of them are finished.

        `keys` and `start` as in `TransformersEngine.generate`: rollout r of a key has a seed of its own, whatever
        was sampled before. vLLM's logits depend on the batch in their last bits, so that two runs may part ways.
        """
        sampling = sampling or Sampling()
        if n < 1:
            raise InputError(f"n must be at least 1 rollout per prompt, got {n}")
        encoded = [self.encode(prompt, raw=raw) for prompt in prompts]
        names = list(keys) if keys is not None else [str(i) for i in range(len(prompts))]
        begin = list(start) if start is not None else [0] * len(prompts)
        if not len(names) == len(begin) == len(encoded):
            raise InputError(f"{len(encoded)} prompts, {len(names)} keys, {len(begin)} starts: they must agree")
        for ids, name in zip(encoded, names, strict=True):
            if len(ids) >= self.context:
                raise InputError(
                    f"prompt {name!r} has {len(ids)} tokens and the engine's context is {self.context}: "
                    "shorten the prompt, or raise max_model_len"
                )
        self.tokens_sampled = 0
        jobs = [(i, b) for i, b in enumerate(begin) if b < n]
        return self._run(jobs, encoded, names, n, sampling)

    def encode(self, prompt: Content | Sequence[int], *, raw: bool = False) -> list[int]:
        """Token ids of a prompt."""
        if isinstance(prompt, str) or any(isinstance(part, dict) for part in prompt):
            ids = encode(self.tokenizer, cast(Content, prompt), raw=raw)[1]
        else:
            ids = [int(token) for token in cast(Sequence[int], prompt)]
        if not ids:
            raise InputError("a prompt of zero tokens has nothing to continue")
        return ids

    def _run(
        self, jobs: list[tuple[int, int]], prompts: list[list[int]], names: list[str], n: int, sampling: Sampling
    ) -> Iterator[Completion]:
        """Keep the engine's seats filled twice over; finished requests are fetched before more are sent."""
        engine = self.llm.llm_engine
        waiting, running, queued = list(reversed(jobs)), dict[str, tuple[int, int]](), 0
        try:
            while waiting or running:
                while waiting and (not running or queued < 2 * self._seats):
                    index, first = waiting.pop()
                    key = uuid.uuid4().hex
                    engine.add_request(
                        key,
                        {"type": "token", "prompt_token_ids": prompts[index]},
                        request_parameters(
                            sampling, n - first, key=key, seed=seed_of(sampling.seed, names[index]) + first
                        ),
                    )
                    running[key], queued = (index, first), queued + n - first
                for output in _step(engine):
                    if output.finished:
                        index, first = running.pop(output.request_id)
                        queued -= n - first
                        yield from self._completions(output, index, first)
        finally:
            engine.abort_request(list(running))

    def _completions(self, output: Any, index: int, first: int) -> Iterator[Completion]:
        routing = self._take(output.request_id, len(output.outputs)) if self.weights else None
        group = from_vllm(output, vocab=self.vocab, shape=self.shape, routing=routing)
        for completion, rollout in zip(output.outputs, group.rollouts, strict=True):
            self.tokens_sampled += len(rollout)
            shown = rollout.token_ids[:-1] if completion.finish_reason == "stop" else rollout.token_ids
            text = self.tokenizer.decode(shown.tolist(), skip_special_tokens=False)
            yield Completion(index, first + completion.index, rollout, text, completion.finish_reason)

    def _take(self, key: str, n: int) -> dict[int, Routing]:
        return taken(self.llm.collective_rpc(TAKE, args=({"key": key, "n": n},)))

    def close(self) -> None:
        """Stop vLLM."""
        self.llm.llm_engine.engine_core.shutdown()

    def _plugin_shape(self) -> RouterShape:
        status = answered(self.llm.collective_rpc(STATUS))
        if "error" in status:
            raise EngineError(status["error"])
        return RouterShape(len(status["captured_layers"]), status["experts"], status["top_k"])


def request_parameters(sampling: Sampling, n: int, *, key: str | None = None, seed: int | None = None) -> Any:
    """vLLM's SamplingParams for n rollouts; `key` asks the plugin to keep their routing."""
    return _vllm().SamplingParams(
        n=n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        seed=seed,
        logprobs=sampling.topk_logprobs or None,
        detokenize=False,
        extra_args=None if key is None else {NAME: key},
        output_kind=_vllm().sampling_params.RequestOutputKind.FINAL_ONLY,
    )


def seed_of(seed: int, key: str) -> int:
    """vLLM gives rollout r of a request this seed plus r."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:4], "little")


def taken(answers: list[Any]) -> dict[int, Routing]:
    """Routing per completion, from what `collective_rpc(TAKE, ...)` of an engine of either kind answered."""
    answer = answered(answers)
    if "error" in answer:
        raise EngineError(answer["error"])
    return decode(answer["payload"])


def _step(engine: Any) -> list[Any]:
    try:
        return list(engine.step())
    except Exception as error:  # whatever a model or a kernel raises, or the engine's death
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"vLLM stopped while sampling: {reason}") from error


def _vllm() -> Any:
    try:
        import vllm
        import vllm.sampling_params

        return vllm
    except ImportError as error:
        raise EngineError(f"this engine needs vLLM ({error}): pip install 'radmoe[vllm]'") from None


def _check_plugin() -> None:
    """vLLM finds plugins by their entry points, which only an installed package has."""
    import vllm.envs as envs

    if not any(point.name == NAME for point in entry_points(group="vllm.general_plugins")):
        raise EngineError(
            "vLLM cannot see the radmoe plugin: install radmoe in vLLM's environment (pip install radmoe)"
        )
    if envs.VLLM_PLUGINS is not None and NAME not in envs.VLLM_PLUGINS:
        raise EngineError(f"VLLM_PLUGINS={','.join(envs.VLLM_PLUGINS)} leaves the radmoe plugin out: add radmoe to it")


def _check_model(vllm: Any, model: str | Path) -> None:
    """Refuse a dense model before an engine is started for it."""
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise EngineError(f"{model} is no checkpoint: it has no config.json; pass the directory of a saved model")
    try:
        config = vllm.EngineArgs(model=str(model)).create_model_config()
    except (RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"vLLM cannot load {model}: {reason}") from None
    if config.get_num_experts() < 2:
        raise EngineError(f"{model} is not a mixture-of-experts model: without a router there is no routing to capture")


def _stock_shape(config: Any) -> RouterShape:
    """L counts the layers with experts, as far as the model's configuration names those without."""
    text, layers = config.hf_text_config, config.get_total_num_hidden_layers()
    sparse = [
        layer
        for layer in range(layers)
        if layer not in (getattr(text, "mlp_only_layers", None) or ())
        and layer >= (getattr(text, "first_k_dense_replace", None) or 0)
        and (layer + 1) % (getattr(text, "decoder_sparse_step", None) or 1) == 0
    ]
    return RouterShape(len(sparse), config.get_num_experts(), config.get_num_experts_per_tok())
