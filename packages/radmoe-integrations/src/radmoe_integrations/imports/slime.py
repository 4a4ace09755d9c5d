"""slime's rollouts, as `--save-debug-rollout-data` writes them.

One file per rollout step: `torch.save({"rollout_id", "samples": [...]})`, each sample a dict with `tokens` (prompt and response),
`response_length`, `group_index`, `reward`, `loss_mask`, `rollout_log_probs`, `status` and `rollout_routed_experts`, int32
[T-1, layers, K] of T tokens: row p is that of input position p. Layers without experts are zeros (slime 624b824, 21 August 2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from radmoe.errors import InputError
from radmoe_integrations.imports.found import Found, Raw, Unusable, numbers
from radmoe_integrations.imports.pickled import plain
from radmoe_integrations.imports.tensors import FileTensor, read_torch

_REASONS = {"completed": "stop", "truncated": "length"}
WITHOUT = "slime was not told to return routing: run it with --use-rollout-routing-replay"


def rollouts(file: BinaryIO, where: Path, *, reward_key: str | None) -> Iterator[Found | tuple[str, Unusable]]:
    """The samples of a file; one without routing comes as its place and the reason."""
    content = read_torch(file, where)
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list) or not samples or not all(isinstance(sample, dict) for sample in samples):
        raise InputError(f"{where} is no rollout data of slime (a dict with samples): say which format it is")
    for number, sample in enumerate(samples):
        place = f"{where} sample {number}"
        try:
            yield _found(sample, place, reward_key)
        except Unusable as error:
            yield place, error


def _found(sample: dict[str, Any], where: str, reward_key: str | None) -> Found:
    status = sample.get("status")
    if status not in _REASONS:
        raise Unusable(f"their status is {status!r:.30}, not completed or truncated")
    tokens, length = numbers(sample.get("tokens"), where, "tokens", np.int32), sample.get("response_length")
    if type(length) is not int or not 0 < length < len(tokens):
        raise InputError(f"{where} has a response of {length!r:.30} tokens and {len(tokens)} in all: it is damaged")
    prompt = len(tokens) - length
    routing = plain(sample.get("rollout_routed_experts"))
    if routing is None:
        raise Unusable(WITHOUT)
    if not isinstance(routing, FileTensor | np.ndarray) or len(routing.shape) != 3 or routing.dtype.kind not in "iu":
        raise InputError(f"{where} has routing that is no integer tensor of [tokens - 1, layers, K]: it is damaged")
    mask = sample.get("loss_mask")
    generated = None if mask is None else numbers(mask, where, "loss_mask", np.int32).astype(bool)
    if generated is not None:
        if len(generated) != length:
            raise InputError(f"{where} has a loss_mask of {len(generated)} and a response of {length}: it is damaged")
        if generated.all():
            generated = None
    last = length if generated is None or not generated.any() else int(np.flatnonzero(generated)[-1]) + 1
    if routing.shape[0] not in (len(tokens) - 1, prompt + last - 1):
        raise InputError(
            f"{where} has {routing.shape[0]} rows of routing for {len(tokens)} tokens, and there must be {len(tokens) - 1}, one per "
            "input position: its rows cannot be told apart"
        )
    sampled = sample.get("rollout_log_probs")
    logprobs = None if sampled is None else numbers(sampled, where, "rollout_log_probs", np.float32)
    if logprobs is not None and len(logprobs) != length:
        raise InputError(f"{where} has {len(logprobs)} rollout_log_probs and a response of {length}: it is damaged")
    group = sample.get("group_index")
    if group is not None and type(group) is not int:
        raise InputError(f"{where} has the group_index {group!r:.30}, which must be a whole number")
    return Found(
        where,
        None if group is None else str(group),
        tokens[:prompt],
        tokens[prompt:],
        partial(_rows, routing, prompt),
        generated,
        logprobs,
        reward=_reward(plain(sample.get("reward")), where, reward_key),
        reason=_REASONS[status],
    )


def _rows(routing: FileTensor | Raw, prompt: int, start: int, stop: int) -> tuple[Raw, None]:
    """The rows that predict tokens [start, stop) of the response: those of the positions before them."""
    first, last = prompt - 1 + start, prompt - 1 + stop
    return (routing.read(first, last) if isinstance(routing, FileTensor) else routing[first:last]), None


def _reward(reward: Any, where: str, key: str | None) -> Any:
    if isinstance(reward, dict):
        if key not in reward:
            raise InputError(
                f"{where} has the rewards {', '.join(map(str, reward))[:80]}: name one of them with --reward-key"
            )
        return plain(reward[key])
    return reward
