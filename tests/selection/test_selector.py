"""Selection against a slow reference, on random and adversarial groups."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe import medoid, select, select_many
from radmoe.errors import InputError, ReadoutError
from radmoe.pool import open_pool
from radmoe.selection.confidence import rollout_confidence
from radmoe.selection.kernels.reference import reference_weighted_jaccard
from radmoe.selection.readout import read
from radmoe.selection.rule import Rule
from radmoe.selection.selector import choose, similarity
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup
from reference_kernels import reference_binary_jaccard, reference_knn_density

SHAPE = RouterShape(3, 12, 3)
LOCATED = planted.tokenizer().encode("So \\boxed{12} and that is all of it, as we said.").ids
LOST = planted.tokenizer().encode("So I cannot tell.").ids


def rollout(seed: int, *, located: bool = True) -> Rollout:
    """Equal seeds give bit-equal routing and confidence."""
    rng = np.random.default_rng(seed)
    ids = np.array(LOCATED if located else LOST, np.int32)
    experts = np.argsort(rng.random((len(ids), 3, 12)), axis=-1)[..., :3].astype(np.int16)
    weights = rng.dirichlet(np.ones(3), (len(ids), 3)).astype(np.float16)
    return Rollout(ids, experts, weights, None, -rng.gamma(2.0, 1.0, (len(ids), 5)))


def group(*rollouts: Rollout, kind: Kind | None = "math") -> RolloutGroup:
    return RolloutGroup("p", rollouts, SHAPE, planted.vocab(), kind)


def reference(g: RolloutGroup, k: int, kernel: str, fusion: str | None) -> tuple[int | None, np.ndarray]:
    """The paper's rule in plain NumPy: the pick and the densities."""
    reading = read(g, "delimiter@16", "math")
    members = [int(i) for i in np.flatnonzero(reading.located)]
    density = np.full(len(g), np.nan)
    if len(members) < 2:
        return None, density
    S = (reference_weighted_jaccard if kernel == "weighted" else reference_binary_jaccard)(reading.Z)
    S = {(i, j): S[a, b] for a, i in enumerate(members) for b, j in enumerate(members)}
    confidence = {i: rollout_confidence(g.rollouts[i].topk_logprobs) for i in members}
    if fusion == "conf50":
        members = sorted(sorted(members, key=lambda i: (-confidence[i], i))[: math.ceil(len(members) / 2)])
    neighbours = min(k, len(members) - 1)
    for i in members:
        density[i] = sum(sorted((S[i, j] for j in members if j != i), reverse=True)[:neighbours]) / max(neighbours, 1)
    near = np.array([np.nan if np.isnan(d) else next(e for e in density if abs(d - e) < 4e-7) for d in density])
    if fusion == "ranksum":

        def rank(values: dict[int, float], i: int) -> float:
            return sum(values[j] < values[i] for j in members) + (sum(values[j] == values[i] for j in members) + 1) / 2

        dense = {i: float(near[i]) for i in members}
        return max(members, key=lambda i: (rank(dense, i) + rank(confidence, i), confidence[i], -i)), density
    if fusion == "conf50":
        return max(members, key=lambda i: (near[i], confidence[i], -i)), density
    return max(members, key=lambda i: (near[i], -i)), density


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    members=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=14),
    k=st.integers(1, 12),
    kernel=st.sampled_from(["weighted", "binary"]),
    fusion=st.sampled_from([None, "conf50", "ranksum"]),
)
def test_selection_equals_the_reference(
    members: list[tuple[int, bool]], k: int, kernel: str, fusion: str | None
) -> None:
    """Seeds repeat, so groups hold ties, duplicates, all-equal and barely located ones."""
    g = group(*(rollout(seed, located=located) for seed, located in members))
    got = select(g, k=k, kernel=kernel, fusion=fusion)
    index, density = reference(g, k, kernel, fusion)
    assert got.index == index
    assert np.allclose(got.density, density, atol=1e-4, equal_nan=True)
    assert got.located.tolist() == [located for _, located in members]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=14), st.integers(1, 6))
def test_a_selection_says_why(seeds: list[int], k: int) -> None:
    g = group(*map(rollout, seeds))
    s = select(g, k=k)
    assert s.index is not None
    assert s.k == min(k, len(seeds) - 1)
    assert np.array_equal(s.score, s.density)
    assert s.density[s.index] == pytest.approx(s.density.max(), abs=1e-5)
    assert s.index <= int(np.argmax(s.density))
    assert len(s.neighbours) == s.k
    assert s.index not in s.neighbours
    assert s.index in s.basin
    assert s.roots[s.index] == s.index
    assert s.basin == tuple(np.flatnonzero(s.roots == s.index))
    others = np.flatnonzero(s.roots != s.index)
    if len(others):
        assert s.margin == pytest.approx(s.density[s.index] - s.density[others].max())
        assert s.margin >= -1e-5
    else:
        assert math.isnan(s.margin)
    for i, root in enumerate(s.roots):  # a mode is its own root, and no one climbs down
        assert s.roots[root] == root
        assert s.density[root] >= s.density[i] - 1e-5


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rollouts_abstain(n: int) -> None:
    s = select(group(*(rollout(i) for i in range(n))))
    assert s.index is None
    assert s.abstained
    assert (len(s.density), s.basin, s.k) == (n, (), 0)
    assert math.isnan(s.margin)


def test_two_rollouts_tie_and_the_first_wins() -> None:
    s = select(group(rollout(1), rollout(2)))
    assert (s.index, s.k) == (0, 1)
    assert s.density[0] == s.density[1]


def test_an_anchor_nobody_has_abstains() -> None:
    s = select(group(*(rollout(i, located=False) for i in range(5))))
    assert s.abstained
    assert not s.located.any()
    assert np.isnan(s.density).all()
    assert s.anchors == (None,) * 5


def test_one_located_rollout_abstains() -> None:
    assert select(group(rollout(1), *(rollout(i, located=False) for i in range(4)))).abstained


def test_all_equal_rollouts_pick_the_first() -> None:
    s = select(group(*[rollout(3)] * 9))
    assert s.index == 0
    assert np.all(s.density == 1.0)
    assert s.basin == tuple(range(9))


def test_duplicates_are_bit_equal_wherever_they_stand() -> None:
    seeds = [5, 1, 2, 5, 3, 4, 5]
    s = select(group(*map(rollout, seeds)), k=2)
    assert s.index == 0
    assert s.density[0] == s.density[3] == s.density[6]


def test_permuting_rollouts_permutes_the_density() -> None:
    seeds, order = list(range(12)), np.random.default_rng(0).permutation(12)
    one = select(group(*map(rollout, seeds)), k=4)
    two = select(group(*(rollout(seeds[i]) for i in order)), k=4)
    assert np.array_equal(one.density[order], two.density)
    assert order[two.index] == one.index


@pytest.mark.parametrize("n", [2, 4])
def test_conf50_of_two_or_four_is_the_most_confident(n: int) -> None:
    """What makes RAD+DC equal DC at m = 2 and 4 in the paper's scaling table."""
    for offset in range(20):
        g = group(*(rollout(offset * 10 + i) for i in range(n)))
        confidence = [rollout_confidence(r.topk_logprobs) for r in g.rollouts]
        assert select(g, fusion="conf50").index == int(np.argmax(confidence))


def test_conf50_scores_only_the_confident_half() -> None:
    g = group(*(rollout(i) for i in range(9)))
    s = select(g, fusion="conf50")
    confidence = np.array([rollout_confidence(r.topk_logprobs) for r in g.rollouts])
    assert set(np.flatnonzero(~np.isnan(s.density))) == set(np.argsort(-confidence)[:5])
    assert s.located.all()


def test_the_medoid_is_most_similar_to_all() -> None:
    g = group(*(rollout(i) for i in range(8)))
    S = reference_weighted_jaccard(read(g, "delimiter@16", "math").Z)
    assert medoid(g).index == int(np.argmax(S.sum(axis=1)))
    assert medoid(g).k == 7


def test_the_density_follows_the_crowd_where_the_medoid_stands_between() -> None:
    """Two tight basins and a bridge: RAD returns a member of the larger basin (Sec. 4.2)."""
    base = [rollout(seed) for seed in (100, 200)]

    def near(center: Rollout, rng: np.random.Generator) -> Rollout:
        experts = center.expert_ids.copy()
        swap = rng.random(experts.shape[:2]) < 0.1
        experts[swap] = experts[swap][:, ::-1]
        return Rollout(center.token_ids, experts, center.weights)

    rng = np.random.default_rng(1)
    rollouts = [near(base[0], rng) for _ in range(4)] + [near(base[1], rng) for _ in range(7)]
    s = select(group(*rollouts), k=3)
    assert s.index >= 4
    assert set(s.basin) <= set(range(4, 11))
    assert len(s.basin) >= 3
    assert s.margin > 0


def test_a_planted_basin_is_found() -> None:
    """With four planted answers the pick's basin is pure, and it is among the most popular."""
    for m in planted.groups(planted.Planted(problems=10, rollouts=48, tokens=60, agreement=0.4)):
        s = select(m.group)
        counts = Counter(a for a in m.answers if a is not None)
        assert {m.answers[i] for i in s.basin} == {m.answers[s.index]}
        assert len(s.basin) >= counts[m.answers[s.index]] // 3
        assert counts[m.answers[s.index]] >= 10


def test_agentic_rad_compares_sets_over_every_boundary() -> None:
    text = "<think>a</think> ls <think>b</think> done"
    ids = np.array(planted.tokenizer().encode(text).ids, np.int32)
    rollouts = []
    for seed in (1, 2, 1, 3):
        rng = np.random.default_rng(seed)
        experts = np.argsort(rng.random((len(ids), 3, 12)), axis=-1)[..., :3].astype(np.int16)
        rollouts.append(Rollout(ids, experts))
    s = select(group(*rollouts, kind="agent"))
    assert s.k == 3
    B = read(group(*rollouts), "boundary@union", "agent", binary=True).Z > 0
    assert np.allclose(s.density, reference_knn_density(reference_binary_jaccard(B), 4) / 3, atol=1e-5)
    assert s.index == 0


def test_threads_change_nothing(shared_pool: Path) -> None:
    pool = open_pool(shared_pool)
    one, three = (list(select_many(pool.groups(), threads=threads, k=4)) for threads in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert a.index == b.index
        assert np.array_equal(a.density, b.density, equal_nan=True)


def test_a_stored_group_selects_as_the_one_in_memory(made: list[PlantedGroup], shared_pool: Path) -> None:
    pool = open_pool(shared_pool)
    for m in made:
        stored = pool.group(m.group.problem_id)
        for options in (
            {},
            {"kernel": "binary"},
            {"readout": "boundary@16"},
            {"layers": "s0"},
            {"rule": Rule(budget=60)},
        ):
            a, b = select(m.group, **options), select(stored, **options)
            assert (a.index, a.basin, a.anchors) == (b.index, b.basin, b.anchors)
            assert np.array_equal(a.density, b.density, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0}, InputError, "k must be a whole number of neighbours from 1 up, got 0"),
        ({"k": 2.5}, InputError, "got 2.5"),
        ({"kernel": "cosine"}, InputError, "unknown kernel 'cosine': use one of weighted, binary"),
        ({"fusion": "dc"}, InputError, "unknown fusion 'dc': use one of conf50, ranksum"),
        ({"readout": "delimiter@0"}, ReadoutError, "reads nothing"),
        ({"readout": "foo@16"}, ReadoutError, "unknown readout family 'foo'"),
        ({"kind": "poetry"}, InputError, "unknown kind 'poetry': use one of math, choice, code, text, agent"),
    ],
)
def test_unknown_options_name_the_known_ones(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        select(group(rollout(1), rollout(2)), **options)  # type: ignore[arg-type]


def test_confidence_without_logprobs_says_what_is_missing() -> None:
    bare = [Rollout(r.token_ids, r.expert_ids, r.weights) for r in (rollout(1), rollout(2))]
    with pytest.raises(
        InputError, match=r"rollout 0 of problem 'p' has no top-k logprobs \(the column topk_logprobs\)"
    ):
        select(group(*bare), fusion="conf50")


def test_too_few_threads_are_refused(shared_pool: Path) -> None:
    with pytest.raises(InputError, match="threads must be at least 1"):
        list(select_many(open_pool(shared_pool).groups(), threads=0))


@pytest.mark.parametrize("fusion", [None, "conf50", "ranksum"])
def test_choosing_from_a_matrix_at_hand_is_selecting(fusion: str | None, made: list[PlantedGroup]) -> None:
    for planted_group in made:
        chosen_from = planted_group.group
        S, reading = similarity(chosen_from, Rule().settle("math"))
        confidence = [
            rollout_confidence(chosen_from.rollouts[i].topk_logprobs) for i in np.flatnonzero(reading.located)
        ]  # type: ignore[arg-type]
        one = choose(chosen_from, S, reading, Rule(fusion=fusion).settle("math"), confidence=np.array(confidence))
        other = select(chosen_from, fusion=fusion)
        assert (one.index, one.basin, one.neighbours, one.k) == (other.index, other.basin, other.neighbours, other.k)
        assert np.array_equal(one.density, other.density, equal_nan=True)


def test_a_rule_that_asks_for_confidence_must_get_it(made: list[PlantedGroup]) -> None:
    S, reading = similarity(made[0].group, Rule().settle("math"))
    for confidence in (None, np.zeros(1)):
        with pytest.raises(InputError, match="needs the confidence of each of the"):
            choose(made[0].group, S, reading, Rule(fusion="conf50").settle("math"), confidence=confidence)
