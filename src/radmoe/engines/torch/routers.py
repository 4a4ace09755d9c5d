"""Finding a model's routers, and recording what they choose.

In transformers 5.22 and later every MoE router answers (logits [N, E], weights [N, K], ids [N, K]),
N the positions of the batch laid flat. A model class names its router class under
`_can_record_outputs["router_logits"]`. Both are checked on a probe pass before anything is captured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from radmoe.errors import EngineError
from radmoe.types import RouterShape

# Families whose routers take the K largest logits and weigh them by a softmax over those, in every version that was run.
TOP_K_FAMILIES = frozenset({"gpt_oss", "mixtral", "olmoe", "qwen2_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next"})
_WEIGHT_TOLERANCE = 0.01  # of weights in bfloat16
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


class _Pass(threading.local):
    """What was recorded in this thread; batches that run side by side share one model and its hooks."""

    on: bool = False
    calls: list[tuple[nn.Module, Any]]


class RouterRecorder:
    """Hooks on every router, which hold what the routers chose in one pass until `take` is called.

    A hook only keeps references; tensors are stacked once per pass.
    """

    def __init__(self, model: nn.Module) -> None:
        self._pass = _Pass()
        self._routers = find_routers(model)
        for router in self._routers:
            router.register_forward_hook(self._hook)

    def _hook(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._pass.on:
            self._pass.calls.append((module, output))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the passes of this thread inside the context; those outside (a prompt's prefill) are not recorded."""
        self._pass.calls, self._pass.on = [], True
        try:
            yield
        finally:
            self._pass.on = False

    def probe(self, *, check: bool = False) -> RouterShape:
        """The common shape of the routers, from a recorded pass; EngineError for routers that answer otherwise.

        With `check`, ids must also be the largest logits, and weights their softmax.
        """
        calls = self._pass.calls
        if {id(router) for router, _ in calls} != {id(router) for router in self._routers}:
            raise EngineError(_bypassed(len(calls), len(self._routers)))
        self._routers = [router for router, _ in calls]  # the order of the layers is the order they run in
        shapes = {_answer_shape(router, output) for router, output in calls}
        if len(shapes) > 1:
            raise EngineError(
                f"the layers' routers differ in (experts, top-k): {sorted(shapes)}; a pool holds one shape"
            )
        for router, output in calls if check else ():
            _check_top_k(type(router).__name__, *output)
        experts, top_k = shapes.pop()
        return RouterShape(len(calls), experts, top_k)

    def take(self) -> tuple[Tensor, Tensor]:
        """Expert ids int16 and weights float32 of the recorded pass, [L, N, K] each.

        Weights are divided by their sum over K, which removes a scaling factor (DeepSeek) too.
        """
        calls, self._pass.calls = self._pass.calls, []
        if [router for router, _ in calls] != self._routers:
            raise EngineError(_bypassed(len(calls), len(self._routers)))
        ids = torch.stack([output[2] for _, output in calls])
        weights = torch.stack([output[1] for _, output in calls]).float()
        return ids.to(torch.int16), weights / weights.sum(-1, keepdim=True)


def find_routers(model: nn.Module) -> list[nn.Module]:
    """The router modules of a model, by the classes it names itself."""
    targets = [target for module in model.modules() for target in _targets(module)]
    routers = [
        module
        for name, module in model.named_modules()
        if any(isinstance(module, kind) and name.endswith(suffix or "") for kind, suffix in targets)
    ]
    if routers:
        return routers
    config: Any = getattr(model, "config", None)
    text = None if config is None else config.get_text_config()
    kind = getattr(config, "model_type", type(model).__name__)
    if any((getattr(text, name, None) or 0) > 1 for name in _EXPERT_COUNTS):
        raise EngineError(f"{kind} has experts, but no router this engine knows: capture it with vLLM or llama.cpp")
    raise EngineError(f"{kind} is not a mixture-of-experts model: without a router there is no routing to capture")


def _targets(module: nn.Module) -> list[tuple[type[nn.Module], str | None]]:
    """Router classes a model class names, each with what the names of its modules must end in."""
    entry = (getattr(module, "_can_record_outputs", None) or {}).get("router_logits")
    entries: list[Any] = entry if isinstance(entry, list) else [] if entry is None else [entry]
    return [(getattr(e, "target_class", e), getattr(e, "layer_name", None)) for e in entries]


def _answer_shape(router: nn.Module, output: Any) -> tuple[int, int]:
    """(E, K) of one router's answer; EngineError where it is not (logits, weights, ids)."""
    kind = type(router).__name__
    if not (isinstance(output, tuple) and len(output) == 3 and all(isinstance(x, Tensor) for x in output)):
        raise EngineError(f"{kind} does not answer (logits, weights, ids): this engine does not know this router")
    logits, weights, ids = output
    fits = (
        logits.ndim == weights.ndim == ids.ndim == 2
        and len(logits) == len(ids)
        and weights.shape == ids.shape
        and not ids.is_floating_point()
        and bool((ids >= 0).all() and (ids < logits.shape[1]).all())
        and bool((ids.sort(-1).values.diff(dim=-1) != 0).all())
        and bool((weights >= 0).all() and (weights.float().sum(-1) > 0).all())
    )
    if not fits:
        shapes = " ".join(str(list(x.shape)) for x in output)
        raise EngineError(
            f"{kind} answers {shapes}, not logits [N, E], weights [N, K] >= 0 and K distinct ids [N, K]: "
            "this engine does not know this router"
        )
    return int(logits.shape[1]), int(ids.shape[1])


def _check_top_k(kind: str, logits: Tensor, weights: Tensor, ids: Tensor) -> None:
    logits, weights = logits.float(), weights.float()
    largest = logits.topk(ids.shape[1]).values.sort(-1).values
    chosen = logits.gather(1, ids)
    shares = weights / weights.sum(-1, keepdim=True)
    same = torch.equal(chosen.sort(-1).values, largest)
    if not same or bool((shares - chosen.softmax(-1)).abs().max() > _WEIGHT_TOLERANCE):
        raise EngineError(
            f"{kind} of the installed transformers does not choose the largest logits, or weighs them in another way: "
            "install a version that was tried, pip install 'transformers<5.24'"
        )


def _bypassed(ran: int, routers: int) -> str:
    return (
        f"{ran} of {routers} routers ran in a pass: a kernel or a compiled graph routes around them; "
        "load the model without use_kernels and torch.compile"
    )
