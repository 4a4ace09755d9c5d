"""Rollouts with their routing from vLLM: its own routed experts (ids), or the plugin's rows (ids and weights).

`from_vllm` turns a finished `RequestOutput`, of `LLM` or of the asynchronous engine, into a group. `VllmEngine` is the
offline engine. docs/engines.md says what runs where.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Engine, Job, Sampling, completion_text, rollout_seed
from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.models import recorded_name, resolve_model
from radmoe.engines.options import EngineOptions, refuse_options, refuse_server_options, required_model
from radmoe.engines.vllm.checks import check_plugin, checked_config, first_line, not_started
from radmoe.engines.vllm.outputs import from_vllm, to_rollout
from radmoe.engines.vllm.plugin import NAME, STATUS, TAKE
from radmoe.engines.vllm.plugin.endpoint import answered, captured_layers
from radmoe.engines.vllm.plugin.payload import Routing, decode
from radmoe.engines.vllm.plugin.settings import PluginSettings
from radmoe.errors import EngineError, InputError
from radmoe.pool.profile import spans
from radmoe.types import Kind, RouterShape
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.pool import Profile

__all__ = ["VllmEngine", "from_vllm", "request_parameters", "taken"]


class VllmEngine(Engine):
    """vLLM in this process, with capture of routing.

    `model` is a checkpoint directory, or a name that vLLM knows. With `weights` (the default) the plugin records ids
    and weights; without, vLLM's own routed experts are used and the pool has ids only. `layers` and `memory_mib` are
    the plugin's (see `PluginSettings`). `model_name` is what a pool records (default: the directory's name). Anything else is
    an option of `vllm.LLM`.

    `shape` is the router's. With a layer subset, `layers` has its numbers, and `generate` needs a profile that
    keeps no others.
    """

    name, batch_size = "vllm", 512
    tokens_sampled = 0  # of the rollouts that the current or last `generate` has finished

    def __init__(
        self,
        model: str | Path,
        *,
        weights: bool = True,
        layers: str | None = None,
        memory_mib: int = 4096,
        model_name: str | None = None,
        **options: Any,
    ) -> None:
        vllm = _vllm()
        settings = PluginSettings(layers=layers, memory_mib=memory_mib)
        if not weights and layers is not None:
            raise InputError("layers are the plugin's: vLLM's own routed experts have all; leave weights=True")
        if weights:
            check_plugin()
            options["additional_config"] = (options.get("additional_config") or {}) | {NAME: settings.to_json()}
        else:
            options["enable_return_routed_experts"] = True
        options.setdefault("trust_remote_code", False)
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
            raise not_started(model, error) from error
        self.weights = weights
        self.model_name = model_name or recorded_name(model)
        self.checkpoint = Path(model) if Path(model).is_dir() else None
        self.tokenizer = self.llm.get_tokenizer()
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.versions = {"vllm": str(vllm.__version__)}
        self._config = self.llm.llm_engine.vllm_config.model_config
        self.dtype = str(self._config.dtype).removeprefix("torch.")
        self.context = self._config.max_model_len
        self._layout = RouterLayout.of_config(self._config.hf_text_config, str(model))
        self.shape = self._plugin_shape() if weights else self._layout.shape

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        refuse_server_options(options, cls.name)
        refuse_options(options, ("device", "threads"), "is not of vllm: it chooses its device and its threads itself")
        name = required_model(model, cls.name, "a checkpoint directory, or lab-qwen")
        precision: dict[str, Any] = {} if options.dtype is None else {"dtype": options.dtype}
        return cls(
            resolve_model(name),
            weights=options.weights,
            layers=options.layers if options.weights else None,
            model_name=recorded_name(name),
            **precision,
        )

    @property
    def vocab_size(self) -> int:
        return int(self._config.get_vocab_size())

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the checkpoint's generation config, if it has it."""
        value = self._config.try_get_generation_config().get(name)
        return otherwise if value is None else value

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs as `Engine.run` says; yields those of a prompt when all of them are finished.

        `batch_size` rollouts are handed to vLLM at once, or those of one prompt; vLLM schedules them. Rollout r of a key
        has a seed of its own, whatever was sampled before. vLLM's logits depend on the batch in their last bits, so
        that two runs may part ways. Of what the plugin recorded, only the rows and layers that a `profile` keeps are
        handed over.
        """
        self.tokens_sampled = 0
        return self._run(_requests(jobs), batch_size, profile)

    def _run(self, jobs: list[_RequestJob], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Run the requests. Finished requests are fetched before more are sent, so that the plugin's memory suffices."""
        engine = self.llm.llm_engine
        waiting, running = jobs[::-1], dict[str, _RequestJob]()
        try:
            while waiting or running:
                while waiting and (not running or sum(job.n for job in running.values()) + waiting[-1].n <= batch_size):
                    job, key = waiting.pop(), uuid.uuid4().hex
                    parameters = request_parameters(
                        job.sampling, job.n, key=key if self.weights else None, seed=job.seed
                    )
                    engine.add_request(key, {"type": "token", "prompt_token_ids": job.ids}, parameters)
                    running[key] = job
                for output in _step(engine):
                    if output.finished:
                        yield from self._completions(output, running.pop(output.request_id), profile)
        finally:
            engine.abort_request(list(running))

    def _completions(self, output: Any, job: _RequestJob, profile: Profile | None) -> Iterator[Completion]:
        positions: dict[int, NDArray[np.int32] | None] = dict.fromkeys(range(job.n))
        routing: dict[int, Routing] = {}
        if self.weights:
            if profile is not None:
                tokens = {c.index: np.asarray(c.token_ids, np.int32) for c in output.outputs}
                positions = {i: profile.kept_rows(tokens[i], self.vocab, job.kind) for i in tokens}
            routing = self._take(output.request_id, positions, None if profile is None else profile.layers)
        for completion in output.outputs:
            index, where = completion.index, f"completion {completion.index} of request {output.request_id}"
            rollout = to_rollout(
                completion, where, self._layout, routing.get(index), positions[index], job.sampling.topk_logprobs
            )
            self.tokens_sampled += len(rollout)
            text = completion_text(self.tokenizer, rollout.token_ids, completion.finish_reason)
            yield Completion(job.prompt, job.first + index, rollout, text, completion.finish_reason)

    def _take(
        self, key: str, positions: dict[int, NDArray[np.int32] | None], layers: tuple[int, ...] | None
    ) -> dict[int, Routing]:
        """The plugin's rows of a finished request, of these tokens per completion (None: of all) and these layers."""
        request: dict[str, Any] = {"key": key, "n": len(positions)}
        if any(rows is not None for rows in positions.values()):
            request["spans"] = {str(i): spans(rows) for i, rows in positions.items() if rows is not None}
        routing = taken(self.llm.collective_rpc(TAKE, args=(request,)))
        return {i: rows.of_layers(layers, self.shape, self.layers) for i, rows in routing.items()}

    def close(self) -> None:
        """Stop vLLM's engine core."""
        self.llm.llm_engine.engine_core.shutdown()

    def _plugin_shape(self) -> RouterShape:
        status = answered(self.llm.collective_rpc(STATUS))
        if "error" in status:
            raise EngineError(status["error"])
        self.layers = captured_layers(status)
        return RouterShape(status["layers"], status["experts"], status["top_k"])


def request_parameters(sampling: Sampling, n: int, *, key: str | None = None, seed: int | None = None) -> Any:
    """vLLM's SamplingParams for n rollouts; `key` asks the plugin to record their routing."""
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


class _RequestJob(NamedTuple):
    """Rollouts first .. first+n-1 of one prompt, which are one request."""

    prompt: int
    first: int
    n: int
    ids: list[int]
    key: str
    kind: Kind | None
    sampling: Sampling

    @property
    def seed(self) -> int:
        """The seed of the first rollout; vLLM adds 1 for each further one of a request."""
        return rollout_seed(self.sampling.seed, self.key, self.first)


def _requests(jobs: Sequence[Job]) -> list[_RequestJob]:
    """Jobs as requests: rollouts of one prompt whose numbers follow each other are one request. vLLM refuses a greedy
    request for more than one completion."""
    requests: list[_RequestJob] = []
    for job in jobs:
        last = requests[-1] if requests and job.sampling.temperature else None
        if last is not None and (last.prompt, last.first + last.n) == (job.prompt_index, job.rollout_index):
            requests[-1] = last._replace(n=last.n + 1)
        else:
            one = (job.prompt_index, job.rollout_index, 1, list(job.prompt), job.key, job.kind, job.sampling)
            requests.append(_RequestJob(*one))
    return requests


def taken(answers: list[Any]) -> dict[int, Routing]:
    """Decode the answers of `collective_rpc(TAKE, ...)`, of `LLM` or `AsyncLLM`, into the routing of each completion."""
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
