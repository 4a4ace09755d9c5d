"""A key-value cache whose rows have lengths of their own, and attention over it.

`model.generate()` keeps a batch until its last row ends. Here a row that ends is given to the next rollout at once. All
rows end at the same column, so that a step appends one column to each. A shorter row leaves the columns on its left
unused, and the attention mask hides them. Columns are counted from the left edge of the longest row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from radmoe.errors import EngineError

ATTENTION = "radmoe_rows"
_EAGER = frozenset({"gpt_oss"})  # families without "sdpa" whose own attention `attend` computes too: sinks
_SPARE = 128  # columns to grow by, at least


class KVRows(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [B, heads, columns, dim], with spare columns on the right.

    A sliding layer holds the columns of its window only. Appending writes one column, where `DynamicLayer` copies the
    cache, and moves to a larger buffer now and then.
    """

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        self.is_sliding = window is not None
        self._held = None if window is None else max(window - 1, 0)  # columns a next token looks back on
        self._seen = 0  # columns of the longest row
        self._lo = self._hi = 0  # where the held ones lie in the buffers

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (x.new_zeros((*x.shape[:2], _SPARE, x.shape[3])) for x in (key_states, value_states))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the new columns to every row; returns all held columns, the new ones included."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new = key_states.shape[2]
        self._reserve(0, new)
        start, self._hi = self._hi, self._hi + new
        self.keys[:, :, start : self._hi] = key_states
        self.values[:, :, start : self._hi] = value_states
        held = slice(self._lo, self._hi)
        self._seen += new
        if self._held is not None:
            self._lo = max(self._lo, self._hi - self._held)
        return self.keys[:, :, held], self.values[:, :, held]

    def put(self, at: Tensor, rows: int, source: CacheLayerMixin | None) -> None:
        """Begin rows `at` (of `rows`) anew with the one row of a prompt's cache; None is the empty prompt."""
        if source is None or not source.is_initialized:
            return  # what a row held before lies outside its mask
        keys, values = source.keys, source.values
        if not self.is_initialized:
            self.lazy_initialization(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1))
        self._reserve(max(keys.shape[2] - (self._hi - self._lo), 0), 0)
        self._lo = min(self._lo, self._hi - keys.shape[2])
        self._seen = max(self._seen, source.get_seq_length())
        columns = slice(self._hi - keys.shape[2], self._hi)
        self.keys[at, :, columns], self.values[at, :, columns] = keys[0], values[0]

    def trim(self, longest: int) -> None:
        """Forget the columns on the left that no row uses any more."""
        self._seen = longest
        self._lo = max(self._lo, self._hi - longest)

    def keep(self, rows: Tensor) -> None:
        """Keep these rows only."""
        if self.is_initialized:
            self.keys, self.values = self.keys[rows], self.values[rows]

    def get_seq_length(self) -> int:
        return self._seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = self._hi - self._lo
        return held + query_length, self._seen - held

    def get_max_length(self) -> int:
        return -1

    def _reserve(self, left: int, right: int) -> None:
        """Make room beside the held columns."""
        if self._lo >= left and self._hi + right <= self.keys.shape[2]:
            return
        held = self._hi - self._lo
        width = left + held + right + max(_SPARE, held // 2)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros((*old.shape[:2], width, old.shape[3]))  # hidden columns must still be finite
            new[:, :, left : left + held] = old[:, :, self._lo : self._hi]
            setattr(self, name, new)
        self._lo, self._hi = left, left + held


class StateRows(LinearAttentionLayer):  # type: ignore[misc]
    """Convolution and recurrent states of one linear-attention layer, [B, ...]: no columns to align."""

    def put(self, at: Tensor, rows: int, source: LinearAttentionLayer | None) -> None:
        """Begin rows `at` (of `rows`) anew with the states of a prompt; None is the empty prompt."""
        for i in range(self.number_of_states):
            for name in ("conv", "recurrent"):
                states, ready = getattr(self, f"{name}_states"), getattr(self, f"is_{name}_states_initialized")
                state = None if source is None else getattr(source, f"{name}_states")[i]
                if state is None:
                    if ready[i]:
                        states[i][at] = 0
                    continue
                if not ready[i]:
                    states[i], ready[i] = state.new_zeros((rows, *state.shape[1:])), True
                    self.dtype, self.device = state.dtype, state.device
                states[i][at] = state[0]
            if source is not None and source.has_previous_state[i]:
                self.has_previous_state[i] = True
                self.conv_kernel_size[i] = source.conv_kernel_size[i]

    def trim(self, longest: int) -> None:
        """Do nothing: a state has no columns."""

    def keep(self, rows: Tensor) -> None:
        self.reorder_cache(rows)


def rows_cache(config: Any) -> Cache:
    """An empty cache of rows for a model; EngineError for a kind of layer whose rows it cannot handle."""
    layers: list[Any] = []
    for native in DynamicCache(config=config).layers:
        if type(native) is DynamicLayer:
            layers.append(KVRows())
        elif type(native) is DynamicSlidingWindowLayer:
            layers.append(KVRows(native.sliding_window))
        elif type(native) is LinearAttentionLayer:
            layers.append(StateRows(number_of_states=native.number_of_states))
        else:
            raise EngineError(
                f"{config.model_type} caches with {type(native).__name__}, which this engine cannot batch: "
                "it knows full, sliding-window and linear attention; capture this model with vLLM or llama.cpp"
            )
    if not layers:
        raise EngineError(f"{config.model_type} does not say how its layers cache: capture it with vLLM or llama.cpp")
    return Cache(layers=layers)


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Any:
    """transformers' "sdpa" attention, with sinks, and without copying keys for every query head of a single new token.

    The heads that share a key head become the query positions of one attention. The sums are the same, and it takes an
    eighth of the time at B = 64, 150 columns and three heads per key on CPU.
    """
    if kwargs.get("s_aux") is not None:
        return attend_by_products(query, key, value, attention_mask, kwargs["scaling"], kwargs["s_aux"]), None
    groups = getattr(module, "num_key_value_groups", 1)
    if query.shape[2] != 1 or groups == 1 or set(kwargs) & {"position_bias", "cache", "softcap"}:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if query.device.type == "cuda" and kwargs.get("scaling") is not None:
        return attend_by_products(query, key, value, attention_mask, kwargs["scaling"]), None
    batch, heads, _, dim = query.shape
    out = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(batch, heads // groups, groups, dim), key, value, attention_mask, scale=kwargs.get("scaling")
    )
    return out.reshape(batch, 1, heads, value.shape[-1]), None


def attend_by_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, sinks: Tensor | None = None
) -> Tensor:
    """Attention in two matrix products. With sinks [H] the softmax has one more score per head that is no key's (gpt-oss).

    query [B, H, S, dim], key and value [B, H / G, C, dim], mask bool [B, 1, S, C] or None for causal
    (S = C, or one token that sees all); returns [B, S, H, dim]. G heads share a key head, and no key is
    copied: at B = 64, 150 columns and G = 3 a fifth of the time of transformers' "eager" on CPU. On a GPU torch's own
    kernel is made for many queries: at B = 4,096, 256 columns and one query it was four fifths of a step.
    """
    batch, heads, new, dim = query.shape
    shared, columns = key.shape[1:3]
    groups = heads // shared
    if mask is None and new > 1:
        mask = torch.ones(1, 1, new, columns, dtype=torch.bool, device=query.device).tril()
    scores = torch.matmul(query.reshape(batch, shared, groups * new, dim), key.transpose(2, 3)).mul_(scaling)
    scores = scores.view(batch, shared, groups, new, columns)
    if mask is not None:
        scores.masked_fill_(~mask[:, :, None], -torch.inf)
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        drain = sinks.to(scores.dtype).view(shared, groups, 1, 1).expand(batch, -1, -1, new, -1)
        weights = torch.cat([scores, drain], -1).softmax(-1)[..., :-1]
    out = torch.matmul(weights.reshape(batch, shared, groups * new, columns), value)
    return out.view(batch, heads, new, value.shape[-1]).transpose(1, 2).contiguous()


def speed_up_attention(model: Any) -> None:
    """Make a model use `attend` where that computes the same as its present attention."""
    config = model.config
    if config._attn_implementation == "sdpa" or (
        config._attn_implementation == "eager" and config.get_text_config().model_type in _EAGER
    ):
        model.set_attn_implementation(ATTENTION)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
