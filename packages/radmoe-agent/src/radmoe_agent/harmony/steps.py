"""What a model sampled as one step: its thoughts, and the tool that it calls or the message that ends its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from radmoe.vocab import Vocab
from radmoe_agent.harmony.messages import CALL, MESSAGE, RETURN, Harmony, Malformed, Message
from radmoe_agent.harmony.tools import TOOLS, Call, read_call, tool_name

FINAL = "final"
_CHANNELS = ("analysis", "commentary")


class Reply(NamedTuple):
    """A step. `messages` are what later requests show of it, and `call` is None where it ends the work."""

    messages: tuple[Message, ...]
    call: Call | None


def read_step(harmony: Harmony, vocab: Vocab, tokens: Sequence[int]) -> Reply:
    """The step that a model generated after `opening`. Raises Malformed for what is none.

    A call is accepted in every form in which gpt-oss writes it (the recipient before or behind the channel, or in its
    place), and later requests show it in one: recipient, channel, type. What follows the first call is not read.
    """
    messages: list[Message] = []
    for message in harmony.parse(action_tokens(vocab, tokens)):
        author = (message.name or message.role).partition("<|")[0]  # a second channel is read as a part of its name
        if "assistant" not in (message.role, author):
            raise Malformed(f"it wrote a message as {author}")
        message = replace(message, role="assistant", name=None)
        if name := tool_name(message.recipient) or tool_name(message.channel):
            channel = message.channel if message.channel in _CHANNELS else _CHANNELS[0]
            shown = replace(message, channel=channel, recipient=name, content_type=message.content_type or "code")
            return Reply((*messages, shown), read_call(name, message.content))
        if message.recipient is not None:
            raise Malformed(f"it called {message.recipient[:60]!r}, which is no tool: there are {', '.join(TOOLS)}")
        messages.append(message)
        if message.channel == FINAL:
            return Reply(tuple(messages), None)
    raise Malformed("it neither called a tool nor wrote a final message")


def action_tokens(vocab: Vocab, tokens: Sequence[int]) -> list[int]:
    """The tokens of a step up to the first one that ends an action, without it."""
    ends = {vocab.added[CALL], vocab.added[RETURN]}
    return list(tokens[: next((at for at, token in enumerate(tokens) if token in ends), len(tokens))])


def opening(harmony: Harmony, vocab: Vocab) -> list[int]:
    """The tokens `<|start|>assistant`, with which every request ends."""
    ids = harmony.render([Message("assistant", "")])
    return ids[: ids.index(vocab.added[MESSAGE])]
