"""The sentences that say what was picked and why."""

from __future__ import annotations

import re

import pytest

from odd_pools import SHAPE, rollout_of
from radmoe.explorer.wording import marker_words, rival, why, window_words
from radmoe.selection.selector import select
from radmoe.types import Kind, Rollout, RolloutGroup
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


def test_a_pick_is_named_with_its_reason_its_rival_and_what_labels_say(made: list[PlantedGroup]) -> None:
    group = made[0].group
    pick = select(group)
    correct = [answer == made[0].truth for answer in made[0].answers]
    first, reason, against, judged = why(group, pick, correct)
    best = rival(pick)
    assert best is not None
    assert first == f"RAD picked rollout {pick.rollout_index}."
    assert f"(mean similarity {pick.density[pick.index]:.2f})" in reason
    assert f"its {pick.k} nearest neighbours" in reason
    assert f"Its basin holds {len(pick.basin)} of the {pick.located.sum()} rollouts" in against
    assert f"rollout {best}, reaches {pick.density[best]:.2f}" in against
    assert best not in pick.basin
    assert pick.score[best] == pytest.approx(pick.score[pick.index] - pick.margin)
    assert ("is right" if correct[pick.index] else "is wrong") in judged
    assert f"{sum(correct)} of all {len(correct)}" in judged
    assert why(group, pick) == [first, reason, against]


def test_an_abstention_says_why() -> None:
    full = rollout_of("a")
    bare = Rollout(full.token_ids[:1], full.expert_ids[:1], full.weights[:1])

    def told(*rollouts: Rollout) -> str:
        group = RolloutGroup("p", rollouts, SHAPE, planted.vocab(), "math")
        return " ".join(why(group, select(group)))

    assert told(full) == "RAD abstains. There is one rollout, so there is nothing to compare it with."
    assert re.fullmatch(r"RAD abstains\. No rollout reaches “\\boxed\{”, .* takes two to compare\.", told(bare, bare))
    assert "1 of 3 rollouts reaches" in told(bare, full, bare)
    assert told(full, full).endswith("Its basin holds 2 of the 2 rollouts, so nothing stands against it.")


@pytest.mark.parametrize(
    ("readout", "kind", "words"),
    [
        ("delimiter@16", "math", r"“\boxed{”, which opens the answer; on the 16 tokens from there"),
        ("delimiter@marker", "code", "the code fence that opens the answer; on the tokens of that marker"),
        ("boundary@1", "text", "“</think>”, behind which the final response begins; on its first token"),
        ("boundary@union", "agent", "“</think>”, which opens an action; on all of these markers together"),
        ("trajectory@4", None, "the token “so”; on the 4 tokens from there"),
        ("trajectory:now@16", "math", "the token “now”; on the 16 tokens from there"),
        ("delimiter:Answer@8", "math", "the text “Answer”; on the 8 tokens from there"),
        (
            "trajectory-before@8",
            "math",
            "the place that trajectory-before@8 names; in the window of trajectory-before@8",
        ),
        ("closing@-16", "math", "the end of the answer; on the 16 tokens before it"),
        ("closing@16", "code", "the end of the answer; on the 16 tokens from there"),
        ("delimiter@span", "code", "the code fence that opens the answer; on the whole answer"),
        ("all", None, "their end; on all their tokens"),
        ("pre-delim@8", "math", r"“\boxed{”, which opens the answer; on the 8 tokens before it"),
    ],
)
def test_a_readout_is_told_in_plain_words(readout: str, kind: Kind | None, words: str) -> None:
    assert f"{marker_words(readout, kind, planted.vocab())}; {window_words(readout)}" == words
