"""Continuations of one prompt as a tree, in which tokens that follow the same tokens are one node.

Rollouts of a prompt begin alike, so that a quarter to a third of their tokens need not be passed again. A node has a larger
number than its parent. The nodes that a rollout adds to those of the rollouts before it have consecutive numbers, and are
called its own. A pass takes nodes of consecutive numbers; the own nodes of one rollout among them are a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Nodes first .. last - 1 of a tree, which are passed together.

    `segments` has a row for each: where its rollout's path begins in `Tree.paths`, how many nodes of the path come
    before it, how many it has, and its first row in the pass.
    """

    first: int
    last: int
    segments: Integers


@dataclass(frozen=True)
class Tree:
    """Tokens and depths of the nodes [U], and the nodes of every rollout's path: paths[begins[i] : begins[i + 1]]."""

    tokens: Integers
    depths: Integers
    paths: Integers
    begins: Integers
    parts: tuple[Part, ...]

    def path(self, rollout: int) -> Integers:
        return self.paths[self.begins[rollout] : self.begins[rollout + 1]]

    def slots(self) -> tuple[Integers, int]:
        """A number for each node after which a segment begins, -1 for the others [U], and how many have one."""
        slots = np.full(len(self.tokens), -1, np.int64)
        for part in self.parts:
            begun = part.segments[part.segments[:, 1] > 0]
            slots[self.paths[begun[:, 0] + begun[:, 1] - 1]] = 0
        branches = np.flatnonzero(slots == 0)
        slots[branches] = np.arange(len(branches))
        return slots, len(branches)


def grow(sequences: Sequence[Sequence[int]], positions: int) -> Tree:
    """The tree of some sequences, none of them empty; no part of it has more than so many nodes."""
    arrays = [np.asarray(sequence, np.int64) for sequence in sequences]
    lengths = np.array([len(array) for array in arrays])
    begins = np.concatenate([[0], np.cumsum(lengths)])
    paths = np.empty(begins[-1], np.int64)
    tokens, depths, own = [], [], []
    count, before = 0, -1
    for i in sorted(range(len(arrays)), key=lambda i: tuple(sequences[i])):
        common = 0 if before < 0 else _common(arrays[before], arrays[i])
        path = paths[begins[i] : begins[i + 1]]
        path[:common] = paths[begins[before] : begins[before] + common]
        path[common:] = np.arange(count, count + len(path) - common)
        tokens.append(arrays[i][common:])
        depths.append(np.arange(common, len(path)))
        own.append((i, count, common, len(path) - common))
        count, before = count + len(path) - common, i
    parts = tuple(_parts(own, begins, count, positions))
    return Tree(np.concatenate(tokens), np.concatenate(depths), paths, begins, parts)


def _common(a: Integers, b: Integers) -> int:
    """How many elements two arrays begin with alike."""
    shorter = min(len(a), len(b))
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(different[0]) if len(different) else shorter


def _parts(own: list[tuple[int, int, int, int]], begins: Integers, count: int, positions: int) -> Iterator[Part]:
    """Parts of about the same size."""
    cuts = np.linspace(0, count, -(-count // positions) + 1).astype(np.int64)
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        segments = []
        for rollout, node, depth, nodes in own:
            start, stop = max(node, first), min(node + nodes, last)
            if start < stop:
                segments.append((begins[rollout], depth + start - node, stop - start, start - first))
        yield Part(first, last, np.array(segments, np.int64))
