"""What a profile keeps of a rollout, for engines that need not compute or fetch the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.types import RouterShape

if TYPE_CHECKING:
    from radmoe.pool import Profile
    from radmoe.vocab import Vocab


def kept(profile: Profile, token_ids: NDArray[np.int32], vocab: Vocab) -> NDArray[np.int64]:
    """Token positions whose routing a pool of this profile stores, ascending."""
    rows = profile.kept_rows(token_ids, vocab)
    return np.arange(len(token_ids)) if rows is None else rows.astype(np.int64)


def spans(rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges [start, stop)."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def check_layers(captured: tuple[int, ...] | None, profile: Profile | None) -> None:
    """Refuse a profile that keeps a layer which an engine does not capture; None is all layers."""
    wanted = None if profile is None else profile.layers
    if captured is not None and (wanted is None or not set(wanted) <= set(captured)):
        raise InputError(
            f"only layers {listed(captured)} are captured here, and {listed(wanted)} are to be kept: keep some of the "
            "captured ones, or have more captured"
        )


def listed(layers: Sequence[int] | None) -> str:
    """Layer numbers as one writes them: 0-3,7."""
    if layers is None:
        return "all"
    parts = spans(np.asarray(layers, np.int64))
    return ",".join(str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in parts)


def filler(tokens: int, shape: RouterShape) -> tuple[NDArray[np.int16], NDArray[np.float16]]:
    """Ids and weights [T, L, K] for what no pool stores: experts 0..K-1, 1/K each."""
    ids = np.tile(np.arange(shape.top_k, dtype=np.int16), (tokens, shape.layers, 1))
    return ids, np.full(ids.shape, 1 / shape.top_k, np.float16)
