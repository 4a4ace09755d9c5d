"""Code fences: which opens the last block, whatever stands around it."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import covering, oracle_fences, pairs, spans, split
from radmoe.selection.anchors import find_all, locate, spec_for
from radmoe.types import Anchor
from vocabularies import REAL, encode, vocab

FENCES = {
    "plain": ("a\n```python\nx\n```\nb", [0]),
    "two blocks": ("```py\nx\n```\n\n```\ny\n```\n", [0, 2]),
    "at the very start": ("```\nx\n```", [0]),
    "unclosed": ("```\nx\n```\ntext\n```python\nprint(", [0, 2]),
    "cut after the run": ("text\n```", [0]),
    "cut inside the info string": ("text\n```pyth", [0]),
    "inline is no fence": ("text ``` inline\nand `a` ``b`` ```c``` d", []),
    "a line of inline code is no fence": ("```c``` starts a line\n", []),
    "tildes are no fence": ("~~~\nx\n~~~\n", []),
    "tildes do not close": ("```\n~~~\n```\n```\n", [0, 2]),
    "two backticks are no fence": ("``\nx\n``\n", []),
    "four around three": ("````md\n```py\nx\n```\n````\n", [0]),
    "a longer run closes": ("```\nx\n`````\n```\ny\n```", [0, 2]),
    "a run with an info string does not close": ("```\n```py\nx\n```\n", [0]),
    "info string": ('```python title="a.py" {1,2}\nx\n```', [0]),
    "indented by three": ("   ```\n   x\n   ```\n", [0]),
    "indented in a list": ("1. do:\n\n     ```py\n     x\n     ```\n\n```\ny\n```", [0, 2]),
    "tabs": ("\t```\n\tx\n\t```\n```\n", [0, 2]),
    "quoted in a docstring": ('```py\ndef f():\n    """\n    ```\n    x\n    ```\n    """\n```\n', [0]),
    "blanks behind the closing run": ("```\nx\n```  \t\n```\n", [0, 2]),
    "carriage returns": ("```py\r\nx\r\n```\r\n```\r\n", [0, 2]),
    "empty": ("", []),
}


def runs_of(text):
    """Byte spans of all runs of three or more backticks."""
    return [m.span() for m in re.finditer(rb"`{3,}", text.encode())]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("case", FENCES)
def test_fences_open_where_commonmark_says(name, case):
    text, openers = FENCES[case]
    table, rng = vocab(name), random.Random(case)
    spec = spec_for("delimiter", "code", table)
    for ids in [encode(name, text), *(split(name, text.encode(), rng) for _ in range(20))]:
        _, edges = spans(table, ids)
        want = [covering(edges, *runs_of(text)[i]) for i in openers]
        assert pairs(find_all(spec, ids, table)) == [(w[0], len(w)) for w in want]
        assert pairs(find_all(spec, ids, table)) == oracle_fences(table, ids)
        got = locate(spec, ids, table)
        assert (got.start if got else None) == (want[-1][0] if want else None)


@pytest.mark.parametrize("name", REAL)
def test_the_fence_is_its_backticks_as_the_tokenizer_cuts_them(name):
    table, spec = vocab(name), spec_for("delimiter", "code", vocab(name))
    python = {"qwen3": [73594, 12669], "gpt-oss": [168394, 29010]}[name]
    assert encode(name, "```python") == python
    bare = {"qwen3": [13874, 3989], "gpt-oss": [26178, 7450]}[name]
    assert encode(name, "```\n") == bare
    blank = {"qwen3": [41233], "gpt-oss": [93366]}[name]
    assert encode(name, " ```\n") == blank
    assert [find_all(spec, ids, table) for ids in (python, bare, blank)] == [
        [Anchor(0, 1, "delimiter")],
        [Anchor(0, 2, "delimiter")],
        [Anchor(0, 1, "delimiter")],
    ]


def last_fence(name, text):
    """Start byte of the located fence in a text with one boundary."""
    table = vocab(name)
    ids = encode(name, text)
    anchor = locate(spec_for("delimiter", "code", table), ids, table)
    return None if anchor is None else len(table.decode_bytes(ids[: anchor.start]))


@pytest.mark.parametrize(
    ("name", "boundary"),
    [
        ("qwen3", "</think>"),
        ("gpt-oss", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("gpt-oss", "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>"),
    ],
)
def test_only_the_fences_of_the_response_count(name, boundary):
    thinking = "try\n```python\nx = 1\n"
    answer = "\n\n```python\ny = 2\n```\n"
    text = thinking + boundary + answer
    assert last_fence(name, text) == text.rindex("```python")
    assert last_fence(name, f"{thinking}{boundary}```python\nz\n```") == len(thinking + boundary)
    table = vocab(name)
    fallback = (thinking + boundary).index("<|channel|>") if name == "gpt-oss" else None
    for drafted in (thinking, f"{thinking}```\n"):
        assert last_fence(name, drafted + boundary + "no code") == (
            fallback and fallback + len(drafted) - len(thinking)
        )
        assert find_all(spec_for("closing", "code", table), encode(name, drafted + boundary), table) == []


@pytest.mark.parametrize(("name", "opening"), [("qwen3", "<think>"), ("gpt-oss", "<|channel|>analysis<|message|>")])
def test_thinking_that_never_ends_has_no_block(name, opening):
    assert last_fence(name, f"{opening}try\n```python\nx = 1\n```\nor rather") is None
    assert last_fence(name, "try\n```python\nx = 1\n```\nor rather") == len("try\n")


def test_a_control_token_ends_the_line_of_a_fence():
    table = vocab("qwen3")
    spec = spec_for("delimiter", "code", table)
    closed = encode("qwen3", "```py\nx\n```<|im_end|>")
    assert len(find_all(spec, closed, table)) == 1
    again = [*closed, *encode("qwen3", "```py\nx\n```")]
    assert pairs(find_all(spec, again, table)) == [(0, 1), (len(closed), 1)]


@pytest.mark.parametrize("name", ["qwen3"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_fences_agree_with_the_line_by_line_walk(name, data):
    table = vocab(name)
    pieces = [
        "\n",
        "`",
        "```",
        "````",
        " ",
        "   ",
        "\t",
        "py",
        "x = 1",
        "~~~",
        "\r\n",
        "<think>",
        "</think>",
        "<|im_end|>",
        "\n```",
    ]
    drawn = data.draw(st.lists(st.sampled_from(pieces), max_size=40))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    ids = []
    for piece in drawn:
        control = table.special_id(piece)
        ids += [control] if control is not None else split(name, piece.encode(), rng)
    if data.draw(st.booleans()):
        ids = encode(name, "".join(drawn))
    spec = spec_for("delimiter", "code", table)
    want = oracle_fences(table, ids)
    assert pairs(find_all(spec, ids, table)) == want
    got = locate(spec, ids, table)
    assert pairs([got] if got else []) == want[-1:]
