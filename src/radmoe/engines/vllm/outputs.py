"""vLLM's answers as rollouts: its own routed experts, or what the plugin recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import VLLM_STOCK_KERNEL
from radmoe.engines.vllm.plugin.payload import Routing
from radmoe.errors import EngineError
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape, Rows
from radmoe.vocab import Vocab


def from_vllm(
    output: Any,
    *,
    vocab: Vocab | Any,
    shape: RouterShape,
    kind: Kind | None = None,
    problem_id: str | None = None,
    routing: dict[int, Routing] | None = None,
    topk_logprobs: int | None = None,
) -> RolloutGroup:
    """The group of a finished `RequestOutput`: its completions, in their order.

    `vocab` is a Vocab or a tokenizer, such as `llm.get_tokenizer()`. `kind` says what an answer looks like.
    `shape.layers` counts the layers that have experts. Without `routing` the ids are those that vLLM returned itself
    (`enable_return_routed_experts=True`), and the group has no weights. With `routing`
    (`radmoe.engines.vllm.plugin.payload.decode`) ids and weights are the plugin's; where it holds the rows of some
    tokens only, so does the rollout (`Rollout.positions`). Logprobs are kept where the request asked for them, the C
    largest of each token; `topk_logprobs` is C, and is read off the output where it is None.
    """
    if not output.finished:
        raise EngineError(f"request {output.request_id} is not finished: pass its last RequestOutput")
    rollouts = []
    for completion in output.outputs:
        where = f"completion {completion.index} of request {output.request_id}"
        if routing is not None and completion.index not in routing:
            raise EngineError(f"{where} is not in the capture, which holds {sorted(routing)}")
        rows = None if routing is None else routing[completion.index]
        positions = None if rows is None else rows.positions(len(completion.token_ids))
        rollouts.append(to_rollout(completion, where, shape, rows, positions, topk_logprobs))
    name = output.request_id if problem_id is None else problem_id
    return RolloutGroup(name, rollouts, shape, Vocab.of(vocab), kind)


def to_rollout(
    completion: Any,
    where: str,
    shape: RouterShape,
    routing: Routing | None,
    positions: NDArray[np.int32] | None,
    topk_logprobs: int | None,
) -> Rollout:
    """The rollout of one finished completion.

    Its rows are vLLM's own where `routing` is None, else those of `routing` at `positions` (None: of all tokens).
    `where` names the completion in errors.
    """
    if completion.finish_reason == "abort":
        raise EngineError(f"{where} was aborted: it has no end, and its routing is not kept")
    tokens = np.asarray(completion.token_ids, np.int32)
    if routing is None:
        rows: Rows = (stock_rows(completion.routed_experts, len(tokens), shape, where), None)
    else:
        rows = routing.generated(len(tokens), positions)
    return Rollout(tokens, *rows, *_logprobs(completion, tokens, topk_logprobs), positions)


def stock_rows(rows: Any, tokens: int, shape: RouterShape, where: str) -> NDArray[np.int16]:
    """R(t) [T, L, K] from vLLM's routed experts, which have one row per input position up to the last token but one.

    A layer without experts has zeros there, and is left out. Zeros where experts should be are an EngineError: kernels
    that route by themselves and reused slots leave such rows.
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
            f"layers have experts: an MoE kernel that routes by itself; {VLLM_STOCK_KERNEL}"
        )
    return ids[:, routed]


def _logprobs(completion: Any, tokens: NDArray[np.int32], most: int | None) -> tuple[Any, Any]:
    """Logprobs of the sampled tokens [T] and the C largest [T, C], of the raw logits; None where there are none.

    vLLM lists the C largest and the sampled token, so that a step has one more where the sampled token is not among
    the largest.
    """
    if not completion.logprobs:
        return None, None
    chosen = [step[t] for step, t in zip(completion.logprobs, tokens.tolist(), strict=True)]
    largest = [len(step) - (c.rank > len(step)) for step, c in zip(completion.logprobs, chosen, strict=True)]
    most = min(largest) if most is None else min(most, *largest)
    ranked = [sorted((p.logprob for p in step.values()), reverse=True)[:most] for step in completion.logprobs]
    return np.array([c.logprob for c in chosen], np.float32), np.array(ranked, np.float32)
