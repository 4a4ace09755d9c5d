"""Runs inside a vLLM worker: records the routers' answers and maps the rows of each pass to requests.

Rows are mapped by position. Chunked prefill computes a prompt's positions in parts, a preempted request computes them
again, and a prefix in the cache is not computed at all. Position P-1 is computed in every case, because its logits are
needed, and so is every later one. So R(t) of a generated token always exists (row P-1+t).
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import VLLM_KERNEL, VLLM_RUN, untried_vllm
from radmoe.engines.vllm.plugin import NAME, STATUS, TAKE
from radmoe.engines.vllm.plugin.layers import moe_layers
from radmoe.engines.vllm.plugin.payload import encode
from radmoe.engines.vllm.plugin.settings import PluginSettings
from radmoe.engines.vllm.plugin.store import RowStore, SlotPlan
from radmoe.engines.vllm.plugin.tape import Snapshot, Tape
from radmoe.errors import EngineError, RadmoeError

_BYPASSED = (
    "a router did not run in a pass: a monolithic kernel, sequence parallelism or a recorded graph routes around it; "
    f"start vLLM with --enforce-eager (enforce_eager=True); if that is not enough, {VLLM_KERNEL}"
)


class _Pending(NamedTuple):
    plan: SlotPlan
    snapshot: Snapshot
    requests: list[str]


def attach(worker: Any) -> None:
    """Prepare a new worker to capture once its model is loaded.

    A model that cannot be captured does not stop the worker: `status` gives the reason, and whoever starts the engine
    asks for it.
    """
    worker_load = worker.load_model
    recorder: list[RowRecorder] = []
    refusal = "the model is not loaded yet"

    def load_model(*args: Any, **kwargs: Any) -> Any:
        nonlocal refusal
        loaded = worker_load(*args, **kwargs)
        try:
            settings = PluginSettings.from_json(worker.vllm_config.additional_config[NAME])
            check_names(worker.model_runner)
            if worker.rank == 0:  # ranks of tensor parallelism route alike
                recorder.append(RowRecorder(worker.model_runner, worker.vllm_config, settings))
            refusal = ""
        except RadmoeError as error:
            refusal = str(error)
        except (
            AttributeError,
            ImportError,
            TypeError,
        ) as error:  # a name that is not in vLLM's documentation has changed
            refusal = _unknown(str(error))
        return loaded

    def status() -> dict[str, Any] | None:
        return None if worker.rank else {"error": refusal} if refusal else recorder[0].status()

    def take(request: dict[str, Any]) -> dict[str, Any] | None:
        """The payload of a request (see `RowRecorder.take`), or one line that says what is wrong; None on other ranks."""
        if worker.rank:
            return None
        try:
            return {"error": refusal} if refusal else {"payload": recorder[0].take(**request)}
        except RadmoeError as error:
            return {"error": str(error)}

    worker.load_model = load_model
    setattr(worker, STATUS, status)
    setattr(worker, TAKE, take)


def check_names(runner: Any) -> None:
    """Raise EngineError if this vLLM lacks a name that every pass reads or wraps; warn if it is a version that was not tried."""
    from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

    second = not hasattr(runner, "input_batch")
    batch = import_module("vllm.v1.worker.gpu.input_batch").InputBatch if second else runner.input_batch
    positions = "num_computed_tokens_np" if second else "num_computed_tokens_cpu"
    for owner, names in (
        (runner, ("execute_model", "model", "max_num_tokens", "device", *(["prepare_inputs"] if second else []))),
        (batch, ("req_ids", positions)),
        (
            SchedulerOutput,
            ("finished_req_ids", "scheduled_new_reqs", "num_scheduled_tokens", "total_num_scheduled_tokens"),
        ),
        (NewRequestData, ("req_id", "prompt_token_ids", "sampling_params")),
    ):
        for name in names:
            if not hasattr(owner, name) and name not in getattr(owner, "__dataclass_fields__", ()):
                what = owner.__name__ if isinstance(owner, type) else type(owner).__name__
                raise EngineError(_unknown(f"{what} has no {name}"))
    if line := untried_vllm(_version()):
        logging.getLogger("vllm.radmoe").warning(line)


def _unknown(reason: str) -> str:
    return (
        f"the plugin does not know this vLLM, {_version()} ({reason}): install one that it was run with, "
        f"{', '.join(VLLM_RUN)}, or leave radmoe out of --additional-config and take vLLM's own ids "
        "(--enable-return-routed-experts)"
    )


def _version() -> str:
    return str(getattr(import_module("vllm"), "__version__", "of no version"))


class RowRecorder:
    """The taps on the routers of one model, and the rows that were recorded by them."""

    def __init__(self, runner: Any, config: Any, settings: PluginSettings) -> None:
        from radmoe.selection.layers import layer_subset

        _refuse(runner, config)
        layers = moe_layers(runner.model, weights=settings.weights)
        experts = int(config.model_config.get_num_experts())
        top_k = layers[0].top_k
        if any(layer.top_k != top_k for layer in layers):
            raise EngineError(f"layers differ in experts per token, {sorted({x.top_k for x in layers})}: not supported")
        self._runner, self._settings = runner, settings
        self._shape = (len(layers), experts, int(top_k))
        self._layers = [int(i) for i in layer_subset(settings.layers, len(layers))]
        most = max(runner.max_num_tokens, config.compilation_config.max_cudagraph_capture_size or 0)
        self._tape = Tape(len(self._layers), most, top_k, weights=settings.weights, device=runner.device)
        self._store = RowStore(
            layers=len(self._layers),
            experts=experts,
            top_k=top_k,
            weights=settings.weights,
            entries=2 * config.scheduler_config.max_num_seqs + 1024,
            positions=config.model_config.max_model_len + 1,
            memory=settings.memory_mib << 20,
            prompt=settings.prompt,
            tail=settings.tail,
        )
        self._pending: deque[_Pending] = deque()
        for i, layer in enumerate(self._layers):
            layers[layer].listen(partial(self._tape.write, i))
        self._execute = runner.execute_model
        runner.execute_model = self._step
        self._batch: Any = None  # of the pass under way, in Model Runner V2
        if not hasattr(runner, "input_batch"):
            self._prepare = runner.prepare_inputs
            runner.prepare_inputs = self._prepared

    def status(self) -> dict[str, Any]:
        layers, experts, top_k = self._shape
        return {
            "layers": layers,
            "experts": experts,
            "top_k": top_k,
            "captured_layers": self._layers,
            "settings": self._settings.to_json(),
            "row_bytes": self._store.row_bytes,
            "requests": len(self._store),
            "bytes": self._store.used,
        }

    def take(self, key: str, n: int = 1, spans: dict[str, list[tuple[int, int]]] | None = None) -> bytes:
        """The payload of the n choices of a request, which is then forgotten.

        `spans` are token ranges [start, stop) per choice; a choice without any sends no row. None sends all rows.
        """
        self._drain(wait=True)
        ranges = None if spans is None else {int(choice): spans[choice] for choice in spans}
        return encode(self._store.take(key, n, ranges), self._layers)

    def _step(self, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one pass of the engine (it stands in for `execute_model`), and record it."""
        self._announce(scheduled)
        total = scheduled.total_num_scheduled_tokens
        unused = not len(self._store)
        self._tape.idle = unused and self._runner.device.type == "cpu"
        if unused or not total:
            return self._execute(scheduled, *args, **kwargs)
        self._tape.arm(total)
        output = self._execute(scheduled, *args, **kwargs)
        requests, start = self._computed()
        count = np.array([scheduled.num_scheduled_tokens[r] for r in requests], np.int64)
        if (plan := self._store.plan(requests, start, count)) is not None:
            self._pending.append(_Pending(plan, self._tape.read(plan.source), requests))
            self._drain()
        return output

    def _prepared(self, *args: Any, **kwargs: Any) -> Any:
        """Stand in for `prepare_inputs`, and remember the batch."""
        self._batch = self._prepare(*args, **kwargs)
        return self._batch

    def _computed(self) -> tuple[list[str], NDArray[np.int64]]:
        """The requests of the last pass, in the order of its rows, and the first position of each."""
        if self._batch is not None:
            return list(self._batch.req_ids), self._batch.num_computed_tokens_np.astype(np.int64)
        batch = self._runner.input_batch
        requests = list(batch.req_ids)
        return requests, batch.num_computed_tokens_cpu[: len(requests)].astype(np.int64)

    def _announce(self, scheduled: Any) -> None:
        """Tell the store which requests ended, and which of the new ones carry a key."""
        for request in scheduled.finished_req_ids:
            self._store.finish(request)
        for new in scheduled.scheduled_new_reqs:
            key = (getattr(new.sampling_params, "extra_args", None) or {}).get(NAME)
            if key is not None:
                self._store.open(new.req_id, str(key), len(new.prompt_token_ids or ()))

    def _drain(self, *, wait: bool = False) -> None:
        """Store the rows that have arrived on the host, in order; `wait` waits for all of them."""
        while self._pending and (wait or self._pending[0].snapshot.arrived()):
            plan, snapshot, requests = self._pending.popleft()
            snapshot.wait()
            ids = snapshot.ids.numpy()
            if ids.min() < 0:
                self._store.spoil(requests, _BYPASSED)
                continue
            self._store.fill(plan.slots, ids, None if snapshot.weights is None else snapshot.weights.numpy())


def _refuse(runner: Any, config: Any) -> None:
    """Refuse settings under which rows could not be told apart."""
    parallel, model = config.parallel_config, config.model_config
    for wrong, line in (
        (
            not hasattr(runner, "input_batch") and not hasattr(runner, "prepare_inputs"),
            f"the model runner {type(runner).__name__} is not known: start vLLM with VLLM_USE_V2_MODEL_RUNNER=0, or install {', '.join(VLLM_RUN)}",
        ),
        (parallel.pipeline_parallel_size > 1, "pipeline parallelism splits the layers: use --tensor-parallel-size"),
        (parallel.data_parallel_size > 1, "data parallelism is not supported: start one server per replica"),
        (getattr(parallel, "use_ubatching", False), "dual-batch overlap is not supported: leave --enable-dbo out"),
        (
            config.speculative_config is not None,
            "speculative decoding is not supported: leave --speculative-config out",
        ),
        (_ignored_tie(runner.model, model.hf_text_config), IGNORED_TIE.format(type(runner.model).__name__)),
    ):
        if wrong:
            raise EngineError(line)


IGNORED_TIE = (
    "{} ignores tie_word_embeddings and the checkpoint has no lm_head.weight, so the head is random: save a copy of "
    "the embeddings as lm_head.weight and set tie_word_embeddings to false"
)


def _ignored_tie(model: Any, config: Any) -> bool:
    """Whether the head should be the embeddings and is not (in vLLM 0.30: gpt-oss and Qwen3-Next)."""
    import torch

    head = getattr(getattr(model, "lm_head", None), "weight", None)
    if not getattr(config, "tie_word_embeddings", False) or head is None:
        return False
    words = [m.weight for m in model.modules() if type(m).__name__ == "VocabParallelEmbedding"]
    return bool(words) and not any(head is w or (head.shape == w.shape and torch.equal(head, w)) for w in words)
