"""The cluster that `--on` names. What is done there comes from a plugin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe.system.plugins import added, attribute


@dataclass(frozen=True)
class Crew:
    """Which cluster a command runs `on`, how many workers it has there, and what each of them needs."""

    on: str
    workers: int = 1
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"--workers must be at least 1, got {self.workers}")
        if not 0 <= self.gpus_per_worker < float("inf"):
            raise InputError(f"--gpus-per-worker must be 0 or more, got {self.gpus_per_worker:g}")


class Cluster(NamedTuple):
    """The functions by which a kind of cluster captures, fills a pool and evaluates (`radmoe_integrations.on_ray` has Ray's)."""

    capture: Callable[..., Any]
    fill: Callable[..., Any]
    map: Callable[..., Any]


def cluster(on: str) -> Cluster:
    """The kind of cluster that an address belongs to, by its scheme. Raises an InputError if no plugin adds it."""
    scheme, known = on.partition("://")[0], added("clusters")
    if scheme in known:
        return attribute(known[scheme])  # type: ignore[no-any-return]
    if scheme == "ray":
        raise InputError(f"--on {on} is part of radmoe-integrations, which is not installed: pip install 'radmoe[ray]'")
    raise InputError(f"--on {on!r} is no cluster: write ray, or ray://HOST:6379 with the address of its head node")
