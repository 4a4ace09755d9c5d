"""The tree of some sequences."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from radmoe_lab.inference.tree import grow

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


@given(SEQUENCES, st.integers(1, 20))
def test_paths_spell_their_sequences_and_no_beginning_is_there_twice(
    sequences: list[list[int]], positions: int
) -> None:
    tree = grow(sequences, positions)
    for i, sequence in enumerate(sequences):
        path = tree.path(i)
        assert tree.tokens[path].tolist() == sequence
        assert tree.depths[path].tolist() == list(range(len(sequence)))
    beginnings = {tuple(one[: k + 1]) for one in sequences for k in range(len(one))}
    assert len(tree.tokens) == len(beginnings)


@given(SEQUENCES, st.integers(1, 20))
def test_parts_cover_the_nodes_in_order_and_segments_follow_what_was_passed(
    sequences: list[list[int]], positions: int
) -> None:
    tree = grow(sequences, positions)
    slots, count = tree.slots()
    assert sorted(slots[slots >= 0]) == list(range(count))
    nodes = []
    for part in tree.parts:
        assert 0 < part.last - part.first <= positions
        for begin, before, length, row in part.segments.tolist():
            path = tree.paths[begin : begin + before + length]
            assert path[before:].tolist() == list(range(part.first + row, part.first + row + length))
            assert set(path[:before]) <= set(nodes)
            assert before == 0 or slots[path[before - 1]] >= 0
            nodes += path[before:].tolist()
    assert nodes == list(range(len(tree.tokens)))


def test_one_sequence_is_a_chain() -> None:
    tree = grow([[7, 8, 9]], 2)
    assert tree.tokens.tolist() == [7, 8, 9]
    assert np.array_equal(tree.path(0), [0, 1, 2])
    assert [(part.first, part.last) for part in tree.parts] == [(0, 1), (1, 3)]
