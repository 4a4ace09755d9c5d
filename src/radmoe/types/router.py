"""The shape of a router, and how it follows from a model's configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from radmoe.errors import InputError

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
MAX_EXPERTS = 2**15  # expert ids are int16 on disk


@dataclass(frozen=True)
class RouterShape:
    """The shape of a router: L MoE layers, E routed experts per layer (shared experts not counted), K experts per
    token.
    """

    layers: int
    experts: int
    top_k: int

    def __post_init__(self) -> None:
        for name in ("layers", "experts", "top_k"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"RouterShape {name} must be a positive integer, got {value!r}")
            object.__setattr__(self, name, int(value))
        if self.experts > MAX_EXPERTS:
            raise InputError(f"RouterShape experts is {self.experts}, at most {MAX_EXPERTS} fit int16 ids")
        if self.top_k > self.experts:
            raise InputError(f"RouterShape top_k={self.top_k} exceeds experts={self.experts}")

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """The router of a model by its configuration.

        That is a transformers config, its dictionary, or the path of a config.json or of the directory it lies in. Raises an
        InputError for a model without experts.
        """
        get = _config_reader(config)
        experts, top_k = (next((value for name in names if (value := get(name))), 0) for names in (_EXPERTS, _TOP_K))
        if not get("num_hidden_layers") or experts < 2 or top_k < 1:
            raise InputError(
                f"this configuration (model_type {get('model_type')!r:.60}) has no router: pass that of a mixture-of-experts model"
            )
        return cls(len(sparse_layers(get)), experts, top_k)

    def __str__(self) -> str:
        return f"{self.layers}x{self.experts} top-{self.top_k}"


def sparse_layers(get: Callable[[str], Any]) -> list[int]:
    """The layers of a text model that have experts, as far as its configuration names those without."""
    layers, layer_types = range(get("num_hidden_layers")), get("mlp_layer_types")
    if layer_types is not None:
        return [layer for layer in layers if layer_types[layer] == "sparse"]
    dense, first, every = (
        set(get("mlp_only_layers") or ()),
        get("first_k_dense_replace") or 0,
        get("decoder_sparse_step") or 1,
    )
    return [layer for layer in layers if layer not in dense and layer >= first and (layer + 1) % every == 0]


def _config_reader(config: Any) -> Callable[[str], Any]:
    """What looks up a field of the text model's configuration; None for a field that is not there."""
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path} ({error}): pass a config.json, or the directory it lies in") from None
    if isinstance(config, dict):
        return dict(config.get("text_config") or config).get
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return lambda name: getattr(text, name, None)
