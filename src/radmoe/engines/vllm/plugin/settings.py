"""The plugin's settings, from vLLM's `additional_config`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from radmoe.errors import InputError

ROWS = "all, generated or tail:W"


@dataclass(frozen=True)
class PluginSettings:
    """How much of each request's routing a worker keeps until it is fetched.

    rows        "generated": the rows R(t) that predict the generated tokens. "all": those of the prompt's
                positions too, as far as they were computed and not found in the prefix cache.
                "tail:W": the rows of at least the last W tokens.
    layers      a layer subset such as "s0" or "0-3"; None keeps all MoE layers.
    weights     whether weights are kept beside ids.
    memory_mib  host memory for rows. Where it is full, requests that were finished but not fetched make room, oldest
                first; then the youngest running one loses its routing, and fetching it is an error that says so.
    """

    rows: str = "generated"
    layers: str | None = None
    weights: bool = True
    memory_mib: int = 4096

    def __post_init__(self) -> None:
        if not isinstance(self.rows, str) or not re.fullmatch(r"all|generated|tail:[1-9]\d*", self.rows):
            raise InputError(f"unknown rows {self.rows!r}: use {ROWS}")
        if self.layers is not None and not isinstance(self.layers, str):
            raise InputError(f"layers of a capture must be a text such as s0 or 0-3, got {self.layers!r}")
        if isinstance(self.memory_mib, bool) or not isinstance(self.memory_mib, int) or self.memory_mib < 1:
            raise InputError(f"memory_mib of a capture must be at least 1, got {self.memory_mib!r}")

    @property
    def tail(self) -> int | None:
        """The W of the rows "tail:W"."""
        return int(self.rows.removeprefix("tail:")) if self.rows.startswith("tail:") else None

    @property
    def prompt(self) -> bool:
        """Whether rows of the prompt's own positions are kept."""
        return self.rows == "all"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> PluginSettings:
        known = [field.name for field in fields(cls)]
        if not isinstance(body, dict) or not set(body) <= set(known):
            raise InputError(f"capture settings must be an object with {', '.join(known)}, got {body!r}")
        return cls(**body)
