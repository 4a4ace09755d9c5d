"""What a model sees of a prompt."""

from __future__ import annotations

import pytest

import tiny_moe
from radmoe.engines.prompts import encode, template_arguments
from radmoe.errors import InputError


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


def test_a_style_is_told_to_the_template() -> None:
    assert template_arguments("instruct") == {"enable_thinking": False}
    assert template_arguments("high") == {"reasoning_effort": "high"}
    with pytest.raises(InputError, match="unknown style 'loud': use one of thinking, instruct, low, medium, high"):
        template_arguments("loud")
    told = tiny_moe.tokenizer(chat=True).__class__(tokenizer_object=tiny_moe.tokenizer().backend_tokenizer)
    told.chat_template = "{{ enable_thinking }}"
    assert encode(told, "So", **template_arguments("thinking"))[0] == "True"
