"""Replay of small models on a CPU: all continuations of one prompt are passed as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache

from radmoe.engines.base import Forced
from radmoe.engines.torch.force import LOGITS_BYTES, force
from radmoe.engines.torch.kv_cache import ATTENTION
from radmoe.engines.torch.routers import RouterRecorder
from radmoe.engines.torch.topk import largest
from radmoe_lab.inference.tree import Tree, grow
from radmoe_lab.inference.tree_layers import TREE_ATTENTION, Unfit, Walk, teach

_SAME = 1e-3  # how far the log-probabilities of two ways to compute a tiny tree may be apart
_SEEN = 20  # log-probabilities that are compared
_FEW = 8  # positions of a pass over the tiny tree, so that it has several parts
_POSITIONS = 1024  # of a pass: more leave the processor's cache
_NODES = 32768  # of a tree, and
_ROLLOUTS = 64  # of a tree: it keeps keys, values and states


def knows_trees(model: Any, recorder: RouterRecorder) -> bool:
    """Whether passes over trees work for this model: float32 on a CPU, known layers, and equal results on a small
    example.
    """
    known = model.config._attn_implementation in (ATTENTION, TREE_ATTENTION)  # the second once it was taught
    if model.device.type != "cpu" or model.dtype != torch.float32 or not known:
        return False
    teach(model)
    vocab = int(model.config.get_text_config().vocab_size)
    tokens = np.random.default_rng(0).integers(vocab, size=40).tolist()
    tails = [tokens[:12], [*tokens[:6], *tokens[12:20]], [*tokens[:9], *tokens[20:22]], tokens[22:34]]
    try:
        mine = force_tree(model, recorder, tokens[34:], tails, topk_logprobs=_SEEN, positions=_FEW)
    except Unfit:
        return False
    theirs = force(model, recorder, tokens[34:], tails, topk_logprobs=_SEEN)
    return all(_close(a.topk_logprobs, b.topk_logprobs) for a, b in zip(mine, theirs, strict=True))


def _close(a: NDArray[np.float32] | None, b: NDArray[np.float32] | None) -> bool:
    return a is not None and b is not None and bool((np.abs(a - b) <= _SAME).all())


@torch.inference_mode()
def force_tree(
    model: Any,
    recorder: RouterRecorder,
    prompt: Sequence[int],
    tails: Sequence[Sequence[int]],
    *,
    topk_logprobs: int,
    positions: int = _POSITIONS,
) -> list[Forced]:
    """Do what `force.force` does as passes over trees, with at most this many positions in a pass."""
    if topk_logprobs:
        positions = min(positions, max(LOGITS_BYTES // (4 * int(model.config.get_text_config().vocab_size)), 1))
    windows = [getattr(layer, "sliding_window", None) for layer in DynamicCache(config=model.config).layers]
    forced: dict[int, Forced] = {}
    for members in _groups(tails):
        own = [tails[i] for i in members]
        tree = grow([[*prompt, *tail[:-1]] for tail in own], positions)
        columns = _columns(model, recorder, tree, Walk(tree, windows), len(prompt) - 1, own, topk_logprobs)
        forced |= zip(members, columns, strict=True)
    return [forced[i] for i in range(len(tails))]


def _groups(tails: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Group rollouts in the order of their tokens, so that those with long common beginnings share a tree."""
    order = sorted(range(len(tails)), key=lambda i: tuple(tails[i]))
    group: list[int] = []
    for i in order:
        if group and (len(group) == _ROLLOUTS or sum(len(tails[j]) for j in (*group, i)) > _NODES):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _columns(
    model: Any,
    recorder: RouterRecorder,
    tree: Tree,
    walk: Walk,
    first: int,
    tails: Sequence[Sequence[int]],
    topk_logprobs: int,
) -> Iterator[Forced]:
    """Yield what is requested of each rollout: rows `first` and later of its path."""
    paths = [tree.path(i)[first : first + len(tail)] for i, tail in enumerate(tails)]
    nodes, tokens = np.concatenate(paths), np.concatenate([np.asarray(tail, np.int64) for tail in tails])
    sampled = np.empty(len(nodes), np.float32)
    parts = []
    for part in tree.parts:
        inputs, positions = (torch.from_numpy(x[None, part.first : part.last]) for x in (tree.tokens, tree.depths))
        with walk.passing(part), recorder.recording():
            output = model(
                input_ids=inputs, position_ids=positions, use_cache=False, logits_to_keep=0 if topk_logprobs else 1
            )
        columns = [x.transpose(0, 1).numpy() for x in recorder.take()]
        if topk_logprobs:
            logits = output.logits[0].float()
            whole = logits.logsumexp(-1, keepdim=True)
            columns.append((largest(logits, min(topk_logprobs, logits.shape[1])) - whole).numpy())
            here = np.flatnonzero((nodes >= part.first) & (nodes < part.last))
            at = nodes[here] - part.first
            sampled[here] = logits.numpy()[at, tokens[here]] - whole.numpy()[at, 0]
        parts.append(columns)
    whole_columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    begins = np.cumsum([0, *map(len, tails)])
    for i, path in enumerate(paths):
        ids, weights, *top = (column[path] for column in whole_columns)
        yield Forced(ids, weights, *([sampled[begins[i] : begins[i + 1]], *top] if topk_logprobs else []))
