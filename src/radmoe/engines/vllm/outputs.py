"""vLLM's answers as rollouts: its own routed experts, or what the plugin recorded."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.advice import VLLM_STOCK_KERNEL
from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import stock_rows
from radmoe.engines.vllm.plugin.payload import Routing
from radmoe.errors import EngineError
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape, Rows
from radmoe.vocab import Vocab

# The router and the vocabulary of each vLLM engine; a large vocabulary takes half a second to read
_MODELS: WeakKeyDictionary[Any, tuple[RouterLayout, Vocab]] = WeakKeyDictionary()


def from_vllm(
    output: Any,
    llm: Any,
    *,
    kind: Kind | None = None,
    problem_id: str | None = None,
    routing: dict[int, Routing] | None = None,
    topk_logprobs: int | None = None,
) -> RolloutGroup:
    """The group of a finished `RequestOutput`: its completions, in their order.

    `llm` is the `vllm.LLM` or `AsyncLLM` that made the output; the router and the vocabulary are read from it. `kind`
    says what an answer looks like. Without `routing` the ids are those that vLLM returned itself
    (`enable_return_routed_experts=True`), and the group has no weights. With `routing`
    (`radmoe.engines.vllm.plugin.payload.decode`) ids and weights are the plugin's; where it holds the rows of some
    tokens only, so does the rollout (`Rollout.positions`). Logprobs are kept where the request asked for them, the C
    largest of each token; `topk_logprobs` is C, and is read off the output where it is None.
    """
    layout, vocab = _model(llm)
    shape = layout.shape
    if not output.finished:
        raise EngineError(f"request {output.request_id} is not finished: pass its last RequestOutput")
    rollouts = []
    for completion in output.outputs:
        where = f"completion {completion.index} of request {output.request_id}"
        if routing is not None and completion.index not in routing:
            raise EngineError(f"{where} is not in the capture, which holds {sorted(routing)}")
        rows = None if routing is None else routing[completion.index]
        positions = None if rows is None else rows.positions(len(completion.token_ids))
        if rows is not None:
            shape = RouterShape(len(rows.layers), layout.shape.experts, layout.shape.top_k)
        rollouts.append(to_rollout(completion, where, layout, rows, positions, topk_logprobs))
    name = output.request_id if problem_id is None else problem_id
    return RolloutGroup(name, rollouts, shape, vocab, kind)


def to_rollout(
    completion: Any,
    where: str,
    layout: RouterLayout,
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
    if routing is not None:
        rows: Rows = routing.generated(len(tokens), positions)
    elif completion.routed_experts is None:
        raise EngineError(
            f"{where} has no routed experts: make the engine with enable_return_routed_experts=True "
            "(vllm serve --enable-return-routed-experts)"
        )
    else:
        raw = np.asarray(completion.routed_experts)
        kernel = f"an MoE kernel that routes by itself: {VLLM_STOCK_KERNEL}"
        try:
            rows = stock_rows(raw, None, len(tokens), layout, kernel), None
        except EngineError as error:
            raise EngineError(f"{where}: {error}") from None
    return Rollout(tokens, *rows, *_logprobs(completion, tokens, topk_logprobs), positions)


def _model(llm: Any) -> tuple[RouterLayout, Vocab]:
    """The router and the vocabulary of a vLLM engine, which are read once."""
    if llm not in _MODELS:
        config = getattr(llm, "llm_engine", llm).vllm_config.model_config
        layout = RouterLayout.of_config(config.hf_text_config, config.model)
        _MODELS[llm] = layout, Vocab.from_tokenizer(llm.get_tokenizer())
    return _MODELS[llm]


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
