r"""The grader reads the answer whose opening selection looks for: one boundary, one last block, one last box.

Rollouts are put together from what models write, tokenised by the real tokenizers, and looked at from both sides: by
selection, which sees token ids, and by the grader, the gateway and the importer of trajectories, which see a text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.grading.answers import boxed, extract, fenced, response
from radmoe.selection.anchors import locate, locate_extent, markers_for, spec_for, text_response
from radmoe.selection.closing import BOX, CONTROL_TOKEN, answer_text, text_blocks
from radmoe.serve import prompt_rendering
from radmoe.serve.prompt_rendering import split_thinking
from radmoe_agent import importer
from vocabularies import encode, vocab

COMMON = [
    "so", " x = 1", "\n", "\n\n", "  ", "    ", "\t", "\r\n", "`a`", "``b``", "```c```", "é", "\uff08", "1. do:\n", "~~~\n", "~~~\ny\n~~~\n",
    "```", "````", "\n```\n", "\n```python\n", "\n````md\n", "\n````\n", "   ```\n", "     ```py\n", "\n    ```\n", "\nprint(1)\n",
    '\n```py\ndef f():\n    """\n    ```\n    x\n    ```\n    """\n```\n', "\n```py\n```js\nx\n```\n", "\n```python\nx = 1\n```\n", "\n```\nx",
    "\\boxed{", "\\boxed{7}", "\\boxed{\\frac{1}{2}}", "\\boxed{\\{1\\}}", "\\boxed{\\boxed{3}+1}", "\\boxed{\\text{B}}", "}", "{", "\\{", "\\}",
    "\\\\", "\\", "\\fbox{8}", "\\boxed 5", "\\boxed {6}", "\\framebox{2}", " and ", ", ", " or ", "$", "y=", "The answer is (C).", "<", "|>",
]  # fmt: skip
CONTROL = {
    "qwen3": ["<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "</think>\n\n"],
    "gpt-oss": [
        "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>",
        "<|channel|>final<|constrain|>json<|message|>", "<|channel|>final <|constrain|> text/x-python <|message|>", "<|channel|>final",
        "<|channel|>commentary to=functions.run <|constrain|>json<|message|>", "<|channel|>finally<|message|>", "<|constrain|>",
        "<|end|><|start|>assistant", "<|end|>", "<|return|>", "<|call|>", "<|message|>",
    ],
}  # fmt: skip
OPENINGS = {
    "qwen3": ["", "<think>", "<think>\n"],
    "gpt-oss": ["<|channel|>analysis<|message|>", "<|channel|>final<|message|>"],
}


@st.composite
def rollouts(draw: Any, name: str) -> str:
    pieces = st.lists(st.one_of(st.sampled_from(COMMON), st.sampled_from(CONTROL[name])), max_size=14)
    if draw(st.booleans()):
        return draw(st.sampled_from(OPENINGS[name])) + "".join(draw(pieces))
    plain = st.lists(st.sampled_from(COMMON), max_size=8).map(
        "".join
    )  # thinking, boundary and response, as they should be
    parts = [draw(st.sampled_from(OPENINGS[name]))]
    for _ in range(draw(st.integers(0, 2))):
        parts += [draw(plain), draw(st.sampled_from(CONTROL[name]))]
    return "".join([*parts, draw(plain), draw(st.sampled_from(["", *CONTROL[name]]))])


def place(table: Any, ids: list[int], token: int) -> int:
    """The byte at which a token begins."""
    return len(table.decode_bytes(ids[:token]))


def holds(table: Any, ids: list[int], token: int, before: str) -> bool:
    """Whether a token holds the byte that follows a text."""
    return place(table, ids, token) <= len(before.encode()) < place(table, ids, token + 1)


def check_response(text: str, ids: list[int], table: Any) -> None:
    extent, opening = locate_extent("text", ids, table), text_response(text, markers_for(table))
    assert opening == text_response(text)
    assert (extent is None) == (opening is None) == (response(text) is None)
    thinking, answer = split_thinking(text, table)
    if extent is None or opening is None:
        assert answer == ""
        return
    first, behind = extent.opening.start, extent.opening.start + extent.opening.length
    assert [place(table, ids, token) for token in (first, behind)] == [len(text[:at].encode()) for at in opening]
    assert thinking is None or opening != (0, 0)
    if table is vocab("gpt-oss"):
        assert answer == (prompt_rendering._CONTROL.sub("", text[opening[1] :]) if opening[1] else text)
    else:
        assert answer == (text[opening[1] :].lstrip("\n") if opening[1] else text)
        located = locate(spec_for("boundary", "agent", table), ids, table)
        assert importer._has_boundary(text) == (located is not None)


def check_box(text: str, ids: list[int], table: Any) -> None:
    anchor, extent = locate(spec_for("delimiter", "math", table), ids, table), locate_extent("math", ids, table)
    inside = boxed(text)
    if BOX not in text:
        assert extent is None
        assert anchor is None or anchor.family == "boundary"  # gpt-oss falls back to the final channel
        return
    assert anchor is not None
    assert holds(table, ids, anchor.start, text[: text.rindex(BOX)])
    assert (inside is None) == (extent is None)
    if extent is not None:
        assert answer_text(extent, np.array(ids), table, "math") == inside
        assert text[text.rindex(BOX) + len(BOX) :].startswith(str(inside))
    else:
        assert extract("math", text) is None


def check_block(text: str, ids: list[int], table: Any) -> None:
    anchor = locate(spec_for("delimiter", "code", table, name="```"), ids, table)
    extent, program = locate_extent("code", ids, table), fenced(text)
    assert (anchor is None) == (program is None)
    assert extract("code", text) is None or anchor is not None
    if anchor is None or program is None:
        return
    opening = text_response(text)
    assert opening is not None
    block, closing = text_blocks(text[opening[1] :])[-1]
    assert holds(table, ids, anchor.start, text[: opening[1] + block.start(2)])
    assert (extent is None) == (closing is None)
    if extent is not None:
        assert extent.opening == anchor
        body = answer_text(extent, np.array(ids), table, "code")
        assert CONTROL_TOKEN.sub(" ", program).split() == body.split()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "gpt-oss"])
def test_the_grader_reads_what_selection_locates(name: str) -> None:
    table = vocab(name)

    @settings(max_examples=2000, deadline=None)
    @given(rollouts(name))
    def check(text: str) -> None:
        ids = encode(name, text)
        assert table.decode_bytes(ids).decode() == text
        check_response(text, ids, table)
        check_box(text, ids, table)
        check_block(text, ids, table)

    check()


@pytest.mark.parametrize(
    "constrained", ["final", "final <|constrain|>json", "final<|constrain|>json", "final <|constrain|> py "]
)
def test_a_constrained_final_channel_is_the_response(constrained: str) -> None:
    draft = "<|channel|>analysis<|message|>Perhaps B.\n```python\ndraft\n```<|end|><|start|>assistant"
    opening = f"<|channel|>{constrained}<|message|>"
    assert extract("code", f"{draft}{opening}```python\nfinal\n```<|return|>") == "final"
    assert extract("text", f"{draft}{opening}Paris<|return|>") == "Paris"
    assert extract("choice", f"{draft}{opening}The answer is C.<|return|>") == "C"
    assert split_thinking(f"{draft}{opening}5<|return|>", vocab("gpt-oss")) == (
        "Perhaps B.\n```python\ndraft\n```",
        "5",
    )


def test_a_block_of_the_thinking_is_no_answer() -> None:
    assert extract("code", "<think>\n```python\ndraft\n```\nor rather") is None
    assert extract("code", "<|channel|>analysis<|message|>\n```python\ndraft\n```\nor rather") is None
    assert extract("code", "<|channel|>commentary<|message|>\n```python\ndraft\n```<|call|>") is None
    assert extract("code", "\n```python\nno thinking\n```\n") == "no thinking"


def test_marks_of_other_models_are_prose() -> None:
    final = "<|channel|>final<|message|>Qwen ends its thinking with </think>, gpt-oss does not."
    assert response(final) == "Qwen ends its thinking with </think>, gpt-oss does not."
    assert split_thinking(final, vocab("gpt-oss")) == (None, response(final))


def test_the_gateway_takes_the_last_response_as_selection_does() -> None:
    assert split_thinking("<think>a</think>b</think>c", vocab("qwen3")) == ("a</think>b", "c")
    twice = "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"
    assert split_thinking(twice, vocab("gpt-oss")) == ("a", "b")
    assert split_thinking("<|channel|>commentary<|message|>hm<|call|>", vocab("gpt-oss")) == ("hm", "")
