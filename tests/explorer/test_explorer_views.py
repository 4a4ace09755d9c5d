"""A problem as a page shows it: the selection that select makes, and what it rests on."""

from __future__ import annotations

import numpy as np
import pytest

from odd_pools import SHAPE, agent_rollout, rollout_of
from radmoe.errors import ReadoutError, RolloutError
from radmoe.explorer import Verdicts, encode_problem, usual_settings
from radmoe.explorer.texts import ANSWER
from radmoe.explorer.views import view_arrays, view_of
from radmoe.selection.readout import windows
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe.types import Rollout, RolloutGroup
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup
from unpacked import unpack


def test_a_view_holds_the_selection_and_its_similarities(made: list[PlantedGroup]) -> None:
    group = made[1].group
    setting = Rule().settle("math")
    view = view_of(group, setting)
    assert view is not None
    pick, arrays = select(group), view_arrays(group, view)
    S, reading = similarity(group, setting)
    members = arrays["members"].astype(int)
    n = len(members)
    assert members[0] == pick.index
    assert sorted(members) == np.flatnonzero(reading.located).tolist()
    assert set(members[: len(pick.basin)]) == set(pick.basin)
    assert members[arrays["root"]].tolist() == pick.roots[members].tolist()
    assert np.allclose(arrays["density"], pick.density[members])
    places = np.searchsorted(np.flatnonzero(reading.located), members)
    assert np.abs(arrays["similar"] / 255 - S[np.ix_(places, places)][np.triu_indices(n, 1)]).max() <= 0.5 / 255 + 1e-6
    assert set(members[arrays["near"][0]]) == set(pick.neighbours)


def test_experts_are_counted_over_the_tokens_of_the_windows(made: list[PlantedGroup]) -> None:
    group = made[0].group
    view = view_of(group, Rule().settle("math"))
    assert view is not None
    arrays = view_arrays(group, view)
    counts = arrays["usual"][:, :, None].astype(int) + arrays["more"]
    for place, i in enumerate(arrays["members"]):
        ((start, stop),) = windows("delimiter@16", group.rollouts[i].token_ids, group.vocab, "math")
        ids, _ = group.rollouts[i].rows(start, stop)
        expected = np.zeros((group.shape.layers, group.shape.experts), int)
        for row in ids:
            for layer, experts in enumerate(row):
                expected[layer, experts] += 1
        assert np.array_equal(counts[:, :, place], expected)
        assert arrays["rows"][place] == stop - start
        span = slice(arrays["span_begin"][place], arrays["span_begin"][place + 1])
        assert (arrays["span_start"][span].tolist(), arrays["span_stop"][span].tolist()) == ([start], [stop])


def test_a_kind_shows_its_own_readout_first_and_a_compact_pool_those_it_kept() -> None:
    names = {kind: [s.readout for s in usual_settings(kind)] for kind in ("math", "code", "text", "agent")}
    assert names == {
        "math": ["delimiter@16", "delimiter@marker", "boundary@16"],
        "code": ["delimiter@16", "delimiter@marker", "boundary@16"],
        "text": ["boundary@16", "boundary@marker"],
        "agent": ["boundary@union", "boundary@16"],
    }
    assert [s.readout for s in usual_settings("math", ["boundary@4"])] == ["boundary@4"]
    assert {s.kernel for s in usual_settings("agent")} == {"binary"}


@pytest.mark.parametrize("readout", ["rand@16", "rand-one-loc@16", "trajectory:so#shared@16"])
def test_a_readout_without_fixed_windows_is_refused_in_one_line(made: list[PlantedGroup], readout: str) -> None:
    with pytest.raises(ReadoutError, match=r"a page cannot show .* such as delimiter@16"):
        view_of(made[0].group, Rule(readout=readout).settle("math"))


def test_a_readout_whose_rows_were_not_kept_is_left_out(made: list[PlantedGroup]) -> None:
    kept = []
    for rollout in made[0].group.rollouts:
        spans = windows("delimiter@16", rollout.token_ids, made[0].group.vocab, "math")
        rows = np.array([t for start, stop in spans for t in range(start, stop)], np.int32)
        kept.append(Rollout(rollout.token_ids, rollout.expert_ids[rows], rollout.weights[rows], positions=rows))
    group = RolloutGroup("p", kept, made[0].group.shape, made[0].group.vocab, "math")
    header, _ = unpack(encode_problem(group).block)
    assert [view["readout"] for view in header["views"]] == ["delimiter@16", "delimiter@marker"]


def test_routing_that_no_router_gives_is_an_error_and_not_left_out() -> None:
    rollouts = [rollout_of("a", seed=i) for i in range(2)]
    group = RolloutGroup("p", rollouts, SHAPE, planted.vocab(), "math")
    rollouts[0].expert_ids[:] = 99
    with pytest.raises(RolloutError, match="99"):
        encode_problem(group)


def test_labels_colour_a_block_and_move_nothing(made: list[PlantedGroup]) -> None:
    group, answers = made[0].group, tuple(made[0].answers)
    correct: tuple[bool | None, ...] = tuple(answer == made[0].truth for answer in answers)
    plain, bare = unpack(encode_problem(group).block)
    graded, labelled = unpack(encode_problem(group, verdicts=Verdicts(answers, correct)).block)
    assert set(labelled) - set(bare) == {"answer", "correct"}
    assert all(np.array_equal(labelled[name], bare[name]) for name in bare)
    assert labelled["correct"].tolist() == [int(bool(c)) for c in correct]
    shown = [*graded["answers"], None]
    assert tuple(shown[i] for i in labelled["answer"]) == answers
    assert [view["pick"] for view in graded["views"]] == [view["pick"] for view in plain["views"]]
    long = Verdicts(tuple(f"{i}" * 1000 for i in range(len(group))), correct)
    cut, _ = unpack(encode_problem(group, verdicts=long).block)
    assert {len(answer) for answer in cut["answers"]} == {ANSWER + 1}
    assert unpack(encode_problem(group, verdicts=long, full_text=True).block)[0]["answers"] == list(long.answers)
    partly = Verdicts((*answers[:-1], None), (*correct[:-1], None))
    assert unpack(encode_problem(group, verdicts=partly).block)[1]["correct"][-1] == 2


def test_an_entry_names_the_pick_of_every_readout(made: list[PlantedGroup]) -> None:
    group = made[2].group
    entry = encode_problem(group).entry
    for readout, (number, basin, verdict) in entry["picks"].items():
        pick = select(group, readout=readout)
        assert (number, basin, verdict) == (pick.rollout_index, len(pick.basin), 2)
    assert (entry["id"], entry["kind"], entry["rollouts"], entry["right"]) == (group.problem_id, "math", 12, None)


def test_an_entry_counts_the_pairs_of_the_picks_basin_that_answer_alike(made: list[PlantedGroup]) -> None:
    group = made[2].group
    basin = select(group).basin
    assert len(basin) > 2
    answers: list[str | None] = [str(i) for i in range(len(group))]
    answers[basin[0]] = answers[basin[1]] = "seven"
    answers[basin[2]] = None  # a rollout without an answer is in no pair
    known = len(basin) - 1
    entry = encode_problem(group, verdicts=Verdicts(tuple(answers), (True,) * len(group))).entry
    assert entry["pairs"] == [1, known * (known - 1) // 2]
    assert encode_problem(group).entry["pairs"] is None


def test_agents_are_read_at_every_boundary() -> None:
    group = RolloutGroup("p", [agent_rollout(i, steps=True) for i in range(3)], SHAPE, planted.vocab(), "agent")
    header, arrays = unpack(encode_problem(group).block)
    assert header["views"][0]["readout"] == "boundary@union"
    assert np.diff(arrays["0.span_begin"]).tolist() == [3, 3, 3]
