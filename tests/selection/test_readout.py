"""Readouts: their grammar, their windows, and the route vectors they give."""

from __future__ import annotations

import contextlib
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError, ReadoutError
from radmoe.pool import open_pool
from radmoe.selection.anchors import find_all, spec_for
from radmoe.selection.layers import layer_subset
from radmoe.selection.readout import Readout, read, route_matrix, same_anchors, windows
from radmoe.types import Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup
from vocabularies import small_vocab

SHAPE = RouterShape(2, 6, 2)
BOX = "The answer is \\boxed{7} because the sum is seven, as was to be shown in the end."


def group(*texts: str, seed: int = 0, weights: bool = True) -> RolloutGroup:
    rng = np.random.default_rng(seed)
    rollouts = []
    for text in texts:
        ids = planted.tokenizer().encode(text).ids
        experts = np.argsort(rng.random((len(ids), 2, 6)), axis=-1)[..., :2].astype(np.int16)
        mass = rng.dirichlet(np.ones(2), (len(ids), 2)).astype(np.float16) if weights else None
        rollouts.append(Rollout(np.array(ids), experts, mass))
    return RolloutGroup("p", rollouts, SHAPE, planted.vocab())


def mean_of_rows(rollout: Rollout, rows: list[int], layers: list[int] | None = None) -> np.ndarray:
    """Eq. 4, written out."""
    z = np.zeros((2, 6))
    for t in rows:
        for layer in range(2):
            for slot in range(2):
                weight = 0.5 if rollout.weights is None else float(rollout.weights[t, layer, slot])
                z[layer, rollout.expert_ids[t, layer, slot]] += weight / len(rows)
    return z[layers if layers is not None else [0, 1]].reshape(-1)


def delimiter(rollout: Rollout) -> tuple[int, int]:
    (anchor,) = find_all(spec_for("delimiter", "math", planted.vocab()), rollout.token_ids, planted.vocab())
    return anchor.start, anchor.length


@pytest.mark.parametrize(
    "text",
    [
        "delimiter@16",
        "delimiter@marker",
        "boundary@1",
        "trajectory:now#3@8",
        "trajectory:so*@16",
        "trajectory:so#shared@16",
        "trajectory-before:so*@16",
        "trajectory:.\n\n@4",
        "delimiter:Answer: @16",
        "boundary:a@b@2",
        "boundary@union",
        "rand@16",
        "rand-one-loc@16",
        "pre-delim@16",
        "closing@16",
        "closing@-16",
        "closing@marker",
        "delimiter@span",
        "all",
    ],
)
def test_readouts_parse_and_print_the_same(text: str) -> None:
    assert str(Readout.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delimiter@0", "reads nothing"),
        ("delimiter@-3", "width '-3' is unknown"),
        ("delimiter@1.5", "width '1.5' is unknown"),
        ("delimiter@end", "width 'end' is unknown"),
        ("foo@16", "unknown readout family 'foo': use one of trajectory, boundary, delimiter"),
        ("delimiter", "unknown readout 'delimiter': use family@width"),
        ("", "unknown readout ''"),
        ("@16", "unknown readout"),
        ("rand@marker", "rand has no marker"),
        ("rand:so@16", "takes no name"),
        ("trajectory#0@16", "count from 1"),
        ("boundary#2@union", "reads every occurrence"),
        ("closing@0", "reads nothing"),
        ("closing@-0", "reads nothing"),
        ("closing@--2", "width '--2' is unknown"),
        ("closing#2@16", "takes no name and no occurrence here: use closing@16"),
        ("closing:x@-16", "takes no name and no occurrence here: use closing@-16"),
        ("closing@union", "an answer closes once"),
        ("delimiter#1@span", "takes no name and no occurrence here: use delimiter@span"),
        ("boundary@span", "boundary has no span: only delimiter@span"),
        ("closing@span", "closing has no span"),
        ("rand@span", "rand has no marker"),
        ("delimiter@all", "width 'all' is unknown"),
        ("all@16", "unknown readout 'all@16'"),
        ("all@all", "unknown readout 'all@all'"),
    ],
)
def test_an_unknown_readout_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ReadoutError, match=message):
        Readout.parse(text)


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ReadoutError):
        assert Readout.parse(str(Readout.parse(text))) == Readout.parse(text)


@pytest.mark.parametrize("weights", [True, False])
def test_a_window_is_the_mean_of_its_rows(weights: bool) -> None:
    g = group(BOX, "So " + BOX, weights=weights)
    Z, located = route_matrix(g, "delimiter@5", "math")
    assert located.all()
    for z, rollout in zip(Z, g.rollouts, strict=True):
        start, _ = delimiter(rollout)
        assert z == pytest.approx(mean_of_rows(rollout, list(range(start, start + 5))), abs=1e-3)
        assert z.reshape(2, 6).sum(axis=1) == pytest.approx([1.0, 1.0], abs=2e-3)


def test_the_marker_readout_spans_all_tokens_of_the_marker() -> None:
    g = group(BOX)
    start, length = delimiter(g.rollouts[0])
    assert windows("delimiter@marker", g.rollouts[0].token_ids, g.vocab, "math") == [(start, start + length)]
    assert length > 1


def test_a_window_is_cut_at_the_end_and_averaged_over_what_exists() -> None:
    g = group("so \\boxed{7}")
    start, _ = delimiter(g.rollouts[0])
    length = len(g.rollouts[0])
    assert windows("delimiter@500", g.rollouts[0].token_ids, g.vocab, "math") == [(start, length)]
    Z, _ = route_matrix(g, "delimiter@500", "math")
    assert Z[0] == pytest.approx(mean_of_rows(g.rollouts[0], list(range(start, length))), abs=1e-3)


def test_a_rollout_without_the_anchor_has_no_row() -> None:
    g = group(BOX, "I cannot tell.", BOX)
    reading = read(g, "delimiter@16", "math")
    assert reading.located.tolist() == [True, False, True]
    assert reading.Z.shape == (2, 12)
    assert reading.anchors[1] is None
    assert (reading.anchors[0].start, reading.anchors[0].length) == delimiter(g.rollouts[0])


def test_a_group_of_none_has_no_rows() -> None:
    Z, located = route_matrix(RolloutGroup("p", [], SHAPE, planted.vocab()))
    assert (Z.shape, located.shape) == ((0, 12), (0,))


def closing(rollout: Rollout) -> int:
    (anchor,) = find_all(spec_for("closing", "math", planted.vocab()), rollout.token_ids, planted.vocab())
    return anchor.start


@pytest.mark.parametrize("weights", [True, False])
def test_whole_answers_and_what_is_around_their_end_are_means_of_their_rows(weights: bool) -> None:
    g = group(BOX, "So " + BOX, "Now \\boxed{12345}", weights=weights)
    for readout, rows in (
        ("delimiter@span", lambda a, c, end: range(a, c + 1)),
        ("closing@-4", lambda a, c, end: range(max(0, c - 4), c)),
        ("closing@-500", lambda a, c, end: range(c)),
        ("closing@3", lambda a, c, end: range(c, min(c + 3, end))),
        ("all", lambda a, c, end: range(end)),
    ):
        Z, located = route_matrix(g, readout, "math")
        assert located.all()
        for z, rollout in zip(Z, g.rollouts, strict=True):
            own = list(rows(delimiter(rollout)[0], closing(rollout), len(rollout)))
            assert z == pytest.approx(mean_of_rows(rollout, own), abs=1e-3)
            assert z.reshape(2, 6).sum(axis=1) == pytest.approx([1.0, 1.0], abs=3e-3)  # however many rows it has


def test_an_answer_that_never_closes_is_located_by_its_opening_alone() -> None:
    g = group(BOX, "so \\boxed{7", "so \\boxed{\\frac{1}{2}", "I cannot tell.")
    for readout, located in (
        ("delimiter@16", [True, True, True, False]),
        ("closing@-16", [True, False, False, False]),
        ("closing@16", [True, False, False, False]),
        ("delimiter@span", [True, False, False, False]),
        ("all", [True, True, True, True]),
    ):
        assert read(g, readout, "math").located.tolist() == located, readout


def test_an_answer_that_closes_at_once_has_no_row_before_its_closing() -> None:
    vocab = small_vocab(["\\boxed{7}", "a"])
    rng = np.random.default_rng(0)
    experts = np.argsort(rng.random((2, 2, 6)), axis=-1)[..., :2].astype(np.int16)
    g = RolloutGroup("p", [Rollout(np.array(ids), experts) for ids in ([0, 1], [1, 0])], SHAPE, vocab, "math")
    assert read(g, "closing@-16").located.tolist() == [False, True]
    assert read(g, "closing@16").located.tolist() == [True, True]
    assert windows("delimiter@span", np.array([0, 1], np.int32), vocab, "math") == [(0, 1)]
    assert not same_anchors("closing@16", "closing@-16")  # since not the same rollouts are located


def test_under_a_budget_what_closes_must_be_there() -> None:
    g = group(BOX)
    c, end = closing(g.rollouts[0]), len(g.rollouts[0])
    for readout, least in (("delimiter@span", c + 1), ("closing@-4", c + 1), ("closing@3", c + 3), ("all", 1)):
        for budget, fits in ((least, True), (least - 1, False), (end, True)):
            if budget:
                assert read(g, readout, "math", budget=budget).located.tolist() == [fits], (readout, budget)
    Z, _ = route_matrix(g, "all", "math", budget=5)
    assert Z[0] == pytest.approx(mean_of_rows(g.rollouts[0], list(range(5))), abs=1e-3)
    assert not read(g, f"closing@-{c + 1}", "math", whole=True).located.any()
    assert read(g, f"closing@-{c}", "math", whole=True).located.all()


@pytest.mark.parametrize("readout", ["delimiter@16", "delimiter@span", "closing@-16", "all", "boundary@union"])
def test_rows_held_at_once_change_no_bit(
    made: list[PlantedGroup], readout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "agent" if readout == "boundary@union" else "math"
    whole = read(made[0].group, readout, kind)
    for rows in (1, 7, 50):
        monkeypatch.setattr("radmoe.selection.routes.ROWS", rows)
        assert np.array_equal(read(made[0].group, readout, kind).Z, whole.Z)


def test_rollouts_with_and_without_weights_go_into_one_group() -> None:
    weighted, plain = group(BOX, seed=1), group(BOX, seed=2, weights=False)
    mixed = [weighted.rollouts[0], plain.rollouts[0], weighted.rollouts[0]]
    Z, _ = route_matrix(RolloutGroup("p", mixed, SHAPE, planted.vocab(), "math"), "delimiter@5")
    assert np.array_equal(Z[0], Z[2])
    for row, one in ((0, weighted), (1, plain)):
        assert np.array_equal(Z[row], route_matrix(one, "delimiter@5", "math")[0][0])


def test_under_a_budget_the_whole_window_must_fit() -> None:
    g = group(BOX)
    start, _ = delimiter(g.rollouts[0])
    for budget, fits in ((start + 8, True), (start + 7, False), (1, False)):
        assert route_matrix(g, "delimiter@8", "math", budget=budget)[1].tolist() == [fits]
    with pytest.raises(InputError, match="budget must be at least 1 token, got 0"):
        route_matrix(g, "delimiter@8", "math", budget=0)


def test_trajectory_readouts_take_the_occurrence_asked_for() -> None:
    g = group("So a. So b. So c. Now d.")
    ids = g.rollouts[0].token_ids
    found = [a.start for a in find_all(spec_for("trajectory", "math", g.vocab), ids, g.vocab)]
    assert len(found) == 3
    for text, start in (("trajectory@1", found[0]), ("trajectory#2@1", found[1]), ("trajectory:so*@1", found[2])):
        assert windows(text, ids, g.vocab, "math") == [(start, start + 1)]
    assert windows("trajectory#4@1", ids, g.vocab, "math") == []
    Z, located = route_matrix(g, "trajectory:so*@1", "math", budget=found[2])
    assert located.tolist() == [True]
    assert Z[0] == pytest.approx(mean_of_rows(g.rollouts[0], [found[1]]), abs=1e-3)


def test_a_shared_round_is_the_last_that_all_located_rollouts_reach() -> None:
    g = group("So a. So b. So c. So d.", "So a. So b. So c.", "No word of it.")
    spec = spec_for("trajectory", "math", g.vocab)
    starts = [[a.start for a in find_all(spec, rollout.token_ids, g.vocab)] for rollout in g.rollouts]
    assert [len(own) for own in starts] == [4, 3, 0]
    anchors = read(g, "trajectory:so#shared@1", "math").anchors
    assert [a and a.start for a in anchors] == [starts[0][2], starts[1][2], None]
    budget = max(starts[0][1], starts[1][1]) + 1
    anchors = read(g, "trajectory:so#shared@1", "math", budget=budget).anchors
    assert [a and a.start for a in anchors] == [starts[0][1], starts[1][1], None]
    width = len(g.rollouts[1]) - starts[1][1]
    anchors = read(g, f"trajectory:so#shared@{width}", "math", whole=True).anchors
    assert anchors[1] is not None
    assert anchors[1].start == starts[1][1]
    with pytest.raises(ReadoutError, match="depends on the other rollouts of a group"):
        windows("trajectory:so#shared@1", g.rollouts[0].token_ids, g.vocab, "math")


def test_a_shared_round_of_none_locates_nobody() -> None:
    assert not read(group("Nothing.", "Nothing more."), "trajectory:so#shared@4", "math").located.any()


def test_trajectory_tokens_behind_the_delimiter_do_not_count_before_it() -> None:
    g = group("So a. So b. \\boxed{7} So c.", "So a. So b.", "\\boxed{7} So c.")
    spec = spec_for("trajectory", "math", g.vocab)
    starts = [[a.start for a in find_all(spec, rollout.token_ids, g.vocab)] for rollout in g.rollouts]
    latest = read(g, "trajectory-before:so*@1", "math").anchors
    assert [a and a.start for a in latest] == [starts[0][1], starts[1][1], None]
    box, _ = delimiter(g.rollouts[0])
    fitting = read(g, f"trajectory-before:so*@{box - starts[0][1] + 1}", "math").anchors[0]
    assert fitting is not None
    assert fitting.start == starts[0][0]  # the second window would reach into the delimiter
    assert read(g, "trajectory:so*@1", "math").anchors[0].start == starts[0][2]  # type: ignore[union-attr]
    shared = read(g, "trajectory-before:so#shared@1", "math").anchors
    assert [a and a.start for a in shared] == [starts[0][1], starts[1][1], None]


def test_a_window_that_must_be_whole_is_not_cut_at_the_end() -> None:
    g = group("So a. So b. So c.")
    starts = [a.start for a in find_all(spec_for("trajectory", "math", g.vocab), g.rollouts[0].token_ids, g.vocab)]
    width = len(g.rollouts[0]) - starts[1]
    for whole, start in ((False, starts[2]), (True, starts[1])):
        assert read(g, f"trajectory:so*@{width}", "math", whole=whole).anchors[0].start == start  # type: ignore[union-attr]
    assert not read(g, "trajectory:so*@500", "math", whole=True).located.any()


def test_a_marker_of_ones_own_is_found() -> None:
    g = group("x. FINAL: 7", "FINAL")
    assert route_matrix(g, "delimiter:FINAL:@2", "math")[1].tolist() == [True, False]


def test_the_pre_delimiter_window_ends_where_the_delimiter_begins() -> None:
    g = group(BOX, "\\boxed{1}")
    start, _ = delimiter(g.rollouts[0])
    assert windows("pre-delim@3", g.rollouts[0].token_ids, g.vocab, "math") == [(start - 3, start)]
    assert windows("pre-delim@500", g.rollouts[0].token_ids, g.vocab, "math") == [(0, start)]
    assert route_matrix(g, "pre-delim@3", "math")[1].tolist() == [True, False]


def test_random_controls_read_as_many_rows_and_repeat_with_their_seed() -> None:
    g = group(*[BOX] * 20)
    for kind in ("rand@4", "rand-one-loc@4"):
        one, two, other = (read(g, kind, "math", seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.Z, two.Z)
        assert not np.array_equal(one.Z, other.Z)
        assert one.located.all()
        assert len({a.start for a in one.anchors}) > 3
        for z, rollout, anchor in zip(one.Z, g.rollouts, one.anchors, strict=True):
            if kind == "rand-one-loc@4":
                rows = list(range(anchor.start, anchor.start + 4))
                assert z == pytest.approx(mean_of_rows(rollout, rows), abs=1e-3)
            assert z.sum() == pytest.approx(2.0, abs=1e-2)
    with pytest.raises(ReadoutError, match="no fixed window"):
        windows("rand@4", g.rollouts[0].token_ids, g.vocab, "math")


def test_the_union_fingerprint_covers_every_boundary() -> None:
    g = group("<think>a</think> act <think>b</think> act", "no thought")
    reading = read(g, "boundary@union", "agent", binary=True)
    assert reading.located.tolist() == [True, False]
    ids = g.rollouts[0].token_ids
    ends = np.flatnonzero(ids == g.vocab.special_id("</think>"))
    assert len(ends) == 2
    expected = np.zeros((2, 6), bool)
    for t in ends:
        for layer in range(2):
            expected[layer, g.rollouts[0].expert_ids[t, layer]] = True
    assert np.array_equal(reading.Z[0] > 0, expected.reshape(-1))


def test_layer_subsets_follow_the_paper() -> None:
    assert layer_subset(None, 24).tolist() == list(range(24))
    assert layer_subset("s0", 24).tolist() == [0, 1]
    assert layer_subset("s9", 24).tolist() == [21, 22, 23]
    assert layer_subset("c2", 24).tolist() == list(range(7))
    assert layer_subset("x9", 24).tolist() == list(range(21))
    assert layer_subset("0-2, 7", 24).tolist() == [0, 1, 2, 7]
    assert layer_subset([5, 3, 3], 24).tolist() == [3, 5]
    for total in (10, 24, 36, 48):
        deciles = [layer_subset(f"s{i}", total).tolist() for i in range(10)]
        assert list(chain(*deciles)) == list(range(total))
        assert list(chain(*deciles[:4])) == layer_subset("c3", total).tolist()


@pytest.mark.parametrize(
    ("layers", "message"),
    [("s3", "empty"), ("q1", "unknown layer subset"), ("0-9", "leaves layers 0..3"), ([-1], "leaves"), ([], "empty")],
)
def test_layer_subsets_that_do_not_fit_are_refused(layers: object, message: str) -> None:
    with pytest.raises(ReadoutError, match=message):
        layer_subset(layers, 4)  # type: ignore[arg-type]


def test_a_layer_subset_keeps_those_blocks_only() -> None:
    g = group(BOX)
    start, _ = delimiter(g.rollouts[0])
    Z, _ = route_matrix(g, "delimiter@4", "math", layers=[1])
    assert Z[0] == pytest.approx(mean_of_rows(g.rollouts[0], list(range(start, start + 4)), [1]), abs=1e-3)


def test_a_stored_group_gives_the_same_vectors(made: list[PlantedGroup], shared_pool: Path) -> None:
    stored = open_pool(shared_pool)
    for m in made:
        for readout in (
            "delimiter@16",
            "delimiter@marker",
            "boundary@16",
            "trajectory@16",
            "rand@16",
            "boundary@union",
            "closing@16",
            "closing@-16",
            "delimiter@span",
            "all",
        ):
            memory = read(m.group, readout, "math")
            disk = read(stored.group(m.group.problem_id), readout, "math")
            assert np.array_equal(memory.Z, disk.Z)
            assert memory.anchors == disk.anchors


def test_anchors_found_once_serve_every_width(made: list[PlantedGroup]) -> None:
    group = made[0].group
    assert same_anchors("delimiter@16", "delimiter@marker")
    wide = read(group, "delimiter@16", "math")
    again = read(group, "delimiter@marker", "math", anchors=wide.anchors)
    alone = read(group, "delimiter@marker", "math")
    assert again.anchors == alone.anchors
    assert np.array_equal(again.Z, alone.Z)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("delimiter@16", "boundary@16"),
        ("trajectory:so@16", "trajectory:now@16"),
        ("trajectory:so#1@16", "trajectory:so#2@16"),
        ("trajectory-before:so*@16", "trajectory-before:so*@8"),
        ("rand@16", "rand@8"),
        ("boundary@marker", "boundary@union"),
        ("delimiter@16", "delimiter@span"),
        ("delimiter@span", "delimiter@span"),
        ("all", "all"),
        ("closing@-16", "closing@16"),
    ],
)
def test_other_readouts_have_anchors_of_their_own(one: str, other: str) -> None:
    assert not same_anchors(one, other)
