"""What a model sampled is read as a step in every form in which gpt-oss writes one; what is none is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

import vocabularies
from radmoe_agent.harmony.messages import CALL, Malformed, Message
from radmoe_agent.harmony.openai import harmony_for
from radmoe_agent.harmony.steps import Reply, action_tokens, opening, read_step

SEARCH = '{"path": "", "query": "total"}'
THOUGHT = "<|channel|>analysis<|message|>So<|end|><|start|>assistant"


def step(text: str) -> Reply:
    vocab = vocabularies.vocab("gpt-oss")
    return read_step(harmony_for(vocab), vocab, vocabularies.encode("gpt-oss", text))


@pytest.mark.parametrize("thought", [THOUGHT, ""])
@pytest.mark.parametrize("end", ["<|call|>", "", "<|return|>", "\n<|call|><|start|>assistant"])
@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>analysis to=repo_browser.search code",
        "<|channel|>analysis to=repo_browser.search <|constrain|>json",
        "<|channel|>commentary to=repo_browser.search code",
        "<|channel|>commentary to=repo_browser.search<|constrain|>json",
        "<|channel|>analysis to=repo_browser.search",
        " to=repo_browser.search<|channel|>analysis code",
        " to=repo_browser.search<|channel|>commentary <|constrain|>json",
        " to=search<|channel|>analysis code",
        "<|channel|>analysis to=functions.search code",
        "<|channel|>repo_browser.search<|channel|>analysis code",
        "<|channel|>assistant to=repo_browser.search<|channel|>analysis code",
        "<|channel|>browser.search to=assistant<|channel|>analysis code",
    ],
)
def test_a_call_is_read_in_every_form_and_shown_in_one(header: str, end: str, thought: str) -> None:
    reply = step(f"{thought}{header}<|message|>{SEARCH}{end}")
    assert reply.call is not None
    assert (reply.call.tool, reply.call.arguments["query"]) == ("repo_browser.search", "total")
    *before, call = reply.messages
    assert before == [Message("assistant", "So", channel="analysis")] * bool(thought)
    assert (call.recipient, call.channel) == (
        "repo_browser.search",
        "commentary" if "commentary" in header else "analysis",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"file_path": "a.py", "start_line": 3, "end_line": "9"}', ("a.py", 3, 9, False)),
        ('{"path": "a.py", "line_numbers": "true", "extra": 1}', ("a.py", 1, None, True)),
    ],
)
def test_aliases_are_accepted(arguments: str, expected: tuple[Any, ...]) -> None:
    call = step(f"<|channel|>analysis to=repo_browser.open_file code<|message|>{arguments}<|call|>").call
    assert call is not None
    assert tuple(call.arguments[name] for name in ("path", "line_start", "line_end", "line_numbers")) == expected


@pytest.mark.parametrize("name", ["query", "pattern"])
def test_what_is_looked_for_is_a_query_or_a_pattern(name: str) -> None:
    call = step(f'<|channel|>analysis to=repo_browser.search code<|message|>{{"{name}": "total"}}<|call|>').call
    assert call is not None
    assert call.arguments["query"] == "total"


@pytest.mark.parametrize("name", ["command", "cmd"])
@pytest.mark.parametrize("value", ['["bash", "-lc", "ls"]', '"ls"'])
def test_a_command_is_a_list_or_a_line(name: str, value: str) -> None:
    call = step(f'<|channel|>analysis to=container.exec code<|message|>{{"{name}": {value}}}<|call|>').call
    assert call is not None
    assert call.arguments["command"] == ["bash", "-lc", "ls"]


def test_a_final_message_ends_the_work() -> None:
    reply = step(f"{THOUGHT}<|channel|>final<|message|>Done.<|return|>")
    assert reply.call is None
    assert reply.messages[-1] == Message("assistant", "Done.", channel="final")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<|channel|>analysis<|message|>So<|return|>", "it neither called a tool nor wrote a final message"),
        ("<|channel|>commentary<|message|>I will look.<|end|>", "it neither called a tool nor wrote a final message"),
        ("no message at all", "."),
        ("", "."),
        ("<|channel|>analysis to=browser.open code<|message|>{}", r"it called 'browser.open', which is no tool: there are"),
        ("<|channel|>analysis code<|message|>{}", "it called 'code', which is no tool"),
        (f"{THOUGHT[:-9]}user<|message|>go on<|end|>", "it wrote a message as user"),
        ("<|channel|>analysis to=repo_browser.search code<|message|>not json", "the arguments of repo_browser.search are not JSON"),
        ("<|channel|>analysis to=repo_browser.search code<|message|>[1]", "no JSON object"),
        ("<|channel|>analysis to=repo_browser.search code<|message|>{}", "repo_browser.search was called without query"),
        ('<|channel|>analysis to=container.exec code<|message|>{"command": 3}', r"container.exec needs command to be string\[\], got '3'"),
        ("<|channel|>analysis to=repo_browser.search code<|message|>" + "[" * 200_000, "not JSON"),
        ('<|channel|>analysis to=repo_browser.search code<|message|>{"query": "\\ud800"}', "have half a character"),
    ],
)  # fmt: skip
def test_what_is_no_step_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        step(text)


def test_a_request_ends_where_the_model_goes_on() -> None:
    vocab = vocabularies.vocab("gpt-oss")
    assert opening(harmony_for(vocab), vocab) == vocabularies.encode("gpt-oss", "<|start|>assistant")
    tokens = vocabularies.encode("gpt-oss", "a<|call|>b")
    assert [*action_tokens(vocab, tokens), vocab.added[CALL]] == tokens[:-1]
