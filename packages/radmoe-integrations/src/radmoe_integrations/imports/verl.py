"""verl's batches: what its rollout.skip writes (`gen_batch.dp`, `tq_batch.pt`), or a dict of the same tensors of torch.save.

`routed_experts` is int16: the row of an input position stands at its token's place, and everything else, with the last token of a
sequence, is zero. In a padded batch (`gen_batch.dp`) `prompts` [B, P] are padded on the left, `responses` [B, R] on the right,
`attention_mask` [B, P+R] says where tokens are, and `routed_experts` is [B, P+R, layers, K]. In a batch of verl's transfer queue
(`tq_batch.pt`) all of these are nested tensors without padding. `response_mask` says which tokens the model generated, `rm_scores` has
the reward at the last token, and `uid` groups the rollouts of a prompt (verl 0.9.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe_integrations.imports.found import Found, Raw, numbers
from radmoe_integrations.imports.pickled import FileSpan, PickledCall, plain, read_pickle
from radmoe_integrations.imports.tensors import FileTensor, Ragged, is_torch, read_torch

_PROTO = "verl.protocol.DataProto"
_REWARDS = ("rm_scores", "token_level_scores")
_WITHOUT = "run verl with actor_rollout_ref.rollout.enable_rollout_routing_replay=True"
_DIMENSIONS = {
    "prompts": 2,
    "responses": 2,
    "attention_mask": 2,
    "response_mask": 2,
    "rollout_log_probs": 2,
    "routed_experts": 4,
}


def rollouts(file: BinaryIO, where: Path, *, reward_key: str | None, stack: ExitStack) -> Iterator[Found]:
    """The rollouts of a batch. `reward_key` names another tensor or list of rewards than rm_scores.

    What is opened besides is left to `stack` to close, since tensors are read later.
    """
    content = _content(file, where, stack)
    if "routed_experts" not in content:
        raise InputError(f"{where} has no routed_experts: {_WITHOUT}")
    batch = _Batch(where, content, reward_key)
    for index in range(batch.size):
        yield batch.rollout(index)


def _content(file: BinaryIO, where: Path, stack: ExitStack) -> dict[str, Any]:
    """The tensors of a batch and what else it has, by name."""
    if is_torch(file):
        content = read_torch(file, where)
        if isinstance(content, dict) and isinstance(content.get("tensordict"), dict):  # of the transfer queue
            keys = content.get("keys")
            if not isinstance(keys, list) or not all(isinstance(key, str) and key.count("_") > 1 for key in keys):
                raise InputError(f"{where} has keys that are not verl's UID_SESSION_INDEX: it is damaged")
            content = content["tensordict"] | {"uid": [key.rsplit("_", 2)[0] for key in keys]}
        if not isinstance(content, dict):
            raise InputError(
                f"{where} holds no dict of tensors: pass verl's gen_batch.dp or tq_batch.pt, or dict(batch.batch)"
            )
        return content
    match read_pickle(file, where, {_PROTO}):
        case PickledCall(path=path, state=(FileSpan() | bytes() as packed, dict(others), _)) if path == _PROTO:
            pass
        case _:
            raise InputError(
                f"{where} is no DataProto of verl: pass its gen_batch.dp, or a dict of tensors of torch.save"
            )
    if isinstance(packed, bytes):
        file = stack.enter_context(TemporaryFile())  # noqa: SIM115
        file.write(packed)
        file.flush()
        packed = FileSpan(0, len(packed))
    inner = read_torch(file, where, start=packed.start, size=packed.size)
    if not isinstance(inner, dict):
        raise InputError(f"{where} holds a DataProto whose batch is no TensorDict: have verl write it again")
    return others | inner


class _Batch:
    """The tensors of a batch, whose shapes agree."""

    def __init__(self, where: Path, content: Mapping[str, Any], reward_key: str | None) -> None:
        self._where, self._content = where, content
        self._tensors = {name: content[name] for name in _DIMENSIONS if name in content}
        self._ragged = isinstance(content["routed_experts"], Ragged)
        needed = {"prompts", "responses", "routed_experts"} | (set() if self._ragged else {"attention_mask"})
        if missing := needed - self._tensors.keys():
            raise InputError(f"{where} has no tensor {min(missing)}: it is no batch of verl's rollouts")
        self.size = len(content["routed_experts"])
        for name, tensor in self._tensors.items():
            if self._ragged:
                sound = isinstance(tensor, Ragged) and len(tensor.values.shape) == _DIMENSIONS[name] - 1
            else:
                sound = isinstance(tensor, FileTensor) and len(tensor.shape) == _DIMENSIONS[name]
            if not sound or len(tensor) != self.size:
                raise InputError(f"{where} has a tensor {name} that is not one of {self.size} rollouts: it is damaged")
        self._width = 0 if self._ragged else self._tensors["prompts"].shape[1]
        self._rewards = self._named_rewards(reward_key)
        uid = plain(content.get("uid"))
        if isinstance(uid, list) and len(uid) == self.size and all(isinstance(one, str) for one in uid):
            self._uid: list[str | None] = list(uid)
        else:
            self._uid = [None] * self.size

    def _named_rewards(self, key: str | None) -> Any:
        """The tensor or list with a reward, or rewards to be summed, for each rollout; None without."""
        name = key or next((name for name in _REWARDS if name in self._content), None)
        if name is None:
            return None
        value = plain(self._content.get(name))
        if not isinstance(value, FileTensor | Ragged | np.ndarray | list) or len(value) != self.size:
            raise InputError(
                f"{self._where} has no rewards {name!r:.40} of {self.size} rollouts: name others with --reward-key"
            )
        return value

    def _reward(self, index: int) -> Any:
        if self._rewards is None:
            return None
        if isinstance(self._rewards, FileTensor) and len(self._rewards.shape) == 1:
            return float(self._rewards.read(index, index + 1)[0])
        value = self._rewards[index]
        if isinstance(value, FileTensor):
            value = value.read()
        return float(value.sum()) if isinstance(value, np.ndarray | np.generic) else plain(value)

    def rollout(self, index: int) -> Found:
        where = f"{self._where} rollout {index}"
        parts = {name: tensor[index] for name, tensor in self._tensors.items()}
        prompt, tokens = (parts[name].read() for name in ("prompts", "responses"))
        routing, first = parts["routed_experts"], 0
        length, padded = len(tokens), 0
        if not self._ragged:
            there = parts["attention_mask"].read().astype(bool)
            first, length = self._width - int(there[: self._width].sum()), int(there[self._width :].sum())
            padded = len(tokens) - length
            if len(there) != len(prompt) + len(tokens) or not there[first : self._width + length].all():
                raise InputError(
                    f"{where} is not padded on the left of its prompt and the right of its response alone: it is damaged"
                )
        prompt, tokens = prompt[first:], tokens[:length]
        if not len(prompt) or not length or len(routing) != first + len(prompt) + length + padded:
            raise InputError(
                f"{where} has {len(routing)} rows of routing for {len(prompt)} + {length} tokens: there must be one per token"
            )
        last = first + len(prompt) + length - 1
        if (padded or self._ragged) and routing.read(last, last + 1).any():
            raise InputError(
                f"{where} has routing at its last token, through which no pass went: its rows are shifted against its tokens"
            )
        return Found(
            where,
            self._uid[index],
            numbers(prompt, where, "prompts", np.int32),
            numbers(tokens, where, "responses", np.int32),
            partial(_rows, routing, first + len(prompt)),
            self._mask(parts.get("response_mask"), length, where),
            self._logprobs(parts.get("rollout_log_probs"), length, where),
            reward=self._reward(index),
        )

    def _logprobs(self, values: FileTensor | None, length: int, where: str) -> NDArray[np.float32] | None:
        logprobs = None if values is None else numbers(values.read(0, length), where, "rollout_log_probs", np.float32)
        if logprobs is not None and len(logprobs) != length:
            raise InputError(f"{where} has {len(logprobs)} rollout_log_probs and a response of {length}: it is damaged")
        return logprobs

    def _mask(self, mask: FileTensor | None, length: int, where: str) -> NDArray[np.bool_] | None:
        """Which tokens of the response the model generated; None for all."""
        if mask is None:
            return None
        generated = mask.read(0, length).astype(bool)
        if len(generated) != length:
            raise InputError(
                f"{where} has a response_mask of {len(generated)} and a response of {length}: it is damaged"
            )
        return None if generated.all() else generated


def _rows(routing: FileTensor, behind: int, start: int, stop: int) -> tuple[Raw, None]:
    """The rows that predict tokens [start, stop) of the response, which begins at row `behind`: those of the tokens before them."""
    return routing.read(behind - 1 + start, behind - 1 + stop), None
