"""Anchors on the token-id stream, against brute force over the real vocabularies."""

import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import ids_of_bytes, neighbours, oracle, pairs, split
from radmoe.errors import InputError, ReadoutError, VocabError
from radmoe.selection.anchors import (
    MARKERS,
    TOKEN_SETS,
    AnchorSpec,
    Fence,
    Marker,
    TokenSet,
    find_all,
    locate,
    markers_for,
    spec_for,
)
from radmoe.types import Anchor
from radmoe.vocab import Vocab
from vocabularies import REAL, byte_level, encode, small_vocab, vocab

BOXED = b"\\boxed{"


# -- the marker contexts of engines.md -----------------------------------------------------------------

LEFT = {
    "qwen3": {"": 59, " ": 1124, "$": 58736, " $": 57960, "(": 11520, "=": 34433},
    "gpt-oss": {"": 59, " ": 2381, "$": 113002, " $": 126456, "(": 23074, "=": 71847},
}
RIGHT = {
    "qwen3": {"": 90, "{": 2979, "\\": 35702, "-": 19999, "(": 96065, "}": 6257},
    "gpt-oss": {"": 90, "{": 5973, "\\": 57575, "-": 52566, "}": 12083},
}
CORE = {"qwen3": 79075, "gpt-oss": 172278}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_boxed_is_found_in_every_context_of_the_table(name):
    table, spec = vocab(name), spec_for("delimiter", "math", vocab(name))
    for left, left_id in LEFT[name].items():
        assert table.token_bytes(left_id) == (left + "\\").encode()
        for right, right_id in RIGHT[name].items():
            assert table.token_bytes(right_id) == ("{" + right).encode()
            ids = [40, left_id, CORE[name], right_id, 17]
            assert locate(spec, ids, table) == Anchor(1, 3, "delimiter")
            text = f"is{left}\\boxed{{{right}4"
            got = locate(spec, encode(name, text), table)
            assert pairs([got]) == oracle(table, encode(name, text), BOXED)


@pytest.mark.parametrize("name", REAL)
def test_boxed_is_found_between_every_left_and_right_neighbour_of_the_vocabulary(name):
    table, spec = vocab(name), spec_for("delimiter", "math", vocab(name))
    texts = {i: table.token_bytes(i) for i in range(len(table))}
    lefts = [i for i, b in texts.items() if b.endswith(b"\\")]
    rights = [i for i, b in texts.items() if b.startswith(b"{")]
    assert (len(lefts), len(rights)) == {"qwen3": (92, 60), "gpt-oss": (76, 57)}[name]
    for left in lefts:
        for right in rights:
            assert pairs(find_all(spec, [left, CORE[name], right], table)) == [(0, 3)]


@pytest.mark.parametrize("name", REAL)
def test_boxed_in_pieces_is_found(name):
    table, spec = vocab(name), spec_for("delimiter", "math", vocab(name))
    known = ids_of_bytes(name)
    ids = [known[piece] for piece in (b"x", b"\\b", b"o", b"xed", b"{", b"7")]
    assert locate(spec, ids, table) == Anchor(1, 4, "delimiter")
    assert locate(spec, ids[:4], table) is None
    assert locate(spec, ids[1:], table, width=1) == Anchor(0, 4, "delimiter")


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_markers_agree_with_the_brute_force_search(name, data):
    table = vocab(name)
    literal = data.draw(st.sampled_from([BOXED, b"```", b"So,", b"\n\n", b"aa", b"the answer is clearly 42"]))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    near = neighbours(name, literal)
    controls = list(table.controls.values())
    ids = []
    for _ in range(data.draw(st.integers(0, 12))):
        kind = rng.randrange(6)
        if kind == 0:
            ids += [rng.randrange(len(table)) for _ in range(rng.randrange(4))]
        elif kind == 1:
            ids += split(name, literal, rng)
        elif kind == 2:
            ids += split(name, literal[: rng.randrange(1, len(literal) + 1)], rng)
        elif kind == 3:
            ids.append(rng.choice(near))
        elif kind == 4:
            ids += encode(name, rng.choice([" ", "$", "x"]) + literal.decode() + rng.choice(["-1", "{", "é", "\n"]))
        else:
            ids.append(rng.choice(controls))
    spec = AnchorSpec("delimiter", (Marker("delimiter", literal),))
    want = oracle(table, ids, literal)
    assert pairs(find_all(spec, ids, table)) == want
    got = locate(spec, np.array(ids, np.int32), table)
    assert pairs([got] if got else []) == want[-1:]


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=100, deadline=None)
@given(before=st.text(max_size=30), after=st.text(max_size=10))
def test_boxed_is_found_in_any_text(name, before, after):
    table, spec = vocab(name), spec_for("delimiter", "math", vocab(name))
    ids = encode(name, before + "\\boxed{" + after)
    assert pairs(find_all(spec, ids, table)) == oracle(table, ids, BOXED)
    assert locate(spec, ids, table) is not None


def test_tokens_without_bytes_inside_a_marker_belong_to_it():
    table = Vocab.from_json(json.dumps(byte_level({"\\": 0, "boxed": 1, "{": 2, "a": 3, "z": 6}, {"<x>": 7})))
    spec = spec_for("delimiter", "math", table)
    assert find_all(spec, [5, 0, *[5] * 40, 1, 4, 2, 5, 3], table) == [Anchor(1, 44, "delimiter")]
    assert find_all(spec, [0, 7, 1, 2], table) == []  # a control token is no gap


def test_an_added_tokens_bytes_are_never_part_of_a_delimiter():
    table = small_vocab(["\\", "boxed{", "`", "\n", "x"], ["<\\boxed{>", "<```>", "<\\>"])
    boxed, code = spec_for("delimiter", "math", table), spec_for("delimiter", "code", table)
    assert find_all(boxed, [4, 5, 4, 7, 1], table) == []
    assert find_all(code, [3, 6, 3, 6], table) == []
    assert pairs(find_all(boxed, [5, 0, 1, 5], table)) == [(1, 2)]
    assert pairs(find_all(code, [6, 2, 2, 2, 3], table)) == [(1, 3)]


def test_a_delimiter_that_is_itself_an_added_token_is_found():
    table = small_vocab(["a", "\\", "boxed{"], ["\\boxed{", "</think>"])
    assert pairs(find_all(spec_for("delimiter", "math", table), [0, 3, 0, 1, 2], table)) == [(1, 1), (3, 2)]


# -- boundaries ----------------------------------------------------------------------------------------


def test_presets_follow_from_the_vocabulary():
    assert markers_for(vocab("qwen3")) is MARKERS["qwen3"]
    assert markers_for(vocab("gpt-oss")) is MARKERS["gpt-oss"]
    assert markers_for(small_vocab(["a"], ["<|channel|>", "<|message|>"])).name == "gpt-oss"
    assert markers_for(small_vocab(["a"], ["<think>", "</think>"])).name == "qwen3"
    assert markers_for(small_vocab(["a"])).name == "generic"


def test_the_last_end_of_thinking_is_the_boundary():
    table = vocab("qwen3")
    ids = encode("qwen3", "a</think>b c</think>\n\nd")
    spec = spec_for("boundary", "math", table)
    assert pairs(find_all(spec, ids, table)) == [(i, 1) for i, t in enumerate(ids) if t == 151668]
    assert locate(spec, ids, table) == Anchor(max(i for i, t in enumerate(ids) if t == 151668), 1, "boundary")


def test_quoted_control_text_is_no_boundary():
    rng = random.Random(0)
    for name, text in (("qwen3", b"</think>"), ("gpt-oss", b"<|channel|>final<|message|>"), ("gpt-oss", b"<|start|>")):
        table = vocab(name)
        for kind in ("math", "agent"):
            assert find_all(spec_for("boundary", kind, table), split(name, text, rng), table) == []
    half = [200005, *split("gpt-oss", b"final<|message|>", rng)]
    assert find_all(spec_for("boundary", "math", vocab("gpt-oss")), half, vocab("gpt-oss")) == []


def test_without_the_control_token_its_text_is_the_boundary():
    table = small_vocab(["x", "</", "think", ">", "\n"])
    assert pairs(find_all(spec_for("boundary", "math", table), [0, 1, 2, 3, 4], table)) == [(1, 3)]


@pytest.mark.parametrize(
    ("header", "m"),
    [
        ([200005, 17196, 200008], 3),
        ([200005, 17196, 220, 200003, 4108, 200008], 6),
    ],
)
def test_the_final_channel_is_found_plain_and_constrained(header, m):
    table = vocab("gpt-oss")
    spec = spec_for("boundary", "math", table)
    analysis = encode("gpt-oss", "<|channel|>analysis<|message|>We think.<|end|><|start|>assistant")
    ids = [*analysis, *header, *encode("gpt-oss", "42<|return|>")]
    assert locate(spec, ids, table) == Anchor(len(analysis), m, "boundary")
    assert find_all(spec, [*ids, *analysis], table) == [Anchor(len(analysis), m, "boundary")]


def test_the_word_final_may_be_split_in_any_way():
    table, rng = vocab("gpt-oss"), random.Random(1)
    spec = spec_for("boundary", "code", table)
    for _ in range(50):
        word = split("gpt-oss", b"final", rng)
        assert find_all(spec, [5, 200005, *word, 200008], table) == [Anchor(1, len(word) + 2, "boundary")]
    for other in (b"analysis", b"commentary", b"finale", b"final to=x", b"nofinal"):
        assert find_all(spec, [200005, *split("gpt-oss", other, rng), 200008], table) == []
    assert find_all(spec, [200005, 17196, 200007, 200008], table) == []


@pytest.mark.parametrize(("name", "text"), [("qwen3", "</think>"), ("gpt-oss", "<|start|>")])
def test_an_agent_has_a_boundary_at_every_step(name, text):
    table = vocab(name)
    ids = encode(name, ("<|channel|>analysis<|message|>look<|end|>" if name == "gpt-oss" else "look") + text) * 5
    found = find_all(spec_for("boundary", "agent", table), ids, table)
    assert found == [Anchor(i, 1, "boundary") for i, t in enumerate(ids) if t == table.special_id(text)]
    assert len(found) == 5


# -- fallbacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["math", "choice", "code"])
def test_gpt_oss_falls_back_to_the_final_channel_and_qwen3_does_not(kind):
    oss, qwen = vocab("gpt-oss"), vocab("qwen3")
    final = encode("gpt-oss", "hm<|channel|>final<|message|>It is 42.")
    assert locate(spec_for("delimiter", kind, oss), final, oss) == Anchor(1, 3, "boundary")
    assert locate(spec_for("delimiter", kind, qwen), encode("qwen3", "hm</think>It is 42."), qwen) is None


@pytest.mark.parametrize(
    ("kind", "analysis", "final", "family"),
    [
        ("math", "\\boxed{1}", "", "delimiter"),
        ("math", "", "\\boxed{1}", "delimiter"),
        ("code", "", "\n```\n1\n```\n", "delimiter"),
        ("code", "\n```\n1\n```\n", "", "boundary"),  # a draft is no answer
    ],
)
def test_the_delimiter_wins_over_the_fallback_wherever_it_may_stand(kind, analysis, final, family):
    table = vocab("gpt-oss")
    ids = encode("gpt-oss", f"thus {analysis} so<|channel|>final<|message|>It is 42.{final}")
    assert locate(spec_for("delimiter", kind, table), ids, table).family == family


def test_an_alternative_that_occurs_decides_even_if_its_window_does_not_fit():
    table = vocab("gpt-oss")
    ids = encode("gpt-oss", "<|channel|>final<|message|>It is $\\boxed{42}$ and more")
    spec = spec_for("delimiter", "math", table)
    start = locate(spec, ids, table).start
    assert locate(spec, ids, table, width=16, budget=start + 4) is None
    assert locate(spec, ids, table, width=3, budget=start).family == "boundary"  # not yet there: the fallback
    assert locate(spec_for("delimiter", "math", table, occurrence=2), ids, table) is None


# -- trajectories --------------------------------------------------------------------------------------


def family(name, table):
    return {a.start for a in find_all(AnchorSpec("trajectory", (TOKEN_SETS[name],)), np.arange(len(table)), table)}


@pytest.mark.parametrize("name", REAL)
def test_families_hold_the_tokens_the_paper_describes(name):
    table = vocab(name)
    members = {key: family(key, table) for key in TOKEN_SETS}
    so = {"qwen3": {2055, 4416}, "gpt-oss": {2632, 5808}}[name]
    assert so <= members["so"]
    texts = {key: {table.token_bytes(i) for i in ids} for key, ids in members.items()}
    assert {b" so", b" So", b"so", b"SO", b'"So', b"\tSo"} <= texts["so"]
    assert not {b" some", b"also", b" Sony"} & texts["so"]
    assert {b" Now", b"now"} <= texts["now"]
    assert {b" Wait", b"wait"} <= texts["wait"]
    assert b" known" not in texts["now"]
    assert len(members[".\n\n"]) == {"qwen3": 46, "gpt-oss": 51}[name]
    assert {b".", b" .", b".\n", b".\n\n"} <= texts["."]
    assert {b":", b" :", b":\n"} <= texts[":"]
    assert not {b"..", b"().", b"./", b").", b".com"} & texts["."]
    assert not {b"::", b"://", b"):"} & texts[":"]


def test_a_trajectory_is_the_first_so_unless_told_otherwise():
    table = vocab("qwen3")
    ids = encode("qwen3", "Now, so what? So it goes.\n\nNow wait: so.")
    at = [i for i, t in enumerate(ids) if table.token_bytes(t).strip().lower() == b"so"]
    assert len(at) == 3
    assert locate(spec_for("trajectory", "math", table), ids, table) == Anchor(at[0], 1, "trajectory")
    for r in (1, 2, 3):
        assert locate(spec_for("trajectory", "agent", table, occurrence=r), ids, table).start == at[r - 1]
    assert locate(spec_for("trajectory", "math", table, occurrence=4), ids, table) is None
    assert locate(spec_for("trajectory", "math", table, occurrence="latest"), ids, table).start == at[-1]
    names = {key: len(find_all(spec_for("trajectory", "math", table, name=key), ids, table)) for key in TOKEN_SETS}
    assert names == {"so": 3, "now": 2, "wait": 1, ".\n\n": 1, ".": 2, ":": 1}
    written = [spec_for("trajectory", "math", table, name=n) for n in (".\\n\\n", "SO")]
    assert [s.find for s in written] == [(TOKEN_SETS[".\n\n"],), (TOKEN_SETS["so"],)]


def test_users_bring_their_own_families_and_markers():
    table = vocab("qwen3")
    ids = encode("qwen3", "Hmm, let me see. Therefore x. <tool_call>Final answer: 3</tool_call>")
    own = spec_for("trajectory", "math", table, name="/(?i)therefore/")
    assert own.find == (TokenSet("/(?i)therefore/", "(?i)therefore"),)
    assert table.token_bytes(ids[locate(own, ids, table).start]) == b" Therefore"
    words = spec_for("trajectory", "math", table, name="let me")
    assert pairs([locate(words, ids, table)]) == oracle(table, ids, b"let me")
    answer = spec_for("delimiter", "choice", table, name="Final answer:")
    assert locate(answer, ids, table).family == "delimiter"
    assert pairs([locate(answer, ids, table)]) == oracle(table, ids, b"Final answer:")
    call = spec_for("boundary", "agent", table, name="<tool_call>Final")
    assert locate(call, ids, table) == Anchor(ids.index(table.special_id("<tool_call>")), 2, "boundary")
    assert spec_for("delimiter", "math", table, name="```").find == (
        Fence(MARKERS["qwen3"].boundary, MARKERS["qwen3"].thinking),
    )


# -- budgets -------------------------------------------------------------------------------------------


def test_a_window_must_end_inside_the_budget():
    table = small_vocab(["x", "So"])
    ids = [0, 1, 0, 0, 1, 0, 0, 0]  # So at 1 and 4
    last = AnchorSpec("trajectory", (TOKEN_SETS["so"],))
    at = {b: locate(last, ids, table, width=3, budget=b) for b in range(12)}
    starts = {b: a.start if a else None for b, a in at.items()}
    # before 5 tokens the last So is at 1, whose window ends at 4; from 5 on it is at 4, ending at 7
    assert starts == {0: None, 1: None, 2: None, 3: None, 4: 1, 5: None, 6: None, 7: 4, 8: 4, 9: 4, 10: 4, 11: 4}
    latest = AnchorSpec("trajectory", (TOKEN_SETS["so"],), "latest")
    starts = {b: getattr(locate(latest, ids, table, width=3, budget=b), "start", None) for b in range(9)}
    assert starts == {0: None, 1: None, 2: None, 3: None, 4: 1, 5: 1, 6: 1, 7: 4, 8: 4}
    second = AnchorSpec("trajectory", (TOKEN_SETS["so"],), 2)
    starts = {b: getattr(locate(second, ids, table, width=3, budget=b), "start", None) for b in (5, 6, 7, 8)}
    assert starts == {5: None, 6: None, 7: 4, 8: 4}


def test_a_window_is_cut_at_the_end_of_the_rollout():
    table = small_vocab(["x", "So"])
    last = AnchorSpec("trajectory", (TOKEN_SETS["so"],))
    assert locate(last, [0, 0, 1], table, width=16) == Anchor(2, 1, "trajectory")
    assert locate(last, [0, 0, 1], table, width=16, budget=3) == Anchor(2, 1, "trajectory")
    assert locate(last, [0, 0, 1], table, width=16, budget=99) == Anchor(2, 1, "trajectory")
    assert locate(last, [0, 0, 1, 0], table, width=16, budget=3) is None


def test_the_marker_itself_is_the_default_window():
    table = vocab("qwen3")
    spec = spec_for("delimiter", "math", table)
    ids = [1, 59, CORE["qwen3"], 90, 1]
    assert [locate(spec, ids, table, budget=b) is not None for b in range(6)] == [False] * 4 + [True] * 2


@settings(max_examples=300, deadline=None)
@given(
    ids=st.lists(st.integers(0, 3), max_size=30),
    budget=st.none() | st.integers(0, 35),
    width=st.none() | st.integers(1, 12),
    occurrence=st.sampled_from(["last", "latest", 1, 2, 3]),
    whole=st.booleans(),
)
def test_locate_picks_from_all_anchors_by_the_rule(ids, budget, width, occurrence, whole):
    table = small_vocab(["x", "a", "b", " so"])
    finders = (Marker("delimiter", b"ab"), TOKEN_SETS["so"])
    found = find_all(AnchorSpec("delimiter", finders, occurrence), ids[:budget], table)
    seen = len(ids) if budget is None else min(budget, len(ids))
    stops = [a.start + (width or a.length) for a in found]
    fits = [(stop if whole else min(stop, len(ids))) <= seen for stop in stops]
    if occurrence == "latest":
        want = next((a for a, fit in zip(found[::-1], fits[::-1], strict=True) if fit), None)
    else:
        nth = len(found) - 1 if occurrence == "last" else occurrence - 1
        want = found[nth] if 0 <= nth < len(found) and fits[nth] else None
    spec = AnchorSpec("delimiter", finders, occurrence)
    assert locate(spec, ids, table, width=width, budget=budget, whole=whole) == want


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("middle", "math"), "unknown anchor family 'middle': use one of trajectory, boundary, delimiter"),
        (("delimiter", "poetry"), "unknown kind 'poetry': use one of math, choice, code, text, agent"),
        (("delimiter", "agent"), "has no delimiter"),
        (("trajectory", "math", ""), "empty trajectory name: use one of 'so', 'now', 'wait'"),
        (("delimiter", "math", ""), "delimiter marker must not be empty"),
        (("trajectory", "math", "/(/"), "is not a regular expression"),
        (("trajectory", "math", "/zqzqzq/"), "no token of this vocabulary matches /zqzqzq/"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(arguments, message):
    family, kind, *name = arguments
    with pytest.raises(InputError, match=re.escape(message)):
        spec_for(family, kind, vocab("qwen3"), name=name[0] if name else None)


@pytest.mark.parametrize("occurrence", [0, -1, "first", True, 1.5, "2"])
def test_an_occurrence_is_last_latest_or_a_count_from_one(occurrence):
    with pytest.raises(ReadoutError, match=r"'last', 'latest', or a count from 1 up"):
        spec_for("trajectory", "math", vocab("qwen3"), occurrence=occurrence)


def test_empty_specs_windows_and_budgets_are_refused():
    table = small_vocab(["x"])
    spec = AnchorSpec("trajectory", (TOKEN_SETS["so"],))
    with pytest.raises(ReadoutError, match="at least one marker"):
        AnchorSpec("trajectory", ())
    with pytest.raises(ReadoutError, match="unknown anchor family"):
        AnchorSpec("middle", (TOKEN_SETS["so"],))
    with pytest.raises(ReadoutError, match="width 0"):
        locate(spec, [0], table, width=0)
    with pytest.raises(ReadoutError, match="budget -1"):
        locate(spec, [0], table, budget=-1)


@pytest.mark.parametrize("family", ["trajectory", "boundary", "delimiter"])
@pytest.mark.parametrize("bad", [-1, 151669, 151936])
def test_an_id_outside_the_vocabulary_is_named(family, bad):
    table = vocab("qwen3")
    with pytest.raises(VocabError, match=f"token id {bad} is outside"):
        locate(spec_for(family, "code", table), [1, bad, 2], table)


@pytest.mark.parametrize("ids", [[], np.empty(0, np.int32)])
@pytest.mark.parametrize("family", ["trajectory", "boundary", "delimiter"])
def test_an_empty_rollout_has_no_anchor(family, ids):
    table = vocab("gpt-oss")
    spec = spec_for(family, "code", table)
    assert locate(spec, ids, table) is None
    assert find_all(spec, ids, table) == []
