"""Profiles for engines: which rows and layers a pool keeps, so that engines need not fetch the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.engines.base import Engine
    from radmoe.pool import Profile
    from radmoe.selection.layers import Layers
    from radmoe.types import Kind
    from radmoe.vocab import Vocab


def profile_for(
    engine: Engine, *, weights: bool = True, readouts: Sequence[str] | None = None, layers: Layers = None
) -> Profile:
    """The profile of a pool that keeps what an engine captures, or only the rows of some readouts and some layers.

    `layers` is a subset such as "s0" (the shallowest tenth) or "0-3,7", or layer numbers. Where expert ids are kept
    without weights they are sorted, because their order then says nothing and sorted ids compress better.
    """
    from radmoe.pool import Profile
    from radmoe.selection.layers import layer_subset

    kept = engine.layers
    if layers is not None:
        kept = tuple(int(layer) for layer in layer_subset(layers, engine.shape.layers))
    profile = Profile(not weights, kept, None if readouts is None else tuple(readouts))
    check_layers(engine.layers, profile)
    return profile


def check_profile(
    profile: Profile | None, captured: Sequence[int] | None, vocab: Vocab, kinds: Iterable[Kind | None]
) -> None:
    """Refuse a profile that an engine cannot serve, before anything is sampled.

    `captured` are the only layers that the engine captures (None: all). Raises InputError for a profile that keeps
    others, and for a readout that does not fit one of the kinds.
    """
    check_layers(captured, profile)
    if profile is not None:
        for kind in dict.fromkeys(kinds):
            profile.kept_rows(np.zeros(1, np.int32), vocab, kind)


def check_layers(captured: Sequence[int] | None, profile: Profile | None) -> None:
    """Refuse a profile that keeps a layer which an engine does not capture; None stands for all layers."""
    wanted = None if profile is None else profile.layers
    if captured is not None and (wanted is None or not set(wanted) <= set(captured)):
        raise InputError(
            f"only layers {format_layers(captured)} are captured here, and {format_layers(wanted)} are to be kept: "
            "keep some of the captured ones, or have more captured"
        )


def format_layers(layers: Sequence[int] | None) -> str:
    """Layer numbers as one writes them, such as 0-3,7."""
    from radmoe.pool.profile import spans

    if layers is None:
        return "all"
    ranges = spans(np.asarray(layers, np.int64))
    return ",".join(str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in ranges)
