"""Rows of routing summed into route vectors (Eq. 4), without holding all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import RolloutError
from radmoe.types import RolloutGroup, Rows, Trace, check_ids, check_weights

ROWS = 1024  # rows of routing that are held at once: 64 windows of 16, or a part of a whole answer


@dataclass
class RouteSum:
    """Sums rows of routing into Z, a few thousand at a time: one call for all windows, several for whole answers."""

    group: RolloutGroup
    Z: NDArray[np.float32]
    layers: NDArray[np.int64]
    pieces: list[tuple[int, int, float, Rows]] = field(default_factory=list)  # rollout, row of Z, scale, routing
    held: int = 0

    def rows(self, rollout: int, row: int, scale: float, piece: Rows) -> None:
        """Add rows of a rollout to the mean in row `row` of Z; `scale` is 1 / (the number of all rows in that mean)."""
        mixed = bool(self.pieces) and (self.pieces[-1][3][1] is None) != (piece[1] is None)
        if mixed or self.held + len(piece[0]) > ROWS:  # joining many rows costs as much as adding them up
            self.flush()
        self.pieces.append((rollout, row, scale, piece))
        self.held += len(piece[0])

    def flush(self) -> None:
        """Add what was taken so far to Z. Raises a RolloutError if no router can have produced it."""
        if not self.pieces:
            return
        # Imported here because loading compiled code is slow, and whoever only opens a pool does not need it.
        from radmoe.selection.kernels.gather import accumulate, half_values
        from radmoe.selection.kernels.jit import check_shapes

        rollouts, rows, scales, routing = zip(*self.pieces, strict=True)
        owner = np.repeat(rows, [len(ids) for ids, _ in routing])
        scale = np.zeros(len(self.Z))
        scale[list(rows)] = scales
        ids = _joined([ids for ids, _ in routing])
        halves = [mass.view(np.uint16) for _, mass in routing if mass is not None]
        mass = _joined(halves) if halves else np.empty((0, 0, 0), np.uint16)
        shape = (len(owner), max(ids.shape[1], 1 + int(self.layers.max(initial=0))), self.group.shape.top_k)
        check_shapes(ids=(ids, shape), **({"weights": (mass, shape)} if halves else {}))
        if accumulate(self.Z, owner, scale, ids, mass, half_values(), self.layers, self.group.shape.experts):
            _name_fault(self.group, rollouts, routing)
        self.pieces, self.held = [], 0


def pieces(rollout: Trace, spans: Sequence[tuple[int, int]], *, weights: bool) -> Iterator[Rows]:
    """The rows of ascending token ranges, at most ROWS at a time. Those of many ranges are read together."""
    if len(spans) == 1:
        ((start, stop),) = spans
        for low in range(start, stop, ROWS):
            yield rollout.rows(low, min(low + ROWS, stop), weights=weights)
        return
    starts, stops = np.array(spans, np.int64).T
    lengths = stops - starts
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    tokens = np.repeat(starts, lengths) + within
    for low in range(0, len(tokens), ROWS):
        yield rollout.rows_of(tokens[low : low + ROWS], weights=weights)


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _name_fault(group: RolloutGroup, owners: Sequence[int], pieces: Sequence[Rows]) -> NoReturn:
    """Raise a RolloutError that names the first rollout whose routing no router can have produced."""
    for i, (ids, mass) in zip(owners, pieces, strict=True):
        where = f"of rollout {i} of problem {group.problem_id!r}"
        check_ids(ids, group.shape.experts, f"expert_ids {where}")
        if mass is not None:
            check_weights(mass, f"weights {where}")
    raise RolloutError(f"routing of problem {group.problem_id!r} does not fit the router {group.shape}")
