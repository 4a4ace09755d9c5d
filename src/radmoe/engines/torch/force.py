"""Passes over given continuations of one prompt, many at once: how replay gets routing and log-probabilities.

The prompt is passed once, and its cache is given to every row of a batch. Rows are padded on their right, which no real
position sees: attention and linear attention look to the left alone, and a router looks at one position. A long batch
is passed piece by piece over its cache, so that logits take little memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import DynamicCache

from radmoe.engines.base import Forced
from radmoe.engines.torch.kv_cache import rows_cache
from radmoe.engines.torch.routers import RouterRecorder
from radmoe.engines.torch.topk import largest

_POSITIONS = {"cpu": 1024, "cuda": 65536}  # of a pass, padding included: on a CPU more leave its cache
LOGITS_BYTES = 256 << 20  # of a pass


@torch.inference_mode()
def force(
    model: Any, recorder: RouterRecorder, prompt: Sequence[int], tails: Sequence[Sequence[int]], *, topk_logprobs: int
) -> list[Forced]:
    """The routing, and with `topk_logprobs` the log-probabilities, of every token of the continuations of a prompt."""
    prefix = _prefix(model, tuple(prompt[:-1]))
    forced: dict[int, Forced] = {}
    for members in _batches([len(tail) for tail in tails], _POSITIONS.get(model.device.type, 1024)):
        batch = _Batch(model, recorder, prompt, [tails[i] for i in members], prefix, topk_logprobs)
        forced |= zip(members, batch.run(), strict=True)
    return [forced[i] for i in range(len(tails))]


def _prefix(model: Any, tokens: tuple[int, ...]) -> DynamicCache | None:
    """The cache of a prompt without its last token; None if that is all of it."""
    if not tokens:
        return None
    cache = DynamicCache(config=model.config)
    model(
        input_ids=torch.tensor([tokens], device=model.device), past_key_values=cache, use_cache=True, logits_to_keep=1
    )
    return cache


def _batches(lengths: Sequence[int], positions: int) -> Iterator[list[int]]:
    """Batches of rows of similar length, each with a bounded number of positions, padding included."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        size = max(positions // max(lengths[order[0]], 1), 1)
        yield order[:size]
        order = order[size:]


class _Batch:
    def __init__(
        self,
        model: Any,
        recorder: RouterRecorder,
        prompt: Sequence[int],
        tails: Sequence[Sequence[int]],
        prefix: DynamicCache | None,
        topk_logprobs: int,
    ) -> None:
        self._model, self._recorder, self._top = model, recorder, topk_logprobs
        self._lengths = [len(tail) for tail in tails]
        width, device = max(self._lengths), model.device
        self._tokens = torch.zeros(len(tails), width, dtype=torch.long, device=device)
        for row, tail in enumerate(tails):
            self._tokens[row, : len(tail)] = torch.as_tensor(np.asarray(tail, np.int64))
        last = torch.full((len(tails), 1), prompt[-1], device=device)
        self._inputs = torch.cat([last, self._tokens[:, :-1]], 1)
        self._first = len(prompt) - 1  # the position of the first input
        self._cache = rows_cache(model.config)
        rows = torch.arange(len(tails), device=device)
        for i, layer in enumerate(self._cache.layers):
            layer.put(rows, len(tails), None if prefix is None else prefix.layers[i])

    def run(self) -> list[Forced]:
        width = self._inputs.shape[1]
        piece = width
        if self._top:
            row_bytes = 4 * int(self._model.config.get_text_config().vocab_size)
            piece = max(LOGITS_BYTES // (row_bytes * len(self._lengths)), 1)
        parts = [self._pass(start, min(start + piece, width)) for start in range(0, width, piece)]
        columns = [np.concatenate(column, 1) for column in zip(*parts, strict=True)]
        return [Forced(*(column[row, :length] for column in columns)) for row, length in enumerate(self._lengths)]

    def _pass(self, start: int, stop: int) -> tuple[NDArray[Any], ...]:
        """Columns [B, stop - start, ...]: expert ids and weights, and with logprobs the given token's and the largest."""
        inputs = self._inputs[:, start:stop]
        positions = torch.arange(self._first + start, self._first + stop, device=inputs.device)
        with self._recorder.recording():
            output = self._model(
                input_ids=inputs,
                position_ids=positions.expand(len(inputs), -1),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=0 if self._top else 1,
            )
        routing = [x.view(x.shape[0], *inputs.shape, -1).permute(1, 2, 0, 3) for x in self._recorder.take()]
        columns = [x.cpu().numpy() for x in routing]
        if self._top:
            columns += self._logprobs(output.logits, self._tokens[:, start:stop])
        return tuple(columns)

    def _logprobs(self, logits: Tensor, tokens: Tensor) -> list[NDArray[Any]]:
        rows = logits.flatten(0, 1).float()
        whole = rows.logsumexp(-1, keepdim=True)
        sampled = rows.gather(1, tokens.reshape(-1, 1)) - whole
        top = largest(rows, min(self._top, rows.shape[1])) - whole
        return [x.reshape(*tokens.shape, *x.shape[1:]).cpu().numpy() for x in (sampled[:, 0], top)]
