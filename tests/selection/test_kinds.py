"""What an answer looks like is recorded, given, or told from the markers; never guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe.pool import Pool, PoolWriter, open_pool
from radmoe.selection.kinds import infer_kind, settle_kinds, survey
from radmoe.selection.selector import select
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from vocabularies import encode, vocab

SHAPE = RouterShape(2, 8, 2)
BOXED = "So</think>it is \\boxed{7} as shown"
FENCED = "So</think>\n```python\nprint(7)\n```\n"
BOTH = "So</think>\n```python\nprint(7)\n```\nand so \\boxed{7}"
PROSE = "So</think>it is seven"
BARE = "it is seven"


def rollout(ids: list[int], seed: int = 0) -> Rollout:
    rng = np.random.default_rng([seed, len(ids)])
    return Rollout(np.array(ids, np.int32), np.argsort(rng.random((len(ids), 2, 8)), axis=-1)[..., :2].astype(np.int16))


def group(*texts: str, kind: Kind | None = None) -> RolloutGroup:
    rollouts = [rollout(planted.tokenizer().encode(text).ids, seed) for seed, text in enumerate(texts)]
    return RolloutGroup("p", rollouts, SHAPE, planted.vocab(), kind)


def pool(path: Path, problems: dict[str, tuple[Kind | None, list[str]]]) -> Pool:
    with PoolWriter(path, shape=SHAPE, vocab=planted.vocab(), model="test") as writer:
        for name, (kind, texts) in problems.items():
            for rollout in group(*texts).rollouts:
                writer.add(name, rollout, kind=kind)
    return open_pool(path)


def test_a_survey_counts_each_kinds_own_marker() -> None:
    shares, rollouts = survey([group(BOXED, BOXED, FENCED, BARE)])
    assert rollouts == 4
    assert shares == {"math": 0.5, "choice": 0.5, "code": 0.25, "text": 0.75, "agent": 0.75}


def test_a_fallback_is_no_marker() -> None:
    """gpt-oss opens every final answer in its final channel: that tells no kind from another."""
    ids = encode("gpt-oss", "<|channel|>final<|message|>\n```python\nprint(7)\n```\n")
    found = survey([RolloutGroup("p", [rollout(ids)], SHAPE, vocab("gpt-oss"))])
    assert (found.shares["math"], found.shares["code"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([BOXED, BOXED, BARE], "math"),
        ([FENCED, FENCED, BARE], "code"),
        ([BOXED, PROSE, PROSE, PROSE], "math"),  # a quarter got as far as the box, and nothing else opens an answer
        ([PROSE, PROSE, BARE], "text"),
        ([BARE, BARE], None),
        ([], None),
    ],
)
def test_the_kind_is_told_from_the_marker_that_is_there(texts: list[str], kind: Kind | None) -> None:
    assert infer_kind([group(*texts)], "here") == kind


def test_two_markers_alike_are_not_guessed_between() -> None:
    with pytest.raises(
        InputError, match="the rollouts of here carry the markers of math and code alike: say which kind"
    ):
        infer_kind([group(BOTH, BOTH)], "here")


def test_select_tells_the_kind_and_says_which() -> None:
    for texts, kind, readout in (
        ([BOXED] * 3, "math", "delimiter@16"),
        ([FENCED] * 3, "code", "delimiter@16"),
        ([PROSE] * 3, "text", "boundary@16"),
    ):
        pick = select(group(*texts))
        assert (pick.kind, pick.readout) == (kind, readout)
        assert pick.located.all()
        assert pick.index == select(group(*texts, kind=kind)).index is not None


def test_select_abstains_where_no_marker_is_and_asks_where_two_are() -> None:
    pick = select(group(BARE, BARE))
    assert (pick.index, pick.rollout_index, pick.kind) == (None, None, None)
    with pytest.raises(InputError, match="problem 'p' carry the markers of math and code alike"):
        select(group(BOTH, BOTH))
    assert select(group(BOTH, BOTH), kind="code").kind == "code"
    assert select(group(BOTH, BOTH, kind="math")).kind == "math"


def test_a_readout_that_needs_no_kind_asks_for_none() -> None:
    pick = select(group(BOTH, BOTH), readout="boundary@4")
    assert (pick.kind, pick.located.all()) == (None, True)
    assert select(group(BOTH, BOTH), readout="delimiter:print@4").located.all()


@pytest.mark.parametrize(
    ("kind", "readout", "k", "kernel"),
    [
        ("math", "delimiter@16", 10, "weighted"),
        ("choice", "delimiter@16", 10, "weighted"),
        ("code", "delimiter@16", 10, "weighted"),
        ("text", "boundary@16", 10, "weighted"),
        ("agent", "boundary@union", 4, "binary"),
    ],
)
def test_defaults_follow_the_kind(kind: Kind, readout: str, k: int, kernel: str) -> None:
    g = group(*[BOTH] * 14, kind=kind)
    default, explicit = select(g), select(g, kind=kind, readout=readout, k=k, kernel=kernel)
    assert (default.readout, default.k) == (readout, k)
    assert np.array_equal(default.density, explicit.density)
    assert default.index == explicit.index


def test_a_recorded_kind_stands(tmp_path: Path) -> None:
    opened = pool(tmp_path / "p", {"a": ("code", [BOTH] * 3), "b": ("math", [BOTH] * 3)})
    assert settle_kinds(opened, where="p") == ({"a": "code", "b": "math"}, "")


def test_an_option_that_contradicts_the_record_is_refused(tmp_path: Path) -> None:
    opened = pool(tmp_path / "p", {"a": ("code", [BOTH] * 3)})
    assert settle_kinds(opened, "code", where="p").kinds == {"a": "code"}
    with pytest.raises(InputError, match="p records that problem 'a' is of kind code, --kind math contradicts it"):
        settle_kinds(opened, "math", where="p")
    with pytest.raises(InputError, match="unknown kind 'poetry'"):
        settle_kinds(opened, "poetry", where="p")


def test_what_nobody_said_is_inferred_and_said(tmp_path: Path) -> None:
    opened = pool(tmp_path / "p", {"a": (None, [FENCED] * 3), "b": (None, [FENCED, FENCED, BARE])})
    kinds, note = settle_kinds(opened, where="p")
    assert kinds == {"a": "code", "b": "code"}
    assert note == "kind code: inferred from ``` in 83% of the rollouts; give --kind if it is another"
    assert settle_kinds(opened, "code", where="p") == ({"a": "code", "b": "code"}, "")


def test_a_pool_of_math_and_code_is_inferred_problem_by_problem(tmp_path: Path) -> None:
    texts = {"a": [BOXED] * 3, "b": [FENCED, FENCED, BARE], "c": [BOXED, BOXED, PROSE], "d": [FENCED] * 3}
    opened = pool(tmp_path / "p", {name: (None, own) for name, own in texts.items()})
    kinds, note = settle_kinds(opened, where="p")
    assert kinds == {"a": "math", "b": "code", "c": "math", "d": "code"}
    assert note == (
        "kinds inferred from the markers, problem by problem: 2 math (\\boxed{), 2 code (```); "
        "give --kind if all are of one kind"
    )


def test_a_problem_whose_own_markers_do_not_tell_is_of_the_kind_of_the_others(tmp_path: Path) -> None:
    """A program in the reasoning of a math problem, or rollouts that were cut, do not make it another kind."""
    mixed = {"a": (None, [BOXED] * 3), "b": (None, [FENCED, FENCED, BOXED]), "c": (None, [BARE] * 3)}
    assert settle_kinds(pool(tmp_path / "p", mixed | {"d": (None, [BOXED] * 6)}), where="p").kinds == dict.fromkeys(
        "abcd", "math"
    )
    alike = pool(tmp_path / "q", {"a": (None, [BOXED] * 3), "b": (None, [FENCED] * 3), "c": (None, [BOTH] * 3)})
    with pytest.raises(InputError, match="problem 'c' in q carry the markers of math and code alike: say which"):
        settle_kinds(alike, where="q")


def test_where_no_marker_tells_the_kind_is_asked_for(tmp_path: Path) -> None:
    opened = pool(tmp_path / "p", {"a": (None, [BARE] * 3)})
    with pytest.raises(InputError, match=r"no marker is in most of 3 rollouts .*: give --kind math, choice, code"):
        settle_kinds(opened, where="p")


def test_a_marker_that_most_rollouts_lack_stops_where_another_is_in_most(tmp_path: Path) -> None:
    """The new user's case: programs, and a search for \\boxed{ in them."""
    opened = pool(tmp_path / "p", {"a": (None, [FENCED] * 3), "b": (None, [FENCED, FENCED, BOXED])})
    wanted = r"p: \\boxed\{, the marker of kind math, is in 17% of the rollouts, and ```, that of code, in 83%: give --kind code"
    with pytest.raises(InputError, match=wanted):
        settle_kinds(opened, "math", where="p")
    recorded = pool(tmp_path / "r", {"a": ("choice", [FENCED] * 3)})
    with pytest.raises(InputError, match=r"choice, is in 0% .*: replay it with radmoe replay r --kind code"):
        settle_kinds(recorded, where="r")
    named = settle_kinds(recorded, where="r", readout="delimiter:print@4")  # looks for something else: no contradiction
    assert named.kinds == {"a": "choice"}
    assert settle_kinds(recorded, where="r", readout="boundary@16").kinds == {"a": "choice"}


def test_only_the_problems_asked_for_are_looked_at(tmp_path: Path) -> None:
    opened = pool(tmp_path / "p", {"a": (None, [FENCED] * 3), "b": (None, [BOXED] * 3)})
    assert settle_kinds(opened, where="p", problems=["b"]).kinds == {"b": "math"}


def test_a_planted_pool_of_code_selects_without_an_option(tmp_path: Path) -> None:
    recipe = Planted(problems=2, rollouts=12, kind="code")
    with PoolWriter(tmp_path / "p", shape=recipe.shape, vocab=planted.vocab(), model="planted") as writer:
        for made in planted.groups(recipe):
            for trace in made.group.rollouts:
                writer.add(made.group.problem_id, trace)
    for stored, made in zip(open_pool(tmp_path / "p").groups(), planted.groups(recipe), strict=True):
        one, other = select(stored), select(made.group, kind="code")
        assert (one.kind, one.index) == ("code", other.index)
