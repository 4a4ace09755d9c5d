"""vLLM's answers as rollouts: its own routed experts, or what the plugin recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.vllm.plugin.payload import Routing
from radmoe.errors import EngineError
from radmoe.types import Rollout, RolloutGroup, RouterShape
from radmoe.vocab import Vocab


def from_vllm(
    output: Any,
    *,
    vocab: Vocab,
    shape: RouterShape,
    problem_id: str | None = None,
    routing: dict[int, Routing] | None = None,
    topk_logprobs: int | None = None,
) -> RolloutGroup:
    """The group of a finished `RequestOutput`: its completions, in their order.

    Without `routing` the ids are those vLLM returned itself (`enable_return_routed_experts=True`) and the
    group has no weights; with it (`vllm_plugin.payload.decode`), ids and weights are the plugin's. Logprobs
    are kept where the request asked for them, the C largest of each token: `topk_logprobs` says what C was, else it
    is seen from the output. `shape.layers` counts the layers that have experts.
    """
    if not output.finished:
        raise EngineError(f"request {output.request_id} is not finished: pass its last RequestOutput")
    rollouts = [_rollout(output.request_id, c, shape, routing, topk_logprobs) for c in output.outputs]
    return RolloutGroup(output.request_id if problem_id is None else problem_id, rollouts, shape, vocab)


def _rollout(
    request: str, completion: Any, shape: RouterShape, routing: dict[int, Routing] | None, most: int | None
) -> Rollout:
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
    return Rollout(tokens, ids, weights, *_logprobs(completion, tokens, most))


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


def _logprobs(completion: Any, tokens: NDArray[np.int32], most: int | None) -> tuple[Any, Any]:
    """Logprobs of the sampled tokens [T] and the C largest [T, C], of the raw logits; None where not asked for.

    vLLM lists the C largest and the sampled token, which is one more where it is none of them.
    """
    if not completion.logprobs:
        return None, None
    chosen = [step[t] for step, t in zip(completion.logprobs, tokens.tolist(), strict=True)]
    largest = [len(step) - (c.rank > len(step)) for step, c in zip(completion.logprobs, chosen, strict=True)]
    most = min(largest) if most is None else min(most, *largest)
    ranked = [sorted((p.logprob for p in step.values()), reverse=True)[:most] for step in completion.logprobs]
    return np.array([c.logprob for c in chosen], np.float32), np.array(ranked, np.float32)
