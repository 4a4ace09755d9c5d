"""Harmony by openai-harmony, the reference, which knows gpt-oss's vocabulary alone.

It would download that vocabulary. Here it is given the one that the model's own tokenizer has, in tiktoken's form; the
library checks it by a hash. Nothing is downloaded, and no other vocabulary passes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from radmoe.vocab import Vocab
from radmoe_agent.harmony.messages import END, MESSAGE, Harmony, Malformed, Message, OwnHarmony

_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_TOKENS = 199_998  # of the base vocabulary; control tokens follow
_FILE, _FOLDER = "o200k_base.tiktoken", "TIKTOKEN_ENCODINGS_BASE"
_LOADING = threading.Lock()


class OpenAIHarmony(Harmony):
    """What openai-harmony renders and parses, in our messages."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def render(self, messages: Iterable[Message]) -> list[int]:
        from openai_harmony import Conversation, RenderConversationConfig

        theirs = Conversation.from_messages([_theirs(one) for one in messages])
        ids: list[int] = self._encoding.render_conversation(theirs, RenderConversationConfig(auto_drop_analysis=False))
        return ids

    def content_of(self, given: Mapping[str, Any]) -> str:
        """The text that one of openai-harmony's own messages, such as a system message with settings, has when rendered."""
        from openai_harmony import Conversation
        from openai_harmony import Message as Theirs

        text: str = self._encoding.decode(
            self._encoding.render_conversation(Conversation.from_messages([Theirs.from_dict(dict(given))]))
        )
        return text.partition(MESSAGE)[2].removesuffix(END)

    def parse(self, tokens: Sequence[int]) -> list[Message]:
        from openai_harmony import HarmonyError, Role

        try:
            made = self._encoding.parse_messages_from_completion_tokens(list(tokens), Role.ASSISTANT, strict=True)
        except HarmonyError as error:
            raise Malformed(str(error).splitlines()[0]) from None
        return [_ours(one) for one in made]


def harmony_for(vocab: Vocab) -> Harmony:
    """openai-harmony for gpt-oss's vocabulary, our own for any other that has Harmony's tokens."""

    def made() -> Harmony:
        table = tiktoken_table(vocab)
        return OwnHarmony(vocab) if table is None else OpenAIHarmony(_loaded(table))

    return vocab.cached("harmony", made)


def tiktoken_table(vocab: Vocab) -> bytes | None:
    """The base vocabulary of gpt-oss in tiktoken's form: a line per token, its bytes in base64 and its rank.

    None where this is another vocabulary.
    """
    if len(vocab) < _TOKENS:
        return None
    lines = (b"%b %d\n" % (base64.b64encode(vocab.token_bytes(token)), token) for token in range(_TOKENS))
    table = b"".join(lines)
    return table if hashlib.sha256(table).hexdigest() == _SHA256 else None


def _loaded(table: bytes) -> Any:
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    with _LOADING, tempfile.TemporaryDirectory(prefix="radmoe-harmony-") as folder:
        (Path(folder) / _FILE).write_bytes(table)
        before = os.environ.get(_FOLDER)
        os.environ[_FOLDER] = folder
        try:
            return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
        finally:
            with suppress(KeyError):
                del os.environ[_FOLDER]
            if before is not None:
                os.environ[_FOLDER] = before


def _theirs(message: Message) -> Any:
    from openai_harmony import Author, Role, TextContent
    from openai_harmony import Message as Theirs

    return Theirs(
        author=Author(role=Role(message.role), name=message.name),
        content=[TextContent(text=message.content)],
        channel=message.channel,
        recipient=message.recipient,
        content_type=message.content_type,
    )


def _ours(message: Any) -> Message:
    text = "".join(part.text for part in message.content)
    author = message.author
    return Message(author.role.value, text, author.name, message.channel, message.recipient, message.content_type)
