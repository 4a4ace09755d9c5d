"""What closes an answer, on token ids, against a walk over the bytes: whatever the text, however it is cut into tokens."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import covering, oracle_blocks, oracle_box, pairs, spans, split
from radmoe.errors import ReadoutError
from radmoe.selection.anchors import find_all, locate, locate_extent, spec_for
from radmoe.selection.closing import REACH, answer_text
from radmoe.selection.readout import windows
from radmoe.types import Anchor
from vocabularies import REAL, encode, vocab

BOXES = {
    "plain": ("so \\boxed{7} then", "7"),
    "nested": ("\\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
    "deeply nested": ("\\boxed{{{}{{a}}}b}", "{{}{{a}}}b"),
    "escaped braces do not count": ("\\boxed{\\{1, 2\\}} }", "\\{1, 2\\}"),
    "a line break before a brace": ("\\boxed{a\\\\} b}", "a\\\\"),
    "empty": ("\\boxed{}", ""),
    "too many closing braces": ("\\boxed{1}}}", "1"),
    "a box in a box: the inner one opens last": ("\\boxed{\\boxed{3} + 1}", "3"),
    "the last of two": ("\\boxed{1} or \\boxed{2}", "2"),
    "unbalanced": ("\\boxed{\\frac{1}{2}", None),
    "cut off": ("so \\boxed{12", None),
    "cut off at once": ("\\boxed{", None),
    "an earlier box that closes does not help": ("\\boxed{1} no, \\boxed{2", None),
    "a backslash at the end": ("\\boxed{1\\", None),
    "no box": ("nothing", None),
}
BLOCKS = {
    "plain": ("a\n```python\nx = 1\n```\nb", "x = 1\n"),
    "two blocks": ("```py\nx\n```\n\n```\ny\n```\n", "y\n"),
    "empty": ("```\n```", ""),
    "never closed": ("```py\nx = 1\n", None),
    "the last one never closes": ("```\nx\n```\ntext\n```python\nprint(", None),
    "quoted in a docstring": (
        '```py\ndef f():\n    """\n    ```\n    x\n    ```\n    """\n```\n',
        'def f():\n    """\n    ```\n    x\n    ```\n    """\n',
    ),
    "a fence in a string that stands at the margin closes": ('```py\ns = """\n```\n"""\n```\n', None),
    "inline backticks in a string close nothing": ('```py\ns = "```"\n```\n', 's = "```"\n'),
    "four around three": ("````md\n```py\nx\n```\n````\n", "```py\nx\n```\n"),
    "a run with an info string does not close": ("```\n```py\nx\n```\n", "```py\nx\n"),
    "indented": ("1. do:\n\n     ```py\n     x\n     ```\n", "     x\n"),
    "no block": ("nothing", None),
}


def tokenisations(name, text, seed, count=12):
    rng = random.Random(seed)
    return [encode(name, text), *(split(name, text.encode(), rng) for _ in range(count))]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(("kind", "case"), [*(("math", case) for case in BOXES), *(("code", case) for case in BLOCKS)])
def test_an_answer_closes_where_its_bytes_say(name, kind, case):
    text, inside = (BOXES if kind == "math" else BLOCKS)[case]
    table = vocab(name)
    for ids in tokenisations(name, text, case):
        extent = locate_extent(kind, ids, table)
        anchor = locate(spec_for("closing", kind, table), ids, table)
        if inside is None:
            assert (extent, anchor) == (None, None)
            continue
        assert anchor == extent.closing
        assert answer_text(extent, np.array(ids), table, kind) == inside
        _, edges = spans(table, ids)
        begin = text.rindex("\\boxed{") + len("\\boxed{") + len(inside) if kind == "math" else None
        if begin is not None:
            assert pairs([anchor]) == [(covering(edges, begin, begin + 1)[0], 1)]
        assert find_all(spec_for("closing", kind, table), ids, table) == [anchor]


PIECES = [
    "\\boxed{", "{", "}", "\\{", "\\}", "\\", "\\\\", "7", " x", "\\frac", "é", "```", "```py\n", "\n", "\n```\n", "    ```\n",
    "````\n", "</think>", "<|im_end|>",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(drawn=st.lists(st.sampled_from(PIECES), max_size=30), seed=st.integers(0, 2**32), canonical=st.booleans())
def test_closings_agree_with_the_walk_over_bytes(drawn, seed, canonical):
    table, rng, ids = vocab("qwen3"), random.Random(seed), []
    for piece in drawn:
        control = table.special_id(piece)
        ids += [control] if control is not None else split("qwen3", piece.encode(), rng)
    if canonical:
        ids = encode("qwen3", "".join(drawn))
    box, blocks = oracle_box(table, ids), oracle_blocks(table, ids)
    block = blocks[-1] if blocks and blocks[-1][1] is not None else None
    for kind, want in (("math", box), ("choice", box), ("code", block)):
        extent = locate_extent(kind, ids, table)
        got = locate(spec_for("closing", kind, table), ids, table)
        if want is None:
            assert extent is None
            assert got is None
            assert windows("delimiter@span", np.array(ids, np.int32), table, kind) == []
            continue
        assert pairs([extent.opening, extent.closing]) == list(want[:2])
        assert got == extent.closing
        start, stop = want[0][0], sum(want[1])
        assert extent.span == (start, stop)
        tokens = np.array(ids, np.int32)
        assert windows("delimiter@span", tokens, table, kind) == [(start, stop)]
        assert windows("closing@marker", tokens, table, kind) == [(want[1][0], stop)]
        assert windows("closing@3", tokens, table, kind) == [(want[1][0], min(want[1][0] + 3, len(ids)))]
        before = (max(0, want[1][0] - 3), want[1][0])
        assert windows("closing@-3", tokens, table, kind) == ([before] if before[1] else [])
        inside = want[2].replace(b"\r", b"\n").replace(b"\0", b"\n" if kind == "code" else b" ")
        assert answer_text(extent, tokens, table, kind) == inside.decode("utf-8", "replace")


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("{}\\ab \n"), max_size=25), st.integers(0, 2**32))
def test_where_an_answer_closes_does_not_depend_on_how_it_is_cut(inside, seed):
    table, text = vocab("qwen3"), f"so \\boxed{{{inside}}} end"
    ends = set()
    for ids in tokenisations("qwen3", text, seed, count=4):
        anchor = locate(spec_for("closing", "math", table), ids, table)
        _, edges = spans(table, ids)
        brace = oracle_box(table, ids)
        ends.add(None if anchor is None else len(text.encode()) - len(brace[2]))
        if anchor is not None:
            assert text.encode()[edges[anchor.start] : edges[anchor.start + 1]].count(b"}") >= 1
        assert windows("all", np.array(ids, np.int32), table, None) == [(0, len(ids))]
    assert len(ends) == 1


@pytest.mark.parametrize("length", [REACH - 3, REACH, 4 * REACH, 20 * REACH])
def test_a_long_box_closes_too(length):
    table = vocab("qwen3")
    inside = split("qwen3", b"a{b}" * length, random.Random(0))
    ids = [*encode("qwen3", "x \\boxed{"), *inside, *encode("qwen3", "} and {on} it goes")]
    extent = locate_extent("math", ids, table)
    assert pairs([extent.opening, extent.closing]) == list(oracle_box(table, ids)[:2])
    assert locate_extent("math", ids[: extent.closing.start], table) is None


def test_a_box_does_not_reach_beyond_a_control_token():
    table = vocab("qwen3")
    assert locate_extent("math", encode("qwen3", "\\boxed{1<|im_end|>}"), table) is None
    assert locate_extent("math", encode("qwen3", "<think>\\boxed{1</think>}"), table) is None


# -- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("qwen3", "<think>hm</think>\n\nIt is so.<|im_end|>", "\n\nIt is so. "),
        ("qwen3", "It is so.<|im_end|>", "It is so. "),  # a model that does not think
        ("qwen3", "<think>hm, let me", None),  # cut off before the final response
        ("qwen3", "<think>a</think>b</think>c", "c"),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
            "Yes. ",
        ),
        ("gpt-oss", "<|channel|>analysis<|message|>hm", None),
    ],
)
def test_a_text_closes_where_its_rollout_ends(name, text, said):
    table, ids = vocab(name), encode(name, text)
    extent = locate_extent("text", ids, table)
    spec = spec_for("closing", "text", table)
    if said is None:
        assert extent is None
        assert locate(spec, ids, table) is None
        return
    assert extent.closing == Anchor(len(ids), 0, "closing") == locate(spec, ids, table)
    assert answer_text(extent, np.array(ids), table, "text") == said
    tokens = np.array(ids, np.int32)
    assert windows("closing@-2", tokens, table, "text") == [(len(ids) - 2, len(ids))]
    assert locate(spec, ids, table, budget=len(ids) - 1) is None  # the end is not there yet
    assert locate_extent("text", ids, table, budget=len(ids) - 1) is None
    assert locate(spec, ids, table, budget=len(ids)) is not None


def test_behind_a_text_there_is_no_row():
    table = vocab("qwen3")
    tokens = np.array(encode("qwen3", "It is so."), np.int32)
    for readout in ("closing@16", "closing@marker"):
        with pytest.raises(ReadoutError, match=f"no row follows for {readout}: use closing@-16"):
            windows(readout, tokens, table, "text")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (None, {}, "what closes an answer depends on its kind"),
        ("agent", {}, "kind 'agent' has no answer that closes"),
        ("math", {"name": "}"}, "takes no name and no occurrence"),
        ("math", {"occurrence": 2}, "takes no name and no occurrence"),
    ],
)
def test_a_closing_that_cannot_be_is_refused(kind, options, message):
    with pytest.raises(ReadoutError, match=message):
        spec_for("closing", kind, vocab("qwen3"), **options)


def test_a_fallback_of_the_delimiter_has_no_closing():
    """gpt-oss without a box: the delimiter falls back to the final channel, which nothing closes."""
    table = vocab("gpt-oss")
    ids = encode("gpt-oss", "<|channel|>final<|message|>It is 5.<|return|>")
    assert locate(spec_for("delimiter", "math", table), ids, table) is not None
    assert locate_extent("math", ids, table) is None
    assert windows("delimiter@span", np.array(ids, np.int32), table, "math") == []


@pytest.mark.parametrize("kind", ["math", "code"])
def test_rollouts_of_one_or_two_tokens_are_no_trouble(kind):
    table = vocab("qwen3")
    marks = encode("qwen3", "\\boxed{")[:1] + encode("qwen3", "```") + encode("qwen3", "}") + encode("qwen3", "a")
    for ids in ([a, b] for a in marks for b in marks):
        for tokens in (ids, ids[:1]):
            array = np.array(tokens, np.int32)
            assert windows("all", array, table, kind) == [(0, len(tokens))]
            for readout in ("closing@-16", "closing@16", "delimiter@span"):
                assert windows(readout, array, table, kind) == []
