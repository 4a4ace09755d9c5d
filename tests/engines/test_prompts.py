"""Prompts of a JSONL file, and what a model sees of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_moe
from radmoe.engines.prompts import Prompt, encode, read_prompts
from radmoe.errors import InputError


def test_ids_prompts_and_messages_are_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    chat = '[{"role": "user", "content": "hi"}]'
    file.write_text(
        f'{{"problem_id": "a", "prompt": "one", "answer": "1"}}\n\n{{"id": 7, "messages": {chat}}}\n{{"prompt": "\\u00e9"}}\n'
    )
    assert read_prompts(file) == [
        Prompt("a", "one"),
        Prompt("7", [{"role": "user", "content": "hi"}]),
        Prompt("4", "é"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "line 2 is not JSON"),
        ("[1, 2]", r"line 2 is not an object with a prompt, but \[1, 2\]"),
        ('{"id": "x"}', r"line 2 must have either prompt or messages, got the keys \['id'\]"),
        ('{"prompt": "a", "messages": []}', "line 2 must have either"),
        ('{"prompt": ""}', "line 2: prompt must be a text that is not empty, got ''"),
        ('{"prompt": 3}', "line 2: prompt must be a text"),
        ('{"messages": []}', "line 2: messages must be a list"),
        ('{"messages": [{"role": "user"}]}', "line 2: messages must be a list of objects with role and content"),
        ('{"id": "first", "prompt": "again"}', "line 2: problem 'first' is already on line 1"),
        ('{"id": null, "prompt": "a"}', "line 2: problem_id must be"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "first", "prompt": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        read_prompts(file)


def test_no_file_no_text_no_prompts(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    with pytest.raises(InputError, match="No such file"):
        read_prompts(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_prompts(file)
    file.write_text("\n")
    with pytest.raises(InputError, match="holds no prompts"):
        read_prompts(file)


def test_the_chat_template_is_used_where_there_is_one() -> None:
    plain, chat = tiny_moe.tokenizer(), tiny_moe.tokenizer(chat=True)
    assert encode(plain, "So 1")[0] == "So 1"
    text, ids = encode(chat, "So 1")
    assert text == "<think>user: So 1</think><think>"
    assert plain.decode(ids) == text
    assert ids[0] == plain.convert_tokens_to_ids("<think>")
    assert encode(chat, "So 1", raw=True) == encode(plain, "So 1")
    assert encode(chat, [{"role": "user", "content": "So 1"}]) == (text, ids)


def test_messages_need_a_template() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(InputError, match="this tokenizer has no chat template"):
        encode(tiny_moe.tokenizer(), messages)
    with pytest.raises(InputError, match="with raw there is no chat template"):
        encode(tiny_moe.tokenizer(chat=True), messages, raw=True)
