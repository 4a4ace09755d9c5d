"""verl's batches: `gen_batch.dp`, which its rollout.skip writes, or a dict of the same tensors that torch.save wrote.

`prompts` [B, P] are padded on the left and `responses` [B, R] on the right, `attention_mask` [B, P+R] says where tokens are, and
`response_mask` [B, R] which of the response the model generated. `routed_experts` is int16 [B, P+R, layers, K]: the row of an input
position stands at its token's place, and everything else, with the last token of a sequence, is zero. `rm_scores` [B, R] has the
reward at the last token. `uid` groups the rollouts of a prompt (verl 0.9.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from radmoe.errors import InputError
from radmoe_integrations.imports.found import Found, Raw
from radmoe_integrations.imports.pickled import Call, Span, plain, read_pickle
from radmoe_integrations.imports.tensors import FileTensor, Window, is_torch, read_torch

_PROTO = "verl.protocol.DataProto"
_REWARDS = ("rm_scores", "token_level_scores")
WITHOUT = "has no routed_experts: run verl with actor_rollout_ref.rollout.enable_rollout_routing_replay=True"


def rollouts(file: BinaryIO, where: Path, *, reward_key: str | None, stack: ExitStack) -> Iterator[Found]:
    """The rollouts of a batch. `reward_key` names another tensor or list of rewards than rm_scores.

    What is opened besides is left to `stack` to close, since tensors are read later.
    """
    tensors, others = _batch(file, where, stack)
    if "routed_experts" not in tensors:
        raise InputError(f"{where} {WITHOUT}")
    batch = _Batch(where, tensors, others, reward_key)
    for index in range(len(batch)):
        yield batch.rollout(index)


def _batch(file: BinaryIO, where: Path, stack: ExitStack) -> tuple[dict[str, FileTensor], dict[str, Any]]:
    """The tensors of a batch, and what else it has by name."""
    if is_torch(file):
        content = read_torch(file, where)
        if not isinstance(content, dict):
            raise InputError(f"{where} holds no dict of tensors: save dict(batch.batch), or pass verl's gen_batch.dp")
        return {name: value for name, value in content.items() if isinstance(value, FileTensor)}, content
    content = read_pickle(file, where, {_PROTO})
    match content:
        case Call(path=path, state=(Span() | bytes() as packed, dict(others), _)) if path == _PROTO:
            pass
        case _:
            raise InputError(f"{where} is no DataProto of verl: pass its gen_batch.dp, or a dict of tensors of torch.save")
    if isinstance(packed, bytes):
        file = stack.enter_context(TemporaryFile())
        file.write(packed)
        file.flush()
        packed = Span(0, len(packed))
    inner = read_torch(file, where, start=packed.start, size=packed.size)
    if not isinstance(inner, dict):
        raise InputError(f"{where} holds a DataProto whose batch is no TensorDict: have verl write it again")
    return inner, others


class _Batch:
    """The tensors of a batch, with shapes that agree."""

    def __init__(self, where: Path, tensors: dict[str, FileTensor], others: dict[str, Any], reward_key: str | None) -> None:
        self.where, self.tensors, self.others = where, tensors, others
        prompts, responses, routing = (self._tensor(name, n) for name, n in (("prompts", 2), ("responses", 2), ("routed_experts", 4)))
        self.size, self.prompt, self.response = prompts.shape[0], prompts.shape[1], responses.shape[1]
        length = self.prompt + self.response
        for tensor, shape in (
            (responses, (self.size,)),
            (self._tensor("attention_mask", 2), (self.size, length)),
            (routing, (self.size, length)),
            (tensors.get("response_mask"), (self.size, self.response)),
            (tensors.get("rollout_log_probs"), (self.size, self.response)),
        ):
            if tensor is not None and tensor.shape[: len(shape)] != shape:
                raise InputError(f"{where} has a tensor of shape {tensor.shape} where {shape} is of the batch: it is damaged")
        self.routing = routing
        self.rewards = self._rewards(reward_key)
        uid = plain(others.get("uid"))
        if uid is not None and (not isinstance(uid, list) or len(uid) != self.size or not all(isinstance(u, str) for u in uid)):
            raise InputError(f"{where} has a uid that is no list of {self.size} texts: it is damaged")
        self.uid = uid

    def __len__(self) -> int:
        return self.size

    def _tensor(self, name: str, dimensions: int) -> FileTensor:
        tensor = self.tensors.get(name)
        if tensor is None or len(tensor.shape) != dimensions or tensor.dtype.kind not in "iub":
            raise InputError(f"{self.where} has no tensor {name} of {dimensions} dimensions: it is no batch of verl's rollouts")
        return tensor

    def _rewards(self, key: str | None) -> Any:
        """The reward of each rollout, in a list, or the tensor [B, R] whose sums they are; None without."""
        name = key or next((name for name in _REWARDS if name in self.tensors), None)
        if name is None:
            return None
        value = self.tensors.get(name, plain(self.others.get(name)))
        shape = value.shape if isinstance(value, FileTensor | np.ndarray) else (len(value),) if isinstance(value, list) else ()
        if shape not in ((self.size,), (self.size, self.response)):
            raise InputError(f"{self.where} has no rewards {name!r:.40} of {self.size} rollouts: name others with --reward-key")
        return value

    def reward(self, index: int) -> Any:
        if self.rewards is None:
            return None
        value = self.rewards[index]
        if isinstance(value, FileTensor):
            value = float(value.read().sum()) if value.shape else float(self.rewards.read(index, index + 1)[0])
        return plain(value) if not isinstance(value, np.ndarray | np.generic) else float(value.sum())

    def rollout(self, index: int) -> Found:
        where = f"{self.where} rollout {index}"
        there = self.tensors["attention_mask"][index].read().astype(bool)
        before, behind = there[: self.prompt], there[self.prompt :]
        left, length = self.prompt - int(before.sum()), int(behind.sum())
        if not before[left:].all() or not behind[:length].all() or left == self.prompt or not length:
            raise InputError(f"{where} is not padded on the left of its prompt and the right of its response alone: it is damaged")
        mask = self.tensors.get("response_mask")
        generated = None if mask is None else mask[index].read()[:length].astype(bool)
        logprobs = self.tensors.get("rollout_log_probs")
        routing = self.routing[index]
        last = self.prompt + length - 1
        if length < self.response and routing.read(last, last + 1).any():
            raise InputError(
                f"{where} has routing at its last token, through which no pass went: its rows are shifted against its tokens"
            )
        return Found(
            where,
            None if self.uid is None else self.uid[index],
            self.tensors["prompts"][index].read(left).astype(np.int32),
            self.tensors["responses"][index].read(0, length).astype(np.int32),
            partial(self._rows, routing),
            None if generated is None or generated.all() else generated,
            None if logprobs is None else logprobs[index].read(0, length).astype(np.float32),
            reward=self.reward(index),
        )

    def _rows(self, routing: FileTensor, start: int, stop: int) -> tuple[Raw, None]:
        """The rows that predict tokens [start, stop) of the response: those of the positions before them."""
        return routing.read(self.prompt - 1 + start, self.prompt - 1 + stop), None
