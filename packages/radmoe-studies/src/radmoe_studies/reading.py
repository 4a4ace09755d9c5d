"""Reads one problem for many requests. Requests that need the same windows share one reading of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.evaluation.methods import GradedProblem
from radmoe.selection.kernels import binary_jaccard, density_scores, weighted_jaccard
from radmoe.selection.layers import layer_subset
from radmoe.selection.readout import Anchors, Reading, read, same_anchors
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape

Bools = NDArray[np.bool_]

COSINE = "cosine"  # a kernel of studies alone: selection has weighted and binary
FEW = 8  # readings of a problem, above which its routing is worth loading as a whole
MEMORY = 2**28  # bytes of routing that may be loaded so


@dataclass(frozen=True)
class Request:
    """One way to compare the rollouts of a problem.

    The kernel is weighted, binary or cosine. With `k` only densities are kept, as levels; without it the whole matrix is.
    `seed` draws the windows of the random controls. Windows are cut at their rollout's end unless they must be `whole`.
    `at` is another readout whose anchors are used: those that fit the budget with its width, whatever `readout` reads
    from there on. `among` is another readout, too: only rollouts that it locates count.
    """

    readout: str
    kernel: str = "weighted"
    layers: str | None = None
    budget: int | None = None
    seed: int = 0
    k: int | None = None
    whole: bool = False
    at: str | None = None
    among: str | None = None

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise InputError(f"unknown kernel {self.kernel!r}: use one of {', '.join(KERNELS)}")


class ReadSource(NamedTuple):
    """One reading of a problem's windows, over all layers: what several requests may be computed from."""

    readout: str
    at: str | None
    among: str | None
    budget: int | None
    whole: bool
    seed: int
    binary: bool  # weights are left on disk

    @classmethod
    def of(cls, request: Request) -> ReadSource:
        binary = request.kernel == "binary"
        where = request.readout, request.at, request.among
        return cls(*where, request.budget, request.whole, request.seed, binary)


@dataclass(frozen=True)
class Reader:
    """Reads one problem for several requests; a function that can be sent to another process.

    Requests that differ only in layers, k, or a kernel on the same weights share one reading: the layers of a subset are
    columns of the route vectors of all.
    """

    requests: tuple[Request, ...]
    n: int

    @cached_property
    def sources(self) -> dict[ReadSource, list[int]]:
        """The readings that are needed, and the places of the requests that each serves."""
        sources: dict[ReadSource, list[int]] = {}
        for place, request in enumerate(self.requests):
            sources.setdefault(ReadSource.of(request), []).append(place)
        return sources

    def __call__(self, problem: GradedProblem) -> list[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        anchors: dict[ReadSource, Anchors] = {}
        out: list[Any] = [None] * len(self.requests)
        group = _in_memory(problem.group) if len(self.sources) > FEW else problem.group
        for source, places in self.sources.items():
            reading = _read(group, problem.setting.kind, source, anchors)
            start = np.full(self.n, -1, np.int32)
            start[: len(problem)] = [-1 if anchor is None else anchor.start for anchor in reading.anchors]
            similarities: dict[tuple[str, str | None], NDArray[np.float32]] = {}
            for place in places:
                request = self.requests[place]
                way = request.kernel, request.layers
                if way not in similarities:
                    similarities[way] = _similarity(reading.Z, group.shape, *way)
                out[place] = self._values(similarities[way], start >= 0, request.k), start
        return out

    def _values(self, S: NDArray[np.float32], located: Bools, k: int | None) -> NDArray[np.float32]:
        if k is not None:
            return density_scores(S, located, k).astype(np.float32)
        whole = np.full((self.n, self.n), np.nan, np.float32)
        whole[np.ix_(located, located)] = S
        return whole


def _in_memory(group: RolloutGroup) -> RolloutGroup:
    """The group with the routing of all its tokens in memory, unless that takes too much memory, or not all of it was kept."""
    size = sum(map(len, group.rollouts)) * group.shape.layers * group.shape.top_k * 4
    if size > MEMORY or any(rollout.positions is not None for rollout in group.rollouts):
        return group
    rollouts = [Rollout(rollout.token_ids, *rollout.rows(0, len(rollout))) for rollout in group.rollouts]
    return replace(group, rollouts=rollouts)


def _read(group: RolloutGroup, kind: Kind | None, source: ReadSource, anchors: dict[ReadSource, Anchors]) -> Reading:
    """Read the windows of a source. `anchors` has those of earlier ones, so that none is searched for twice."""
    known = _known(anchors, source)
    if source.among is not None:
        own = _anchors(group, kind, source._replace(among=None), anchors)
        others = _anchors(group, kind, source._replace(readout=source.among, at=None, among=None), anchors)
        known = [one if other is not None else None for one, other in zip(own, others, strict=True)]
    elif source.at is not None:
        known = _anchors(group, kind, source._replace(readout=source.at, at=None), anchors)
    reading = read(
        group,
        source.readout,
        kind,
        budget=source.budget,
        seed=source.seed,
        binary=source.binary,
        anchors=known,
        whole=source.whole,
    )
    anchors[source] = reading.anchors
    return reading


def _anchors(group: RolloutGroup, kind: Kind | None, source: ReadSource, anchors: dict[ReadSource, Anchors]) -> Anchors:
    known = _known(anchors, source)
    return _read(group, kind, source, anchors).anchors if known is None else known


def _known(anchors: Mapping[ReadSource, Anchors], source: ReadSource) -> Anchors | None:
    """The anchors of a source, if an earlier one has the same."""
    if not same_anchors(source.readout, source.readout):
        return None  # its anchors do not say what was read
    for other in (source, source._replace(binary=not source.binary)):
        if other in anchors:
            return anchors[other]
    if source.budget is not None or source.whole or source.at is not None or source.among is not None:
        return None  # which occurrence fits depends on the width
    for other, known in anchors.items():
        free = other.at is None and other.among is None and other.budget is None and not other.whole
        if free and same_anchors(other.readout, source.readout):
            return known
    return None


def _similarity(Z: NDArray[np.float32], shape: RouterShape, kernel: str, layers: str | None) -> NDArray[np.float32]:
    """The similarity of all rows of Z [n, L * E] by a kernel, over a subset of the layers."""
    if layers is not None:
        blocks = Z.reshape(len(Z), shape.layers, shape.experts)[:, layer_subset(layers, shape.layers)]
        Z = np.ascontiguousarray(blocks.reshape(len(Z), blocks.shape[1] * shape.experts))
    return KERNELS[kernel](Z)


def _cosine(Z: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of every two route vectors, whose entries are never negative."""
    unit = Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    S: NDArray[np.float32] = np.clip(unit @ unit.T, 0.0, 1.0)
    return S


KERNELS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "weighted": weighted_jaccard,
    "binary": binary_jaccard,
    COSINE: _cosine,
}
