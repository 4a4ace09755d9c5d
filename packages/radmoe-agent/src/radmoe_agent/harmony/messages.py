"""Harmony messages, and our own way from messages to token ids and back, for any vocabulary with Harmony's tokens.

`openai-harmony` does the same for gpt-oss's vocabulary alone (`openai.py`); the tests hold both to the same ids and messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from radmoe.errors import InputError, RadmoeError
from radmoe.vocab import Vocab

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
ROLES = ("user", "assistant", "system", "developer", "tool")
_BLANK = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHANNEL_NAME = re.compile(f"{re.escape(CHANNEL)}([^{_BLANK}<]*)")
_OUTER_BLANKS = re.compile(f"^[{_BLANK}]+|[{_BLANK}]+$")
_WORDS = re.compile(r"[^\t\n\x0c\r ]+")


class Malformed(RadmoeError):
    """What a model generated is no step: it cannot be read as messages, or neither calls a tool nor ends the run."""


@dataclass(frozen=True)
class Message:
    """One message. `role` is one of `ROLES`, and `name` that of the tool who wrote it; a call has a `recipient`."""

    role: str
    content: str
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


class Harmony(Protocol):
    """Messages to token ids and back."""

    def render(self, messages: Iterable[Message]) -> list[int]:
        """The token ids of whole messages."""

    def parse(self, tokens: Sequence[int]) -> list[Message]:
        """The messages that an assistant generated after `<|start|>assistant`, the end token with it or not.

        Raises Malformed for tokens that are no messages.
        """


class OwnHarmony(Harmony):
    """Harmony for any vocabulary that has its tokens (`MARKS`). Raises InputError for one that lacks any of them.

    In a text, what only looks like one of these tokens is tokenised as text.
    """

    def __init__(self, vocab: Vocab) -> None:
        from tokenizers import Tokenizer

        if missing := [mark for mark in MARKS if mark not in vocab.added]:
            raise InputError(f"this vocabulary has no {missing[0]}, so it is none of Harmony's: use a gpt-oss model")
        self._vocab = vocab
        self._id = {mark: vocab.added[mark] for mark in MARKS}
        self._ends = {self._id[mark] for mark in (END, CALL, RETURN)}
        self._tokenizer: Any = Tokenizer.from_str(bytes(vocab.json).decode())
        self._tokenizer.encode_special_tokens = True

    def render(self, messages: Iterable[Message]) -> list[int]:
        return [token for message in messages for token in self._message(message)]

    def parse(self, tokens: Sequence[int]) -> list[Message]:
        made: list[Message] = []
        rest, role = list(tokens), "assistant"
        while True:
            if self._id[MESSAGE] not in rest:
                raise Malformed("a message has no <|message|>")
            at = rest.index(self._id[MESSAGE])
            header = self._decode(rest[:at])
            stop = next((i for i in range(at + 1, len(rest)) if rest[i] in self._ends), len(rest))
            content = bytes(self._vocab.decode_bytes(rest[at + 1 : stop])).decode(errors="replace")
            made.append(read_header(header, content, role))
            rest, role = rest[stop + 1 :], ""
            if not rest:
                return made
            if rest.pop(0) != self._id[START]:
                raise Malformed("a message does not begin with <|start|>")

    def _message(self, message: Message) -> list[int]:
        author = message.name if message.role == "tool" else message.role
        if not author or message.role not in ROLES:
            raise InputError(
                f"a message of {message.role!r} must have one of the roles {', '.join(ROLES)}, a tool a name"
            )
        ids = [self._id[START], *self._encode(author)]
        if message.role != "tool" and message.name is not None:
            ids += self._encode(f":{message.name}")
        if message.recipient not in (None, "all"):
            ids += self._encode(f" to={message.recipient}")
        if message.channel is not None:
            ids += [self._id[CHANNEL], *self._encode(message.channel)]
        if message.content_type is not None:
            ids += self._content_type(message.content_type)
        ids += [self._id[MESSAGE], *self._encode(message.content)]
        calls = message.role == "assistant" and message.recipient is not None
        return [*ids, self._id[CALL if calls else END]]

    def _content_type(self, text: str) -> list[int]:
        if not text.startswith(CONSTRAIN):
            return self._encode(f" {text}")
        return [*self._encode(" "), self._id[CONSTRAIN], *self._encode(text.removeprefix(CONSTRAIN))]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids if text else []
        return ids

    def _decode(self, tokens: Sequence[int]) -> str:
        try:
            return bytes(self._vocab.decode_bytes(tokens)).decode()
        except UnicodeDecodeError:
            raise Malformed("a header is no text") from None


def read_header(header: str, content: str, role: str) -> Message:
    """A message by the text of its header, which may name author, recipient, channel and content type in several orders.

    `role` is the author's where the prompt gave it; otherwise it is the header's first word. An unknown author is a tool.
    """
    channel = None
    if found := _CHANNEL_NAME.search(header):
        channel = found[1]
        if not channel:
            raise Malformed("a header has <|channel|> and no channel")
        header = header[: found.start()] + header[found.end() :]
    words = _WORDS.findall(_OUTER_BLANKS.sub("", header).replace(CONSTRAIN, f" {CONSTRAIN}"))
    name = None
    if not role:
        if not words:
            raise Malformed("a header has no author")
        role = words[0]
        if role not in ROLES:
            if len(words) < 2 and not role.startswith("to="):
                raise Malformed(f"a header has an unknown author: {role[:60]!r}")
            role, name = "tool", words.pop(0)
        elif role == "tool":
            name = role
    if words and words[0] == role:
        words.pop(0)
    recipient = content_type = None
    if words:
        last = words.pop()
        if words and not last.startswith("to="):
            content_type, last = last, words.pop()
        recipient = last.removeprefix("to=")
    if words:
        raise Malformed(f"a header has more than author, recipient, channel and content type: {' '.join(words)[:60]!r}")
    return Message(role, content, name, channel, recipient, content_type)
