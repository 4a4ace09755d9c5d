"""K-NN on hidden states of the rows that a readout names: the rival that asks whether routing says more than where it comes from.

A pool keeps routing and no hidden states, so the model passes over the rollouts again. Row t is the pass that predicts token t, as
for routing. The states are those of the residual stream behind every decoder layer, and of the last one behind its norm. A rollout's vector is their mean over its
rows, layer by layer; two rollouts are as alike as the mean over the layers of the cosine between their vectors, and what points away
counts as 0. Density and pick are then those of RAD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.readout import Reading, Span, locate_all, windows
from radmoe.selection.selector import Setting, choose
from radmoe.types import RolloutGroup, Selection


@torch.inference_mode()
def hidden_means(
    model: Any, prompt: Sequence[int], token_ids: Sequence[int], spans: Sequence[Span]
) -> NDArray[np.float32]:
    """The mean hidden state over the rows in `spans`, behind every decoder layer [layers, width].

    Cost: one pass over the prompt and the rollout up to the last row, with all hidden states of it in memory.
    """
    if not prompt:
        raise InputError("a rollout is passed over behind its prompt: give the prompt's tokens")
    stop = max((end for _, end in spans), default=0)
    if stop < 1 or stop > len(token_ids):
        raise InputError(f"rows {list(spans)} do not lie in a rollout of {len(token_ids)} tokens")
    inputs = torch.tensor([[*prompt, *token_ids[: stop - 1]]], device=model.device)
    states = model(input_ids=inputs, use_cache=False, logits_to_keep=1, output_hidden_states=True).hidden_states[1:]
    rows = torch.cat([torch.arange(start, end) for start, end in spans]) + len(prompt) - 1
    means = torch.stack([layer[0, rows.to(layer.device)].float().mean(0) for layer in states])
    return means.cpu().numpy()


def hidden_similarity(means: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """How alike rollouts are [n, n]: the mean over layers of the cosine of their vectors [layers, width], from 0 up."""
    if not means:
        return np.zeros((0, 0), np.float32)
    stacked = np.stack(means).astype(np.float64)
    unit = stacked / np.maximum(np.linalg.norm(stacked, axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    cosines = np.einsum("ild,jld->ijl", unit, unit)
    return np.asarray(np.clip(cosines, 0.0, 1.0).mean(axis=-1), np.float32)


def select_by_hidden(model: Any, group: RolloutGroup, prompt: Sequence[int], setting: Setting) -> Selection:
    """Pick as RAD does, by the hidden states of the rows that the setting's readout names instead of their routing.

    `model` is the transformers model that the rollouts come from, and `prompt` the tokens that they go on from.
    """
    anchors = tuple(locate_all(group, setting.readout, setting.kind))
    located = np.array([anchor is not None for anchor in anchors], bool)
    means = []
    for i in np.flatnonzero(located).tolist():
        rollout = group.rollouts[i]
        spans = windows(setting.readout, rollout.token_ids, group.vocab, setting.kind)
        means.append(hidden_means(model, prompt, rollout.token_ids.tolist(), spans))
    reading = Reading(np.zeros((len(means), 0), np.float32), located, anchors)
    return choose(group, hidden_similarity(means), reading, setting)
