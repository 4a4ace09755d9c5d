"""The layers of a model that look at other positions than their own, for passes over nodes of a tree (see `tree`).

A pass is a batch of one row whose positions are nodes. Norms, experts and projections take positions one by one and need
not know. Attention, the convolution before linear attention and the gated delta rule do: where a pass is under way in
their thread, they find what comes before a node on its path. All of it is for float32 on a CPU.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from radmoe.engines.torch.kv_cache import attend
from radmoe.selection.kernels.jit import check_shapes, jit
from radmoe.selection.kernels.simd import LANES
from radmoe_lab.inference.exponential import exponentials
from radmoe_lab.inference.heads import for_every_head
from radmoe_lab.inference.tile import ROWS, VECTORS, multiply_tile
from radmoe_lab.inference.tree import Integers, Part, Tree

Array = NDArray[np.float32]
_CONVOLUTION, _RULE = "causal_conv1d_fn", "torch_chunk_gated_delta_rule"
_OTHER_OPTIONS = ("position_bias", "cache", "softcap")
TREE_ATTENTION = "radmoe_trees"


class _UnderWay(threading.local):
    walk: Walk | None = None


under_way = _UnderWay()  # the pass over a tree that this thread is in


class Unfit(Exception):
    """Raised for a layer of a kind that passes over trees do not support."""


class Walk:
    """What layers keep of passed nodes: keys and values of all, and the states of nodes that others follow."""

    def __init__(self, tree: Tree, windows: Sequence[int | None]) -> None:
        self._tree = tree
        self._windows = windows  # of each layer
        self._slots, self._branches = tree.slots()
        self._kept: dict[Any, tuple[Array, ...]] = {}
        self._part: Part | None = None
        self._calls: dict[str, int] = {}

    @contextmanager
    def passing(self, part: Part) -> Iterator[None]:
        """A context in which passes of this thread are over this part of the tree. The parts are passed in their order."""
        self._part, self._calls, under_way.walk = part, {}, self
        try:
            yield
        finally:
            under_way.walk = None

    def attend_for(self, module: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """The attention of a module that transformers calls with these options."""
        other = any(options.get(name) is not None for name in _OTHER_OPTIONS)
        if other or not getattr(module, "is_causal", True) or not hasattr(module, "layer_idx"):
            raise Unfit
        scaling = options.get("scaling")
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        window, sinks = options.get("sliding_window"), options.get("s_aux")
        return self.attend(module.layer_idx, query, key, value, scaling, window, sinks)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None, sinks: Tensor | None) -> Tensor:  # fmt: skip
        """Attention [1, S, H, V] of query [1, H, S, D] to keys [1, H / G, S, D] and values of these nodes and their paths."""
        heads, dims = query.shape[1], (query.shape[3], value.shape[3])
        if any(dim % LANES for dim in dims) or query.dtype != torch.float32 or window != self._windows[layer]:
            raise Unfit
        part = self._of_this_pass(query.shape[2])
        nodes, shared = query.shape[2], key.shape[1]
        check_shapes(key=(key, (1, shared, nodes, dims[0])), value=(value, (1, shared, nodes, dims[1])))
        if heads % shared:
            raise Unfit
        shapes = [(len(self._tree.tokens), *x.shape[1::2]) for x in (key, value)]
        keys, values = self._keep(layer, *shapes)
        for pool, new in ((keys, key), (values, value)):
            pool[part.first : part.last] = new[0].transpose(0, 1).numpy()
        out = torch.empty(1, query.shape[2], heads, dims[1])
        drains = np.full(heads, -np.inf, np.float32) if sinks is None else sinks.detach().float().numpy()
        check_shapes(sinks=(drains, (heads,)))
        rows = query[0].transpose(0, 1).contiguous().numpy()
        _attend(rows, keys, values, self._tree.paths, part.segments, window or sys.maxsize, np.float32(scaling), drains, out[0].numpy())  # fmt: skip
        return out

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The causal convolution per channel of x [1, C, S] with weight [C, W]."""
        part, line = self._of_this_pass(x.shape[2]), x[0].T.contiguous()
        check_shapes(weight=(weight, (x.shape[1], weight.shape[1])))
        (history,) = self._keep(self._next(_CONVOLUTION), (self._branches, weight.shape[1] - 1, x.shape[1]))
        out = torch.zeros_like(line) if bias is None else bias.expand_as(line).contiguous()
        taps = weight.T.contiguous().numpy()
        slots = self._slots[part.first : part.last]
        _convolve(line.numpy(), taps, part.segments, self._parents(part), slots, history, out.numpy())
        return out.T[None]

    def delta_rule(self, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
        """The gated delta rule: query and key [1, S, H, K], value [1, S, H, V], log_decay and beta [1, S, H]."""
        heads, dims = value.shape[2], (key.shape[3], value.shape[3])
        if dims[1] % LANES:
            raise Unfit
        part = self._of_this_pass(key.shape[1])
        nodes = key.shape[1]
        check_shapes(
            query=(query, (1, nodes, heads, dims[0])),
            key=(key, (1, nodes, heads, dims[0])),
            value=(value, (1, nodes, heads, dims[1])),
            decay=(log_decay, (1, nodes, heads)),
            beta=(beta, (1, nodes, heads)),
        )
        (states,) = self._keep(self._next(_RULE), (self._branches, heads, *dims))
        pairs = torch.stack([key[0], query[0] * dims[0] ** -0.5], 2)  # [S, H, 2, K]
        out = torch.empty(value.shape)
        arrays = [x.contiguous().numpy() for x in (pairs, value[0], log_decay[0].exp(), beta[0], out[0])]
        places = (part.segments, self._parents(part), self._slots[part.first : part.last])
        _advance(*places, states, *arrays)
        return out

    def _of_this_pass(self, nodes: int) -> Part:
        assert self._part is not None
        if nodes != self._part.last - self._part.first:
            raise Unfit
        return self._part

    def _next(self, name: str) -> tuple[str, int]:
        """Return the name of this call: its kind and how many calls of that kind came before in this pass."""
        self._calls[name] = self._calls.get(name, -1) + 1
        return name, self._calls[name]

    def _keep(self, name: Any, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
        if name not in self._kept:
            self._kept[name] = tuple(np.empty(shape, np.float32) for shape in shapes)
        return self._kept[name]

    def _parents(self, part: Part) -> Integers:
        """The slot of the node before each segment; -1 for the first of all."""
        before = part.segments[:, 0] + part.segments[:, 1] - 1
        return np.where(part.segments[:, 1] > 0, self._slots[self._tree.paths[before]], -1)


def teach(model: Any) -> None:
    """Patch the attention of this model, and the modules that define its linear attention, to support passes over
    trees.
    """
    model.set_attn_implementation(TREE_ATTENTION)
    for home in {type(module).__module__ for module in model.modules()}:
        for name, make in ((_CONVOLUTION, _convolution), (_RULE, _rule)):
            reference = getattr(sys.modules.get(home), name, None)
            if reference is not None and not hasattr(reference, "knows_trees"):
                function: Any = make(reference)
                function.knows_trees = True
                setattr(sys.modules[home], name, function)


def _attend_in_pass(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    """Attention as `radmoe.engines.torch.kv_cache` computes it, or that of a pass over a tree if one is running."""
    if under_way.walk is None:
        return attend(module, query, key, value, mask, **options)
    return under_way.walk.attend_for(module, query, key, value, **options), None


def _mask_in_pass(*args: Any, **options: Any) -> Tensor | None:
    mask: Tensor | None = sdpa_mask(*args, **options) if under_way.walk is None else None
    return mask


AttentionInterface.register(TREE_ATTENTION, _attend_in_pass)
AttentionMaskInterface.register(TREE_ATTENTION, _mask_in_pass)


def _convolution(reference: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(reference)
    def convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **options: Any) -> Tensor:
        walk = under_way.walk
        if walk is None:
            return reference(x, weight, bias, *args, **options)
        if args or options.get("activation") not in (None, "silu"):
            raise Unfit
        out = walk.convolve(x, weight, bias)
        return out if options.get("activation") is None else functional.silu(out)

    return convolution


def _rule(reference: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(reference)
    def rule(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
        walk = under_way.walk
        if walk is None:
            return reference(query, key, value, *args, **options)
        if args or options.get("initial_state") is not None or options.get("output_final_state"):
            raise Unfit
        query, key = (for_every_head(x, value.shape[2]) for x in (query, key))
        if options.get("use_qk_l2norm_in_kernel"):
            query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
        return walk.delta_rule(query, key, value, options["g"], options["beta"]), None

    return rule


@jit
def _attend(
    query: Array,
    keys: Array,
    values: Array,
    paths: Integers,
    segments: Integers,
    window: int,
    scaling: np.float32,
    sinks: Array,
    out: Array,
) -> None:
    """query [S, H, D], keys [U, H / G, D], values [U, H / G, V], sinks [H], out [S, H, V].

    Per segment and key head the keys of the path are laid out by dimension, so that six queries, those of neighbouring
    nodes and of the heads that share the keys, are multiplied with 64 of them at a time.
    """
    heads, depth = query.shape[1:]
    shared, width = values.shape[1:]
    groups, block = heads // shared, LANES * VECTORS
    longest = 0
    for s in range(len(segments)):
        longest = max(longest, segments[s, 1] + segments[s, 2])
    room = (longest // block + 2) * block
    turned, held = np.zeros((depth, room), np.float32), np.zeros((room, width), np.float32)
    scores, bits = np.empty((ROWS, room), np.float32), np.empty(room, np.int32)
    result, lanes = np.empty((ROWS, width), np.float32), np.empty(LANES, np.float32)
    places, own, totals = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64), np.empty(ROWS, np.float32)
    for s in range(len(segments)):
        begin, before, count, row = segments[s]
        low = max(0, before - window + 1)  # what no query of the segment sees is left out
        path = paths[begin + low : begin + before + count]
        for h in range(shared):
            for c in range(len(path)):
                for d in range(depth):
                    turned[d, c] = keys[path[c], h, d]
                for d in range(width):
                    held[c, d] = values[path[c], h, d]
            for first in range(0, count * groups, ROWS):
                rows = min(ROWS, count * groups - first)
                start = max(0, before + first // groups - window + 1 - low)
                stop = before + (first + rows - 1) // groups + 1 - low
                whole = start + (stop - start + LANES - 1) // LANES * LANES
                for r in range(rows):
                    places[r] = ((row + (first + r) // groups) * heads + h * groups + (first + r) % groups) * depth
                    own[r] = r * room + start
                for column in range(start, whole, block):
                    vectors = min(block, whole - column) // LANES
                    multiply_tile(query, places, 0, rows, turned, column, room, depth, scores, column, room, vectors)
                for r in range(rows):
                    at = before + (first + r) // groups - low
                    line, sink = scores[r], sinks[h * groups + (first + r) % groups]
                    line[start : max(start, at - window + 1)] = -np.inf
                    line[at + 1 : whole] = -np.inf
                    lanes[:] = -np.inf
                    for c in range(start, whole, LANES):
                        for lane in range(LANES):
                            lanes[lane] = max(lanes[lane], line[c + lane])
                    most = max(lanes.max() * scaling, sink)
                    for c in range(start, whole):
                        line[c] = line[c] * scaling - most
                    exponentials(line[start:whole], bits)
                    line[start : max(start, at - window + 1)] = 0
                    line[at + 1 : whole] = 0
                    lanes[:] = 0
                    for c in range(start, whole, LANES):
                        for lane in range(LANES):
                            lanes[lane] += line[c + lane]
                    totals[r] = lanes.sum() + np.float32(math.exp(sink - most))
                for column in range(0, width, block):
                    vectors = min(block, width - column) // LANES
                    multiply_tile(scores, own, 0, rows, held, start * width + column, width, stop - start, result, column, width, vectors)  # fmt: skip
                for r in range(rows):
                    target = out[row + (first + r) // groups, h * groups + (first + r) % groups]
                    share = np.float32(1.0) / totals[r]
                    for d in range(width):
                        target[d] = result[r, d] * share


@jit
def _convolve(x: Array, taps: Array, segments: Integers, parents: Integers, slots: Integers, history: Array, out: Array) -> None:  # fmt: skip
    """out[s] += sum over j of taps[j] x[s - W + 1 + j] along the paths; x and out [S, C], history [slots, W - 1, C]."""
    past = len(taps) - 1
    for i in range(len(segments)):
        count, row = segments[i, 2], segments[i, 3]
        lines = np.zeros((past + count, x.shape[1]), np.float32)
        if parents[i] >= 0:
            lines[:past] = history[parents[i]]
        lines[past:] = x[row : row + count]
        for s in range(count):
            for j in range(past + 1):
                tap, line, target = taps[j], lines[s + j], out[row + s]
                for c in range(x.shape[1]):
                    target[c] += tap[c] * line[c]
            if slots[row + s] >= 0:
                history[slots[row + s]] = lines[s + 1 : s + 1 + past]


@jit
def _advance(
    segments: Integers,
    parents: Integers,
    slots: Integers,
    states: Array,
    pairs: Array,
    value: Array,
    decay: Array,
    beta: Array,
    out: Array,
) -> None:
    """S = decay S + key x delta with delta = beta (value - decay key S), and out = query S, along the paths.

    pairs are keys and queries [S, H, 2, K], value and out [S, H, V], states [slots, H, K, V]. Columns of a state do
    not depend on each other: as many as stay in the processor's cache are taken along all segments.
    """
    heads, _, depth = pairs.shape[1:]
    width, block = value.shape[2], LANES * VECTORS
    state = np.empty((depth, block), np.float32)
    both, change = np.empty((2, block), np.float32), np.empty(block, np.float32)
    places = np.empty(2, np.int64)
    for h in range(heads):
        for column in range(0, width, block):
            size = min(block, width - column)
            for i in range(len(segments)):
                count, row = segments[i, 2], segments[i, 3]
                if parents[i] < 0:
                    state[:] = 0
                else:
                    state[:, :size] = states[parents[i], h, :, column : column + size]
                for s in range(row, row + count):
                    places[0] = (s * heads + h) * 2 * depth
                    places[1] = places[0] + depth
                    multiply_tile(pairs, places, 0, 2, state, 0, block, depth, both, 0, block, size // LANES)
                    key, keep, overlap = pairs[s, h, 0], decay[s, h], np.float32(0)
                    for k in range(depth):
                        overlap += key[k] * pairs[s, h, 1, k]
                    for v in range(size):
                        change[v] = beta[s, h] * (value[s, h, column + v] - keep * both[0, v])
                        out[s, h, column + v] = keep * both[1, v] + overlap * change[v]
                    for k in range(depth):
                        for v in range(block):
                            state[k, v] = keep * state[k, v] + key[k] * change[v]
                    if slots[s] >= 0:
                        states[slots[s], h, :, column : column + size] = state[:, :size]
