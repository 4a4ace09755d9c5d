"""Rollouts with their routing from vLLM: its own routed experts (ids), or the plugin (ids and weights).

`from_vllm` turns a finished `RequestOutput`, of `LLM` or of the asynchronous engine, into a group.
`VllmEngine` is the offline engine, asked as the others are. docs/engines.md says what runs where.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from radmoe.engines.base import Completion, Sampling, asked, rollout_seed, room_left
from radmoe.engines.checkpoint import sparse_layers
from radmoe.engines.kept_rows import check_layers, kept, spans
from radmoe.engines.prompts import Content, encode
from radmoe.engines.vllm.checks import check_plugin, checked_config, first_line
from radmoe.engines.vllm.outputs import from_vllm
from radmoe.engines.vllm.plugin import NAME, STATUS, TAKE
from radmoe.engines.vllm.plugin.endpoint import answered, captured_layers
from radmoe.engines.vllm.plugin.payload import Routing, decode
from radmoe.engines.vllm.plugin.settings import Settings
from radmoe.errors import EngineError, InputError
from radmoe.types import RouterShape
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.pool import Profile

__all__ = ["VllmEngine", "from_vllm", "request_parameters", "taken"]


class VllmEngine:
    """vLLM in this process, capturing.

    `model` is a checkpoint directory, or a name vLLM knows. With `weights` (the default) the plugin records ids and
    weights; without, vLLM's own routed experts are used and the pool has ids only. `layers` and `memory_mib` are
    the plugin's (see `Settings`). Anything else is an option of `vllm.LLM`.

    `shape` is the router's. With a layer subset, `layers` has its numbers, and `generate` wants a profile that
    keeps no others.
    """

    name = "vllm"

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
            check_plugin()
            options["additional_config"] = (options.get("additional_config") or {}) | {NAME: settings.to_json()}
        else:
            options["enable_return_routed_experts"] = True
        config = checked_config(vllm, model)
        if vllm.platforms.current_platform.is_cpu():
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB; else it wants 92% of this machine's memory free
            if not config.is_hybrid:
                # vLLM 0.30 on CPU dies of a request that has a seed and whose prompt comes in parts
                options.setdefault("enable_chunked_prefill", False)
            if not weights:
                options.setdefault("enforce_eager", True)  # compiled, vLLM's own routed experts are zeros on CPU
        try:
            self.llm = vllm.LLM(str(model), **options)
        except (RuntimeError, ValueError, OSError, AssertionError) as error:
            raise EngineError(f"vLLM did not start with {model}: {first_line(error)}") from error
        self.weights = weights
        self.tokenizer = self.llm.get_tokenizer()
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.versions = {"vllm": str(vllm.__version__)}
        self._config = self.llm.llm_engine.vllm_config.model_config
        self._sampled = 0
        self.layers: tuple[int, ...] | None = None
        self.shape = self._plugin_shape() if weights else _stock_shape(self._config)

    @property
    def dtype(self) -> str:
        return str(self._config.dtype).removeprefix("torch.")

    @property
    def tokens_sampled(self) -> int:
        """Tokens of the rollouts the current or last `generate` has finished."""
        return self._sampled

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the checkpoint's generation config, if it has it."""
        found = self._config.try_get_generation_config().get(name)
        return otherwise if found is None else found

    def room(self, ids: Sequence[int], name: str, max_tokens: int) -> int:
        return room_left(self._config.max_model_len, ids, name, max_tokens)

    def generate(
        self,
        prompts: Sequence[Content | Sequence[int]],
        n: int,
        *,
        sampling: Sampling | None = None,
        batch_size: int = 512,
        keys: Sequence[str] | None = None,
        missing: Sequence[Sequence[int]] | None = None,
        profile: Profile | None = None,
        raw: bool = False,
    ) -> Iterator[Completion]:
        """Sample n rollouts of every prompt; yields those of a prompt when all of them are finished.

        `batch_size` rollouts are handed to vLLM at once, or those of one prompt; it schedules them. `keys` and
        `missing` as in `TransformersEngine.generate`: rollout r of a key has a seed of its own, whatever was sampled
        before. vLLM's logits depend on the batch in their last bits, so that two runs may part ways. Of what the
        plugin recorded, only the rows that a `profile` keeps are fetched.
        """
        sampling = sampling or Sampling()
        names, wanted = asked(len(prompts), n, batch_size, keys, missing)
        check_layers(self.layers, profile)
        encoded = [self.encode(prompt, raw=raw) for prompt in prompts]
        for ids, name in zip(encoded, names, strict=True):
            self.room(ids, name, sampling.max_tokens)
        self._sampled = 0
        most = n if sampling.temperature else 1  # vLLM refuses to be greedy more than once a request
        jobs = [
            _Job(i, r, min(most, stop - r), encoded[i], names[i])
            for i, rollouts in enumerate(wanted)
            for start, stop in spans(np.array(rollouts, np.int64))
            for r in range(start, stop, most)
        ]
        return self._run(jobs, sampling, batch_size, profile)

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
        self, jobs: list[_Job], sampling: Sampling, batch_size: int, profile: Profile | None
    ) -> Iterator[Completion]:
        """Finished requests are fetched before more are sent, so that the plugin's memory is not outrun."""
        engine = self.llm.llm_engine
        waiting, running = jobs[::-1], dict[str, _Job]()
        try:
            while waiting or running:
                while waiting and (not running or sum(job.n for job in running.values()) + waiting[-1].n <= batch_size):
                    job, key = waiting.pop(), uuid.uuid4().hex
                    parameters = request_parameters(
                        sampling, job.n, key=key if self.weights else None, seed=job.seed(sampling)
                    )
                    engine.add_request(key, {"type": "token", "prompt_token_ids": job.ids}, parameters)
                    running[key] = job
                for output in _step(engine):
                    if output.finished:
                        yield from self._completions(output, running.pop(output.request_id), sampling, profile)
        finally:
            engine.abort_request(list(running))

    def _completions(self, output: Any, job: _Job, sampling: Sampling, profile: Profile | None) -> Iterator[Completion]:
        routing = self._take(output, profile) if self.weights else None
        group = from_vllm(
            output, vocab=self.vocab, shape=self.shape, routing=routing, topk_logprobs=sampling.topk_logprobs
        )
        for completion, rollout in zip(output.outputs, group.rollouts, strict=True):
            self._sampled += len(rollout)
            shown = rollout.token_ids[:-1] if completion.finish_reason == "stop" else rollout.token_ids
            text = self.tokenizer.decode(shown.tolist(), skip_special_tokens=False)
            yield Completion(job.prompt, job.first + completion.index, rollout, text, completion.finish_reason)

    def _take(self, output: Any, profile: Profile | None) -> dict[int, Routing]:
        """What the plugin has of a finished request: all of it, or what a profile keeps."""
        request: dict[str, Any] = {"key": output.request_id, "n": len(output.outputs)}
        if profile is None:
            return taken(self.llm.collective_rpc(TAKE, args=(request,)))
        tokens = {c.index: np.asarray(c.token_ids, np.int32) for c in output.outputs}
        rows = {i: kept(profile, tokens[i], self.vocab) for i in tokens}
        request["spans"] = {str(i): spans(rows[i]) for i in rows}
        found = taken(self.llm.collective_rpc(TAKE, args=(request,)))
        return {i: found[i].spread(rows[i], len(tokens[i]), self.shape, self.layers) for i in found}

    def close(self) -> None:
        """Stop vLLM."""
        self.llm.llm_engine.engine_core.shutdown()

    def _plugin_shape(self) -> RouterShape:
        status = answered(self.llm.collective_rpc(STATUS))
        if "error" in status:
            raise EngineError(status["error"])
        self.layers = captured_layers(status)
        return RouterShape(status["layers"], status["experts"], status["top_k"])


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


class _Job(NamedTuple):
    """Rollouts first .. first+n-1 of one prompt."""

    prompt: int
    first: int
    n: int
    ids: list[int]
    key: str

    def seed(self, sampling: Sampling) -> int:
        """Of the first rollout; vLLM adds 1 for each further one of a request."""
        return rollout_seed(sampling.seed, self.key, self.first)


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
        raise EngineError(f"vLLM stopped while sampling: {first_line(error)}") from error


def _vllm() -> Any:
    try:
        import vllm.platforms
        import vllm.sampling_params

        import vllm

        return vllm
    except ImportError as error:
        raise EngineError(f"this engine needs vLLM ({error}): pip install 'radmoe[vllm]'") from None


def _stock_shape(config: Any) -> RouterShape:
    """L counts the layers with experts, as far as the model's configuration names those without."""
    return RouterShape(
        len(sparse_layers(config.hf_text_config)), config.get_num_experts(), config.get_num_experts_per_tok()
    )
