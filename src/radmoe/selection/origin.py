"""How rollouts came about: what a calibration must share with the rollouts whose picks it judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from radmoe.system.printing import shortened


class Recorded(Protocol):
    """What `origin_of` reads of a pool."""

    model: str
    style: str | None
    task: str | None
    sampling: dict[str, Any]
    meta: dict[str, Any]

    @property
    def provenance(self) -> dict[str, dict[str, Any]]: ...


@dataclass(frozen=True)
class Origin:
    """How rollouts came about, as far as it was recorded; None where it was not.

    `checkpoint` is the fingerprint of the weights (`engines.checkpoint.fingerprint`), `routing` says which part of the router's
    output is there, and `adaptive` rollouts were sampled until their pick was settled. `task` is the data set, which no calibration is refused for but a shipped one.
    """

    model: str
    checkpoint: str | None = None
    style: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    routing: str = "all layers"
    adaptive: bool = False
    task: str | None = field(default=None, compare=False)

    def difference(self, other: Origin) -> str:
        """The first thing in which rollouts of another origin differ from these, as a sentence; empty where none does."""
        if self.checkpoint is None and other.checkpoint is None:
            if self.model != other.model:
                return f"it was fitted for {shown(self.model)}, these rollouts are of {shown(other.model)}"
        elif self.checkpoint != other.checkpoint:
            return (
                f"it was fitted for {shown(self.model)} ({_weights(self.checkpoint)}), these rollouts are of "
                f"{shown(other.model)} ({_weights(other.checkpoint)})"
            )
        for name in ("style", "temperature", "top_p", "routing"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                word = name.replace("_", "-")
                return f"it was fitted for {word} {shown(mine)}, these rollouts have {word} {shown(theirs)}"
        if self.adaptive != other.adaptive:
            one, two = ("sampled until the pick was settled", "of a fixed number")
            mine, theirs = (one, two) if self.adaptive else (two, one)
            return f"it was fitted for rollouts {mine}, these are {theirs}"
        return ""

    def __str__(self) -> str:
        said = [("style", self.style), ("temperature", self.temperature), ("top-p", self.top_p)]
        special = [] if self.routing == "all layers" else [self.routing]
        special += ["sampled until the pick was settled"] if self.adaptive else []
        return ", ".join([shown(self.model), *(f"{name} {shown(value)}" for name, value in said), *special])


def shown(value: object) -> str:
    """A recorded value as people read it, cut to 60 characters."""
    if value is None:
        return "not recorded"
    return f"{value:g}" if isinstance(value, float) else shortened(str(value), 60)


def _weights(checkpoint: str | None) -> str:
    return "weights not recorded" if checkpoint is None else shortened(checkpoint[:12])


def origin_of(pool: Recorded) -> Origin:
    """How the rollouts of a pool came about, by its run record."""
    checkpoints = {_text(where.get("checkpoint")) for where in pool.provenance.values()}
    settings = pool.sampling.get("sampled")  # those of the sampling, where a pool was replayed
    settings = settings if isinstance(settings, dict) else pool.sampling
    layers = (pool.meta["run"].get("profile") or {}).get("layers")
    return Origin(
        pool.model,
        " and ".join(sorted(c or "unknown" for c in checkpoints))
        if len(checkpoints) > 1
        else next(iter(checkpoints), None),
        pool.style,
        to_float(settings.get("temperature")),
        to_float(settings.get("top_p")),
        routing_kept(layers, weights="moe_topk_expert_weights" in pool.meta.get("columns", ())),
        pool.sampling.get("adaptive") is not None,
        pool.task,
    )


def routing_kept(layers: Sequence[int] | None, *, weights: bool) -> str:
    """Which part of the router's output is there, in words: None stands for all layers."""
    kept = "all layers" if layers is None else f"layers {','.join(map(str, layers))}"
    return kept if weights else f"{kept} without weights"


def to_float(value: Any) -> float | None:
    """A number of a file that anybody may have written; None where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
