"""A KV cache of fixed size in which each row has its own write position, so that a CUDA graph can step over it.

Row r keeps position p in column p. A step writes every row's column where that row is, and the mask hides the columns
behind it. Nothing moves when a row starts or ends, and no size changes, so a step can be recorded once and repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, LinearAttentionLayer

from radmoe.engines.torch.kv_cache import KVRows, StateRows, rows_cache

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


class Places:
    """The next write position of every row [B], and the number of columns that a step reads. All layers of a cache
    share it.
    """

    def __init__(self, rows: int, device: Any) -> None:
        self.rows = torch.arange(rows, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)
        self.columns = 0


class KVColumns(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [B, heads, capacity, dim]."""

    is_sliding = False

    def __init__(self, places: Places, heads: int, capacity: int, dims: tuple[int, int], dtype: torch.dtype) -> None:
        super().__init__()
        self._places, device = places, places.length.device
        self.keys, self.values = (
            torch.zeros(len(places.rows), heads, capacity, dim, dtype=dtype, device=device) for dim in dims
        )
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: all tensors are allocated from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        places = self._places
        self.keys[places.rows, :, places.length] = key_states[:, :, 0]
        self.values[places.rows, :, places.length] = value_states[:, :, 0]
        return self.keys[:, :, : places.columns], self.values[:, :, : places.columns]

    def put(self, at: Tensor, source: Tensor, lengths: Tensor, prefix: CacheLayerMixin) -> None:
        """Initialise rows `at` from rows `source` of a left-padded prefix with these lengths."""
        held = prefix.keys.shape[2]  # a sliding layer holds its window only
        columns = (torch.arange(int(lengths.max()), device=at.device) - lengths[:, None] + held).clamp(0, held - 1)
        for mine, theirs in ((self.keys, prefix.keys), (self.values, prefix.values)):
            index = columns[:, None, :, None].expand(-1, theirs.shape[1], -1, theirs.shape[3])
            mine[at, :, : columns.shape[1]] = theirs.gather(2, index)[source]

    def get_seq_length(self) -> int:
        return self._places.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._places.columns, 0

    def get_max_length(self) -> int:
        return int(self.keys.shape[2])


class StaticRows:
    """The cache of a batch of fixed size, with its masks and the initialisation of its rows."""

    def __init__(self, model: Any, rows: int, capacity: int) -> None:
        self._model, self._config = model, model.config.get_text_config()
        self.places = Places(rows, model.device)
        self.capacity = capacity
        self._window = getattr(self._config, "sliding_window", None) or capacity
        self._columns = torch.arange(capacity, device=model.device)
        # One pass over one token shows what every layer keeps.
        probe = self._prefixes([(0,)])
        self._layers = [self._layer(native, seen) for native, seen in zip(self._natives(), probe.layers, strict=True)]
        self.cache = Cache(layers=self._layers)

    def _natives(self) -> Sequence[Any]:
        layers: Sequence[Any] = rows_cache(self._model.config).layers
        return layers

    def _layer(self, native: Any, seen: Any) -> Any:
        if isinstance(native, KVRows):
            dims = (seen.keys.shape[3], seen.values.shape[3])
            return KVColumns(self.places, seen.keys.shape[1], self.capacity, dims, seen.keys.dtype)
        native.put(self.places.rows, len(self.places.rows), seen)
        return native

    def mask(self) -> Any:
        """The attention mask, as the model takes it: one mask, or one per kind of layer."""
        columns, length = self._columns[: self.places.columns], self.places.length[:, None]
        seen = columns <= length
        kinds = set(getattr(self._config, "layer_types", None) or [FULL])
        if kinds == {FULL}:
            return seen[:, None, None]
        near = seen & (columns > length - self._window)
        masks = {FULL: seen[:, None, None], SLIDING: near[:, None, None], LINEAR: None}
        return {kind: masks[kind] for kind in kinds}

    def begin(self, at: Sequence[int], prompts: Sequence[tuple[int, ...]]) -> None:
        """Initialise rows with prompts (without their last token). Rows with the same prompt share one pass."""
        device = self._model.device
        for layer in self._layers:
            if isinstance(layer, StateRows):
                layer.put(torch.tensor(at, device=device), len(self.places.rows), None)
        distinct = list(dict.fromkeys(prompt for prompt in prompts if prompt))
        self.places.length[torch.tensor(at, device=device)] = torch.tensor([len(p) for p in prompts], device=device)
        if not distinct:
            return
        number = {prompt: i for i, prompt in enumerate(distinct)}
        rows = torch.tensor([row for row, prompt in zip(at, prompts, strict=True) if prompt], device=device)
        source = torch.tensor([number[prompt] for prompt in prompts if prompt], device=device)
        lengths = torch.tensor([len(prompt) for prompt in distinct], device=device)
        prefix = self._prefixes(distinct)
        for layer, made in zip(self._layers, prefix.layers, strict=True):
            if isinstance(layer, KVColumns):
                layer.put(rows, source, lengths, made)
            else:
                for states in ("conv_states", "recurrent_states"):
                    for i, state in getattr(layer, states).items():
                        if state is not None:
                            state[rows] = getattr(made, states)[i][source]

    def _prefixes(self, prompts: Sequence[tuple[int, ...]]) -> DynamicCache:
        """The cache of a pass over prompts, padded on their left."""
        longest = max(map(len, prompts))
        tokens = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=self._model.device)
        lengths = torch.tensor([len(p) for p in prompts], device=self._model.device)
        positions = torch.arange(longest, device=self._model.device) - (longest - lengths)[:, None]
        cache = DynamicCache(config=self._model.config)
        self._model(
            input_ids=tokens,
            attention_mask=None if bool((lengths == longest).all()) else (positions >= 0).long(),
            position_ids=positions.clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cache

    def copy(self, other: StaticRows) -> None:
        """Copy the rows of a smaller cache into this one."""
        self.places.length.copy_(other.places.length)
        for mine, theirs in zip(self._layers, other._layers, strict=True):
            if isinstance(mine, KVColumns):
                mine.keys[:, :, : other.capacity] = theirs.keys
                mine.values[:, :, : other.capacity] = theirs.values
        for state, old in zip(self.states(), other.states(), strict=True):
            state.copy_(old)

    def states(self) -> list[Tensor]:
        """The states of linear attention, which a step changes even in rows that are not live."""
        return [
            state
            for layer in self._layers
            if isinstance(layer, LinearAttentionLayer)
            for states in (layer.conv_states, layer.recurrent_states)
            for state in states.values()
            if state is not None
        ]
