"""Panels whose picks are right as often as was planted: for studies of many arms that keep densities alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from planted_panels import panel
from radmoe_studies.evidence import Panel, Read, Request

MOST = 0.98  # the share of problems whose outcome is the same for all requests of one chance


def with_picks(
    requests: Callable[[Panel], Iterable[Request]],
    chance: Callable[[Request], float],
    *,
    located: Callable[[Request], float] = lambda request: 1.0,
    start: Callable[[Request], int] = lambda request: 10,
    layers: int = 12,
    seed: int = 0,
    **recipe: Any,
) -> Panel:
    """A panel whose requests pick a right rollout with a given chance, and locate a given share of rollouts.

    The same problems come out right at every request, up to some noise, so that differences are those planted. Right
    rollouts are located as often as wrong ones.
    """
    made = replace(panel(seed=seed, **recipe), layers=layers)
    made.correct[:, 0], made.correct[:, 1] = True, False  # so that every pick can be right and wrong
    problems, n = made.correct.shape
    shared = np.random.default_rng([seed, 1]).random(problems)
    places = np.random.default_rng([seed, 2]).random((problems, n))
    for request in requests(made):
        rng = np.random.default_rng([seed, zlib.crc32(repr(request).encode())])
        luck = np.where(rng.random(problems) < MOST, shared, rng.random(problems))
        here = places < located(request)
        right = luck < chance(request)
        levels = rng.integers(0, 5, (problems, n)).astype(np.float32)
        pick = np.where(right, 0, 1)
        enough = here.sum(1) >= 2
        here[enough, pick[enough]] = True
        levels[np.arange(problems), pick] = 9
        levels[~here | ~enough[:, None]] = np.nan
        made.reads[request] = Read(levels, np.where(here, start(request), -1).astype(np.int32))
    return made
