"""Presets: what each word stands for, what replaces its parts, and what it needs."""

from __future__ import annotations

import inspect
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe import select
from radmoe.errors import InputError, ReadoutError
from radmoe.pool import PoolWriter, open_pool
from radmoe.selection.kernels.reference import reference_weighted_jaccard
from radmoe.selection.overlap import answer_texts, bigram_jaccard
from radmoe.selection.readout import Readout, read
from radmoe.selection.rule import PRESETS, Rule
from radmoe.types import KINDS, Kind, Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup
from reference_kernels import reference_knn_density

SHAPE = RouterShape(3, 12, 3)
DOCS = Path(__file__).parents[2] / "docs" / "readouts.md"


def rollout(text: str, seed: int, *, sampled: bool = True, topk: bool = True) -> Rollout:
    rng = np.random.default_rng(seed)
    ids = np.array(planted.tokenizer().encode(text).ids, np.int32)
    experts = np.argsort(rng.random((len(ids), 3, 12)), axis=-1)[..., :3].astype(np.int16)
    top = np.sort(-rng.gamma(2.0, 1.0, (len(ids), 5)).astype(np.float32))[:, ::-1]
    return Rollout(ids, experts, None, top[:, 0].copy() if sampled else None, top if topk else None)


def box(value: int) -> str:
    return f"<think>So the sum is {value}</think> The answer is $\\boxed{{{value}}}$ as shown above, and so it ends."


def block(*lines: int) -> str:
    body = "".join(f"    x = {line} + {line}\n" for line in lines)
    return f"<think>Now</think>\n\n```python\ndef solve():\n{body}    return 7\n```\n"


def group_of(texts: list[str], kind: Kind | None = "math", **columns: bool) -> RolloutGroup:
    rollouts = [rollout(text, seed, **columns) for seed, text in enumerate(texts)]
    return RolloutGroup("p", rollouts, SHAPE, planted.vocab(), kind)


MATH = group_of([box(v) for v in (7, 7, 12, 7, 3, 12, 7, 5)])
CODE = group_of([block(*lines) for lines in ((1, 2), (1, 2, 3), (9,), (1, 2, 4), (8, 6), (1, 2))], "code")


# -- what they are ----------------------------------------------------------------------------------------------------


def test_every_preset_has_a_recipe_for_every_kind() -> None:
    assert list(PRESETS) == ["paper", "paper+dc", "strict", "best", "best+text"]
    for preset in PRESETS.values():
        assert set(preset.rules) == set(KINDS)
        for kind in KINDS:
            Rule(preset=preset.name).settle(kind, 64)  # checks every part


def test_paper_is_what_select_does_without_a_preset() -> None:
    for kind in KINDS:
        assert Rule(preset="paper").settle(kind, 16) == Rule().settle(kind, 16)
        assert Rule().settle(kind, 16).fusion is None
    assert select(MATH, preset="paper").index == select(MATH).index


def test_paper_dc_is_the_paper_with_conf50_by_cbw() -> None:
    assert select(MATH, preset="paper+dc").index == select(MATH, fusion="conf50").index
    for kind in KINDS:
        setting, plain = Rule(preset="paper+dc").settle(kind, 64), Rule().settle(kind, 64)
        assert setting == replace(plain, preset="paper+dc", fusion="conf50", confidence="cbw")


def test_strict_reads_markers_alone() -> None:
    for kind in KINDS:
        rule = Rule(preset="strict").settle(kind, 64)
        assert Readout.parse(rule.readout).width in ("marker", "union")
        assert rule.fusion is None


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_says_so_reads_text_or_logprobs(kind: Kind) -> None:
    for preset in PRESETS.values():
        recipe = preset.rules[kind]
        if recipe.compare != "routing":
            assert "answers" in preset.reads
        if recipe.fusion != "none":
            assert "logprobs" in preset.reads


def test_best_reads_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a text was read")

    monkeypatch.setattr("radmoe.selection.overlap.answer_text", refuse)
    for preset in ("paper", "paper+dc", "strict", "best"):
        for group in (MATH, CODE):
            assert select(group, preset=preset).index is not None
    with pytest.raises(AssertionError, match="a text was read"):
        select(CODE, preset="best+text")


@pytest.mark.parametrize(
    ("k", "neighbours"),
    [
        (10, {2: 10, 64: 10}),
        (Fraction(10, 64), {2: 1, 4: 1, 8: 1, 16: 2, 24: 3, 32: 5, 64: 10, 128: 20}),
        (Fraction(20, 64), {4: 1, 8: 2, 16: 5, 32: 10, 64: 20}),
    ],
)
def test_k_is_a_number_or_a_share_of_the_rollouts(k: int | Fraction, neighbours: dict[int, int]) -> None:
    assert {n: Rule(k=k).settle("math", n).k for n in neighbours} == neighbours


# -- against a reference ----------------------------------------------------------------------------------------------


def ranks(values: list[float]) -> list[float]:
    return [sum(o < v for o in values) + (sum(o == v for o in values) + 1) / 2 for v in values]


def near(values: list[float]) -> list[float]:
    """Values that differ by rounding alone become equal."""
    return [next(o for o in values if abs(o - v) < 2e-6) for v in values]


def expected(group: RolloutGroup, readout: str, k: int, compare: str) -> int:
    """A rank sum with likelihood, written out: routing, the text of the answers, or both."""
    assert group.kind is not None
    reading, texts = read(group, readout), answer_texts(group, group.kind)
    members = [i for i in range(len(group)) if reading.located[i] and (compare == "routing" or texts[i] is not None)]
    rows = [int(np.cumsum(reading.located)[i] - 1) for i in members]
    matrices = []
    if "routing" in compare:
        matrices.append(reference_weighted_jaccard(reading.Z[rows]))
    if "text" in compare:
        matrices.append(bigram_jaccard([str(texts[i]) for i in members]))
    confidence = [float(np.mean(group.rollouts[i].sampled_logprobs, dtype=float)) for i in members]  # type: ignore[arg-type]
    parts = [ranks(near(reference_knn_density(S, k).tolist())) for S in matrices]
    total = [sum(part[row] for part in parts) + ranks(confidence)[row] for row in range(len(members))]
    return max(range(len(members)), key=lambda row: (total[row], confidence[row], -members[row]))


def planted_groups() -> list[RolloutGroup]:
    recipes = (Planted(problems=3, rollouts=24, seed=5), Planted(problems=3, rollouts=24, seed=6, kind="code", lines=4))
    return [made.group for recipe in recipes for made in planted.groups(recipe)]


@pytest.mark.parametrize("preset", ["best", "best+text"])
def test_the_best_are_the_rank_sums_that_they_are_documented_as(preset: str) -> None:
    for group in [MATH, CODE, *planted_groups()]:
        recipe = Rule(preset=preset).settle(group.kind, len(group))  # type: ignore[arg-type]
        picked = select(group, preset=preset)
        members = np.flatnonzero(picked.located)
        want = expected(group, recipe.readout, recipe.k, recipe.compare)
        assert picked.index == members[want]
        assert (picked.preset, picked.confidence, picked.compare) == (preset, "likelihood", recipe.compare)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=2, max_size=8),
    st.integers(1, 6),
    st.sampled_from(["routing", "text", "routing+text"]),
)
def test_every_comparison_is_its_rank_sum(programs: list[list[int]], k: int, compare: str) -> None:
    group = group_of([block(*lines) for lines in programs], "code")
    picked = select(
        group, rule=Rule(compare=compare), readout="delimiter@span", k=k, fusion="ranksum", confidence="likelihood"
    )  # type: ignore[arg-type]
    assert picked.index == expected(group, "delimiter@span", k, compare)


# -- parts that are replaced ------------------------------------------------------------------------------------------

PARTS: dict[str, Any] = {
    "readout": "delimiter@8",
    "k": 2,
    "kernel": "binary",
    "fusion": "conf50",
    "confidence": "tail",
    "compare": "routing+text",
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("part", PARTS)
def test_an_explicit_argument_replaces_its_part_and_no_other(preset: str, part: str) -> None:
    plain, changed = (Rule(preset=preset, **given).settle("math", 64) for given in ({}, {part: PARTS[part]}))

    assert changed == replace(plain, **{part: PARTS[part]})


def test_fusion_none_is_plain_rad_under_any_preset() -> None:
    plain = select(MATH, preset="paper+dc", fusion="none")
    assert plain.index == select(MATH).index
    assert (plain.fusion, plain.confidence) == (None, None)
    assert select(group_of([box(1), box(1), box(2)], sampled=False), preset="best", fusion="none").index is not None


def test_every_confidence_serves_every_fusion() -> None:
    picks = {}
    for confidence in ("cbw", "tail", "likelihood"):
        for fusion in ("conf50", "ranksum"):
            picked = select(MATH, fusion=fusion, confidence=confidence, rule=Rule(confidence_window=4))
            assert picked.index is not None
            assert (picked.fusion, picked.confidence) == (fusion, confidence)
            picks[confidence, fusion] = picked.score
    assert len({tuple(np.nan_to_num(score, nan=-1.0)) for score in picks.values()}) > 3


def test_the_signature_is_the_agreed_one() -> None:
    names = list(inspect.signature(select).parameters)
    assert names[:7] == ["group", "preset", "rule", "kind", "readout", "k", "kernel"]
    assert names[7:] == ["fusion", "confidence", "layers"]


# -- what they need ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "columns", "column"),
    [
        ("best", {"sampled": False}, "sampled_logprobs"),
        ("best+text", {"sampled": False}, "sampled_logprobs"),
        ("paper+dc", {"topk": False}, "topk_logprobs"),
    ],
)
def test_a_preset_without_its_column_names_it(preset: str, columns: dict[str, bool], column: str) -> None:
    bare = group_of([box(1), box(2), box(1)], **columns)
    with pytest.raises(
        InputError, match=rf"\(the column {column}\), which preset {preset.replace('+', '.')} with fusion"
    ):
        select(bare, preset=preset)
    for other in ("paper", "strict"):
        assert select(bare, preset=other).index is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "bset"}, "unknown preset 'bset': use one of paper, paper.dc, strict, best, best.text"),
        ({"compare": "answers"}, "unknown comparison 'answers': use one of routing, text, routing.text"),
        ({"preset": "best", "confidence": "hope"}, "unknown confidence 'hope': use one of cbw, tail, likelihood"),
        ({"preset": "best", "k": 0}, "k must be a whole number of neighbours from 1 up"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(MATH, rule=Rule(**options))


@pytest.mark.parametrize("preset", PRESETS)
def test_two_answers_that_close_are_needed(preset: str) -> None:
    lost = group_of([box(1), "so I cannot tell", "it is \\boxed{3"])
    picked = select(lost, preset=preset)
    opened = 2 if preset in ("paper", "paper+dc", "strict") else 1
    assert picked.located.sum() == opened
    assert picked.abstained == (opened < 2)
    assert picked.preset == preset


@pytest.mark.parametrize("preset", PRESETS)
def test_rollouts_of_two_tokens_abstain(preset: str) -> None:
    tiny = [Rollout(np.array([5, 6]), np.zeros((2, 3, 3), np.int16) + np.arange(3, dtype=np.int16)) for _ in range(3)]
    for kind in ("math", "code"):
        assert select(RolloutGroup("p", tiny, SHAPE, planted.vocab(), kind), preset=preset).abstained


def test_text_is_compared_only_where_an_answer_closes() -> None:
    texts = [box(7), box(7), "so \\boxed{7", box(3)]
    both = select(group_of(texts), rule=Rule(compare="routing+text"))
    assert both.located.tolist() == [True, True, False, True]
    assert both.anchors[2] is None
    assert np.isnan(both.score[2])
    assert select(group_of(texts)).located.tolist() == [True, True, True, True]
    with pytest.raises(ReadoutError, match="kind 'agent' has no answer that closes"):
        select(group_of(texts, "agent"), rule=Rule(compare="text"))


def test_the_kind_is_inferred_for_a_preset_too() -> None:
    for group, readout in ((MATH, "delimiter@16"), (CODE, "delimiter@span")):
        nobody_said = RolloutGroup("p", group.rollouts, SHAPE, planted.vocab())
        picked = select(nobody_said, preset="best+text")
        assert (picked.index, picked.kind, picked.readout) == (
            select(group, preset="best+text").index,
            group.kind,
            readout,
        )
    unknown = group_of(["no marker", "none at all"], None)
    assert select(unknown, preset="best+text").abstained


def test_every_token_can_be_read_where_nobody_knows_the_kind() -> None:
    unknown = group_of(["no marker", "no marker at all", "none"], None)
    assert select(unknown, readout="all").located.all()
    assert select(unknown, readout="all").index is not None
    nobody_said = RolloutGroup("p", CODE.rollouts, SHAPE, planted.vocab())
    assert select(nobody_said, rule=Rule(readout="all", compare="text")).kind == "code"  # whose text depends on it
    assert select(unknown, rule=Rule(readout="all", compare="text")).abstained


def test_free_text_of_a_model_that_does_not_think_is_selected_by_best_alone() -> None:
    plain = group_of(["So it is good. Now go.", "So it is good. Now stay.", "Wait, no."], "text")
    assert select(plain).abstained
    assert select(plain, preset="best").index is not None
    assert select(plain, preset="best+text").index is not None


def test_a_stored_group_is_selected_as_in_memory(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    with PoolWriter(tmp_path / "p", shape=group.shape, vocab=group.vocab, model="planted") as writer:
        for one in group.rollouts:
            writer.add("q", one, kind=group.kind)
    stored = open_pool(tmp_path / "p").group("q")
    for preset in PRESETS:
        memory, disk = select(group, preset=preset), select(stored, preset=preset)
        assert (memory.index, memory.basin) == (disk.index, disk.basin)


def test_the_docs_list_what_every_preset_stands_for() -> None:
    page = DOCS.read_text()
    for preset in PRESETS.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{preset.name}` |"))
        for kind, cell in zip(KINDS, row.split("|")[2:7], strict=True):
            recipe = preset.rules[kind]
            if recipe.compare != "text":
                assert f"`{recipe.readout}`" in cell, (preset.name, kind)
            assert ("text" in cell) == (recipe.compare != "routing"), (preset.name, kind)
            assert ("likelihood" in cell) == (recipe.confidence == "likelihood"), (preset.name, kind)
