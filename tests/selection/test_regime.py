"""The regime of a pool without labels: the agreement that was planted is found, and the advice names its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe.selection.regime import FEWEST, SCATTERED, SETTLED, Signs, Survey, advise, survey
from radmoe.types import KINDS, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted

SHAPE = RouterShape(8, 32, 4)
SIGNS = Signs(0.5, 0.9, 4.0, 0.4, 0.2, 0.05, 0.3, 64)


def seen(**recipe: object) -> tuple[Survey, float]:
    """What planted problems show, and the median share of their pairs that have one answer."""
    options = {"problems": 8, "rollouts": 24, "tokens": 40, "shape": SHAPE} | recipe
    made = list(planted.groups(Planted(**options)))  # type: ignore[arg-type]
    truths = []
    for one in made:
        votes = np.unique([answer for answer in one.answers if answer is not None], return_counts=True)[1]
        truths.append((votes * (votes - 1)).sum() / (votes.sum() * (votes.sum() - 1)))
    return survey([one.group for one in made], "math"), float(np.median(truths))


@pytest.mark.parametrize("recipe", [{"basins": 2, "agreement": 0.8}, {"basins": 4}, {"basins": 8}, {"basins": 24}])
def test_the_share_of_pairs_that_agree_is_about_that_which_was_planted(recipe: dict[str, object]) -> None:
    survey, truth = seen(**recipe)
    assert advise(survey).agreement == pytest.approx(truth, abs=0.15)


def test_one_basin_is_settled_and_routing_without_any_signal_is_scattered() -> None:
    assert advise(seen(basins=1, agreement=0.8)[0]).regime == "settled"
    assert advise(seen(agreement=0.0)[0]).regime == "scattered"


def test_rollouts_that_are_all_the_same_agree_in_every_pair() -> None:
    groups = []
    for made in planted.groups(Planted(problems=2, rollouts=1, tokens=40, shape=SHAPE, seed=3)):
        rollouts = [made.group.rollouts[0]] * FEWEST
        groups.append(RolloutGroup(made.group.problem_id, rollouts, SHAPE, made.group.vocab, "math"))
    advice = advise(survey(groups, "math"))
    assert (advice.regime, advice.agreement, advice.basins, advice.share) == ("settled", 1.0, 1.0, 1.0)
    assert (advice.separation, advice.spread, advice.together) == (None, 0.0, None)


@pytest.mark.parametrize(("problems", "rollouts"), [(1, 12), (3, FEWEST - 1)])
def test_too_few_problems_or_rollouts_say_nothing(problems: int, rollouts: int) -> None:
    with pytest.raises(InputError, match=f"two problems or more with {FEWEST} located rollouts each"):
        seen(problems=problems, rollouts=rollouts)


@pytest.mark.parametrize(
    ("share", "regime", "preset"),
    [
        (1.0, "settled", "paper"),
        (SETTLED + 0.01, "settled", "paper"),
        (SETTLED - 0.01, "contested", "best"),
        (SCATTERED - 0.01, "scattered", "best"),
        (-1.0, "scattered", "best"),
    ],
)
def test_the_regime_follows_from_the_share_of_pairs_that_agree(share: float, regime: str, preset: str) -> None:
    advice = advise(Survey((replace(SIGNS, alike=0.4 + 0.5 * share),), 0.4, "math"))
    assert (advice.regime, advice.preset, advice.problems) == (regime, preset, 1)
    assert advice.agreement == pytest.approx(max(share, 0))
    assert f"in about {max(share, 0):.0%} of all pairs" in advice.sentences[0]
    assert f"preset {preset}" in advice.sentences[1]


def test_best_is_recommended_beside_likelihood_from_which_it_is_not_distinguishable() -> None:
    for share, regime in ((0.4, "contested"), (0.1, "scattered")):
        advice = advise(Survey((replace(SIGNS, alike=0.4 + 0.5 * share),), 0.4, "math"))
        assert advice.regime == regime
        assert "or likelihood alone: in the lab neither is shown to be better" in advice.sentences[1]


def test_without_log_probabilities_there_is_one_way_to_select() -> None:
    advice = advise(Survey((replace(SIGNS, spread=None, together=None),), 0.5, "math"))
    assert (advice.regime, advice.preset) == ("scattered", "paper")
    assert "no log-probabilities, and no other way to read routing alone is shown to be better" in advice.sentences[1]
    assert seen(problems=2, logprobs=False)[0].problems[0].spread is None


def test_choices_are_said_to_share_their_letters_across_problems() -> None:
    assert "share the letters" in advise(Survey((SIGNS,), 0.4, "choice")).sentences[0]
    assert "letters" not in advise(Survey((SIGNS,), 0.4, "math")).sentences[0]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_programs_sampled_with_a_nucleus_are_chosen_by_the_routing_of_the_whole_answer(share: float) -> None:
    signs = (replace(SIGNS, alike=0.4 + 0.5 * share),)
    advice = advise(Survey(signs, 0.4, "code", nucleus=True))
    assert (advice.preset, advice.fusion) == ("best", "none")
    assert "--fusion none" in advice.sentences[1]
    few = tuple(replace(one, located=32) for one in signs)  # for which the registered test says nothing
    for other in (
        Survey(signs, 0.4, "code"),
        Survey(signs, 0.4, "text", nucleus=True),
        Survey(few, 0.4, "code", nucleus=True),
    ):
        assert advise(other).fusion is None


def test_advice_says_no_more_of_likelihood_than_was_shown_and_names_the_vote_where_answers_can_be_counted() -> None:
    second = {kind: advise(Survey((SIGNS,), 0.4, kind)).sentences[1] for kind in KINDS}
    assert not any("above preset paper" in sentence for sentence in second.values())
    assert {kind for kind, sentence in second.items() if "a majority of them is as good or better" in sentence} == {
        "math", "choice",
    }  # fmt: skip
