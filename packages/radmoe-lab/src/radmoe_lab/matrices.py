"""Which rollouts agree, computed where they are sampled: routing is large and stays there, similarities are 4 KB per problem and readout.

A problem's rollouts are compared as `radmoe.selection` compares them, by torch instead of compiled code, so that this runs where
there is little but torch. `Matrices.write` keeps them for the problems that are complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from radmoe.engines.base import Completion
from radmoe.errors import InputError
from radmoe.selection.confidence import bottom_window, mean, tail, token_confidence
from radmoe.selection.readout import READERS, Place, Readout
from radmoe.types import Kind, RouterShape
from radmoe.vocab import Vocab

WINDOWS = (32, 128, 512)  # tokens of DeepConf's window; the paper's 2,048 are a sixteenth of its budget
_HEADER = "header"


@dataclass(frozen=True)
class MatrixSpec:
    """A readout with its budget and kernel, as in `delimiter@16`, `trajectory:so*@16 budget=256` or `delimiter@16 binary`."""

    readout: Readout
    budget: int | None = None
    binary: bool = False

    @classmethod
    def parse(cls, text: str) -> MatrixSpec:
        name, *options = text.split()
        budget, binary = None, False
        for option in options:
            if option == "binary":
                binary = True
            elif option.startswith("budget=") and option[7:].isdecimal():
                budget = int(option[7:])
            else:
                raise InputError(f"{option!r} in {text!r} is unknown: use binary or budget=256")
        return cls(Readout.parse(name), budget, binary)


def similarities(Z: torch.Tensor, *, binary: bool) -> torch.Tensor:
    """Weighted or binary Jaccard [n, n] between route vectors [n, S]."""
    rows = (Z > 0).float() if binary else Z
    sums = rows.sum(1)
    least = torch.stack([torch.minimum(row, rows).sum(1) for row in rows])
    return least / (sums[:, None] + sums[None] - least)


def route_vectors(
    spans: Sequence[Sequence[tuple[int, int]]], ids: torch.Tensor, weights: torch.Tensor, experts: int
) -> torch.Tensor:
    """The mean routing [n, L * E] over each rollout's tokens in `spans`; ids and weights are [tokens, L, K]."""
    layers = ids.shape[1]
    counts = [sum(stop - start for start, stop in own) for own in spans]
    at = np.concatenate([np.arange(start, stop) for own in spans for start, stop in own])
    place = torch.as_tensor(at, device=ids.device)
    owner = torch.as_tensor(np.repeat(np.arange(len(spans)), counts), device=ids.device)
    scale = torch.as_tensor(1.0 / np.repeat(counts, counts), dtype=torch.float32, device=ids.device)
    cell = (owner[:, None] * layers + torch.arange(layers, device=ids.device))[..., None] * experts + ids[place].long()
    Z = torch.zeros(len(spans) * layers * experts, device=ids.device)
    Z.index_add_(0, cell.flatten(), (weights[place].float() * scale[:, None, None]).flatten())
    return Z.view(len(spans), layers * experts)


class Matrices:
    """Collects the rollouts of problems in any order and compares those of a problem once it has all n."""

    def __init__(
        self,
        reads: Sequence[str],
        problems: Sequence[tuple[str, Kind]],
        n: int,
        vocab: Vocab,
        shape: RouterShape,
        device: Any,
    ) -> None:
        self._names, self._reads = list(reads), [MatrixSpec.parse(text) for text in reads]
        self._problems, self._n, self._vocab, self._shape, self._device = problems, n, vocab, shape, device
        self._waiting: dict[int, dict[int, Completion]] = {}
        self._done: dict[int, dict[str, NDArray[Any]]] = {}

    def add(self, completion: Completion) -> None:
        waiting = self._waiting.setdefault(completion.prompt_index, {})
        waiting[completion.rollout_index] = completion
        if len(waiting) == self._n:
            members = [one.rollout for _, one in sorted(self._waiting.pop(completion.prompt_index).items())]
            self._done[completion.prompt_index] = self._compare(members, self._problems[completion.prompt_index][1])

    @torch.inference_mode()
    def _compare(self, members: Sequence[Any], kind: Kind) -> dict[str, NDArray[Any]]:
        starts = np.cumsum([0, *map(len, members)])
        ids, weights = (
            torch.from_numpy(np.concatenate(parts)).to(self._device)
            for parts in ([one.expert_ids for one in members], [one.weights for one in members])
        )
        upper = np.triu_indices(self._n, 1)
        S = np.zeros((len(self._reads), len(upper[0])), np.float16)
        anchors = np.full((len(self._reads), self._n), -1, np.int32)
        for r, one in enumerate(self._reads):
            spans = list[list[tuple[int, int]]]()
            for i, member in enumerate(members):
                place = Place(member.token_ids, self._vocab, kind, one.budget)
                anchor, own = READERS[one.readout.family](one.readout, place)
                if anchor is not None:
                    anchors[r, i] = anchor.start
                    spans.append([(start + starts[i], stop + starts[i]) for start, stop in own])
            located = np.flatnonzero(anchors[r] >= 0)
            if len(located) > 1:
                Z = route_vectors(spans, ids, weights, self._shape.experts)
                whole = np.zeros((self._n, self._n), np.float16)
                whole[np.ix_(located, located)] = similarities(Z, binary=one.binary).cpu().numpy()
                S[r] = whole[upper]
        return {"similarities": S, "anchors": anchors, "confidences": _confidences(members)}

    def write(self, path: Path, header: dict[str, Any]) -> None:
        """Write the matrices of complete problems: similarities [P, R, pairs], anchors [P, R, n] (-1: not located) and confidences [P, n, C]."""
        numbers = sorted(self._done)
        header = header | {"problems": [self._problems[i][0] for i in numbers], "reads": self._names, "n": self._n}
        header["confidences"] = ["mean", *(f"{name}-{w}" for w in WINDOWS for name in ("cbw", "tail"))]
        arrays: dict[str, NDArray[Any]] = (
            {name: np.stack([self._done[i][name] for i in numbers]) for name in self._done[numbers[0]]}
            if numbers
            else {}
        )
        arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        partial.rename(path)


def _confidences(members: Sequence[Any]) -> NDArray[np.float32]:
    rows = []
    for member in members:
        token = token_confidence(member.topk_logprobs)
        rows.append([mean(token), *(scalar(token, w) for w in WINDOWS for scalar in (bottom_window, tail))])
    return np.array(rows, np.float32)


def read_matrices(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of a file that `Matrices.write` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        return json.loads(bytes(arrays[_HEADER])), {name: arrays[name] for name in arrays.files if name != _HEADER}


def square(pairs: NDArray[np.float16], n: int) -> NDArray[np.float32]:
    """The matrix [n, n] of a problem's pairs, 1 on its diagonal."""
    S = np.eye(n, dtype=np.float32)
    S[np.triu_indices(n, 1)] = pairs
    return np.maximum(S, S.T)
