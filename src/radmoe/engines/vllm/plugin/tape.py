"""Device buffers that the routers write to.

A tap copies what a router answered into a row block [L, N, K] that was allocated before CUDA graphs are
recorded. A copy is a device operation, so a graph that was recorded with it repeats it at every replay,
when no Python runs. `arm` marks the rows of the next pass as unwritten, and rows that no router wrote still have that
mark when `read` hands them over. So a kernel that routes by itself is noticed; its rows are never taken for zeros.

On a CPU, where Python runs in every pass, a tap keeps the router's answer itself and `read` joins the layers: two operations
a pass instead of two copies a layer. A router that torch.compile traces copies to the buffers there too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

UNWRITTEN = -1


class Snapshot(NamedTuple):
    """Ids [R, L, K] and weights float16 of one pass on their way to the host; `ready` tells when they are there."""

    ids: Tensor
    weights: Tensor | None
    ready: Any  # torch.cuda.Event | None

    def arrived(self) -> bool:
        return self.ready is None or bool(self.ready.query())

    def wait(self) -> None:
        if self.ready is not None:
            self.ready.synchronize()


class Tape:
    """Buffers for up to `rows` positions of one pass."""

    def __init__(self, layers: int, rows: int, top_k: int, *, weights: bool, device: Any) -> None:
        self.rows = rows
        self.idle = False  # then taps write nothing; CUDA graphs do what they did when they were recorded
        self._ids = torch.full((layers, rows, top_k), UNWRITTEN, dtype=torch.int16, device=device)
        self._weights = torch.zeros((layers, rows, top_k), dtype=torch.float32, device=device) if weights else None
        self._keeps = self._ids.device.type == "cpu"
        self._kept: dict[int, tuple[Tensor | None, Tensor]] = {}  # weights and ids of the last pass, by layer

    def write(self, layer: int, weights: Tensor | None, ids: Tensor) -> None:
        """Record what one layer chose, both [N, K]; weights may be missing where the tape has none."""
        if self.idle:
            return
        if self._keeps and not torch.compiler.is_compiling():
            self._kept[layer] = weights, ids
        else:
            self._copy(layer, weights, ids)

    def _copy(self, layer: int, weights: Tensor | None, ids: Tensor) -> None:
        rows = min(len(ids), self.rows)
        self._ids[layer, :rows].copy_(ids[:rows])
        if self._weights is not None:
            assert weights is not None
            self._weights[layer, :rows].copy_(weights[:rows])

    def arm(self, rows: int) -> None:
        """Mark the rows of the next pass, of this many positions, as unwritten."""
        self._ids[:, :rows].fill_(UNWRITTEN)
        self._kept.clear()

    def read(self, source: Any) -> Snapshot:
        """The rows `source` (ascending) of the last pass. Weights are divided by their sum over K, which removes a scaling factor too."""
        lengths = {len(ids) for _, ids in self._kept.values()}
        if len(self._kept) == len(self._ids) and len(lengths) == 1 and source[-1] < min(lengths):
            return self._join(source)
        for layer, (layer_weights, layer_ids) in self._kept.items():
            self._copy(layer, layer_weights, layer_ids)
        index = torch.from_numpy(source).to(self._ids.device, non_blocking=True)
        ids = self._ids.index_select(1, index).transpose(0, 1)
        weights = None
        if self._weights is not None:
            mass = self._weights.index_select(1, index)
            weights = (mass / mass.sum(-1, keepdim=True)).to(torch.float16).transpose(0, 1)
        if ids.device.type == "cpu":
            return Snapshot(ids, weights, None)
        ids = _to_host(ids)
        weights = None if weights is None else _to_host(weights)
        ready: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
        return Snapshot(ids, weights, ready)

    def _join(self, source: Any) -> Snapshot:
        """The rows `source` of answers that were kept for every layer."""
        answers = [self._kept[layer] for layer in range(len(self._ids))]
        ids = torch.stack([ids for _, ids in answers], 1)
        every = len(source) == len(ids)
        weights = None
        if self._weights is not None:
            mass = torch.stack([weights for weights, _ in answers if weights is not None], 1)
            mass = mass if every else mass[source]
            weights = mass.div_(mass.sum(-1, keepdim=True)).to(torch.float16)
        return Snapshot(ids if every else ids[source], weights, None)


def _to_host(tensor: Tensor) -> Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
