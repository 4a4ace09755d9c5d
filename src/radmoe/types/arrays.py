"""Checks of arrays that come from elsewhere: each names the first value that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import RolloutError

WEIGHT_SUM_TOLERANCE = 1e-2  # float16 and bfloat16 rounding of K weights stays far below


def check_weights(weights: NDArray[Any], where: str = "weights") -> None:
    """Refuse NaN, negative and non-normalised routing weights [..., K], naming the first offender."""
    if weights.dtype.kind != "f":
        raise RolloutError(f"{where} must be floating point, got {weights.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are refused below, not warned of
        wide = weights.astype(np.float32, copy=False)  # once: numpy is slow on float16
        sums = wide @ np.ones(weights.shape[-1], np.float32)
    off = ~(np.abs(sums - 1.0) <= WEIGHT_SUM_TOLERANCE)  # a NaN sum is off too
    if not off.any() and wide.min(initial=0) >= 0:
        return
    if np.isnan(weights).any():
        raise RolloutError(
            f"{where} are NaN at [token, layer, k] = {_first(np.isnan(weights))}: recapture this rollout"
        )
    if weights.min(initial=0) < 0:
        raise RolloutError(f"{where} are negative at [token, layer, k] = {_first(weights < 0)}: recapture this rollout")
    at = _first(off)
    raise RolloutError(
        f"{where} at [token, layer] = {at} sum to {float(sums[tuple(at)]):.4g}, not 1: divide each token's weights by their sum"
    )


def check_ids(ids: NDArray[Any], experts: int, where: str = "expert_ids") -> None:
    """Refuse expert ids outside [0, E)."""
    if ids.size and (ids.min() < 0 or ids.max() >= experts):
        bad = (ids < 0) | (ids >= experts)
        raise RolloutError(
            f"{where} hold {int(ids[bad][0])} at [token, layer, k] = {_first(bad)}, outside [0, {experts})"
        )


def integers(name: str, value: ArrayLike, dtype: type[np.integer[Any]], ndim: int) -> NDArray[Any]:
    array = np.asarray(value)
    if array.size == 0 and array.ndim == ndim:
        return array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise RolloutError(f"{name} must be integers, got {array.dtype}")
    if array.ndim != ndim:
        raise RolloutError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    info = np.iinfo(dtype)
    if array.min() < (0 if ndim == 1 else info.min) or array.max() > info.max:
        raise RolloutError(f"{name} range over [{array.min()}, {array.max()}] and do not fit {np.dtype(dtype).name}")
    return array.astype(dtype, copy=False)


def logprobs(name: str, value: ArrayLike, ndim: int, length: int) -> NDArray[np.float32]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim != ndim:
        raise RolloutError(f"{name} must be floats with {ndim} dimension(s), got {array.dtype} of shape {array.shape}")
    same_length(name, array, length)
    if np.isnan(array).any():
        raise RolloutError(
            f"{name} are NaN at {_first(np.isnan(array))}: recapture this rollout, or leave the column out"
        )
    return array.astype(np.float32, copy=False)


def check_positions(positions: NDArray[Any], rows: int, length: int) -> None:
    if len(positions) != rows:
        raise RolloutError(f"{len(positions)} positions for {rows} rows of routing: give one position per row")
    if rows and (np.diff(positions) <= 0).any():
        raise RolloutError("positions must be distinct and ascending")
    if rows and positions[-1] >= length:
        raise RolloutError(f"positions go up to {int(positions[-1])}, the rollout has {length} tokens")


def same_length(name: str, array: NDArray[Any], length: int) -> None:
    if len(array) != length:
        raise RolloutError(f"{name} have {len(array)} rows for {length} tokens: one row per generated token")


def _first(mask: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.argwhere(mask)[0]]
