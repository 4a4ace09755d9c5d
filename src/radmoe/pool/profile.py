"""Profiles: a pool keeps everything of each rollout, or only some rows and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.readout import Readout, windows
from radmoe.types import Kind, RouterShape, Rows
from radmoe.vocab import Vocab


@dataclass(frozen=True)
class Profile:
    """How much of each rollout a capture keeps. The default keeps every row of every layer as the router gave it.

    sort_experts  order each token's experts by id. This changes no selection. Ids compress better and weights
                  worse, so it pays in ids-only pools.
    layers        keep only these MoE layers; the shallowest tenth alone is within 1.7 points of the whole
                  network (App. "Layer-depth profile").
    readouts      keep only the routing rows that these readouts need in a rollout of its kind; token ids stay whole.
    """

    sort_experts: bool = False
    layers: tuple[int, ...] | None = None
    readouts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.layers is not None:
            layers = tuple(int(layer) for layer in self.layers)
            if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0:
                raise InputError(
                    f"profile layers must be distinct, ascending and not negative, got {list(self.layers)}"
                )
            object.__setattr__(self, "layers", layers)
        if self.readouts is not None:
            if not self.readouts:
                raise InputError("profile readouts is empty: name at least one, such as delimiter@16")
            object.__setattr__(self, "readouts", tuple(str(Readout.parse(r)) for r in self.readouts))

    def stored_shape(self, shape: RouterShape) -> RouterShape:
        """The shape of the routing that is stored: with a layer subset, it has that many layers."""
        if self.layers is None:
            return shape
        if self.layers[-1] >= shape.layers:
            raise InputError(f"profile layer {self.layers[-1]} does not exist: the router has {shape.layers} layers")
        return RouterShape(len(self.layers), shape.experts, shape.top_k)

    def kept_rows(
        self,
        token_ids: NDArray[np.int32],
        vocab: Vocab,
        kind: Kind | None,
        starts: Sequence[int] | NDArray[np.int64] = (),
    ) -> NDArray[np.int32] | None:
        """The positions of the tokens whose routing is kept in a rollout of this kind, ascending; None if all are.

        `starts` are the offsets of a trajectory's steps.
        """
        if self.readouts is None:
            return None
        tokens = np.ascontiguousarray(token_ids, np.int32).tobytes()
        return _kept_rows(self.readouts, tokens, vocab, kind, tuple(int(start) for start in starts))

    def routing(self, ids: NDArray[np.int16], weights: NDArray[np.float16] | None, *, reduced: bool = False) -> Rows:
        """Rows of expert ids and weights [.., L, K] as they go to disk.

        `reduced` says that the rows already have nothing but the kept layers.
        """
        if self.layers is not None and not reduced:
            layers = list(self.layers)
            ids, weights = ids[:, layers], None if weights is None else weights[:, layers]
        if self.sort_experts:
            order = np.argsort(ids, axis=-1, kind="stable")
            ids = np.take_along_axis(ids, order, -1)
            weights = None if weights is None else np.take_along_axis(weights, order, -1)
        return ids, weights

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Profile:
        layers, readouts = body["layers"], body["readouts"]
        return cls(
            body["sort_experts"],
            None if layers is None else tuple(layers),
            None if readouts is None else tuple(readouts),
        )


@lru_cache(maxsize=512)
def _kept_rows(
    readouts: tuple[str, ...], tokens: bytes, vocab: Vocab, kind: Kind | None, starts: tuple[int, ...]
) -> NDArray[np.int32]:
    """The rows of one rollout, remembered: an engine that fetches these alone asks first, and the writer checks with them."""
    token_ids = np.frombuffer(tokens, np.int32)
    keep = np.zeros(len(token_ids), bool)
    for readout in readouts:
        for start, stop in windows(Readout.parse(readout), token_ids, vocab, kind, starts):
            keep[start:stop] = True
    rows = np.flatnonzero(keep).astype(np.int32)
    rows.setflags(write=False)
    return rows


def spans(rows: NDArray[np.integer[Any]]) -> list[tuple[int, int]]:
    """The ranges [start, stop) that ascending row numbers make up."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ascending ranges that touch or overlap."""
    out: list[tuple[int, int]] = []
    for start, stop in ranges:
        out.append((out.pop()[0] if out and out[-1][1] >= start else start, stop))
    return out
