"""Chat messages to token ids, so that tokens the model sampled are never tokenised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from radmoe.engines.prompts import render


class Conversation:
    """The requests of one agent, in their order.

    A request whose text goes on from the one before and from what was generated then keeps the ids of both; only the
    rest is tokenised. Where the chat template drops earlier reasoning, the whole text is tokenised, and
    `retokenised` counts such requests. `arguments` go to the chat template.
    """

    def __init__(self, tokenizer: Any, arguments: dict[str, object] | None = None) -> None:
        self._tokenizer, self.arguments = tokenizer, arguments or {}
        self._history = self._request = _NOTHING
        self.retokenised = 0

    def prompt(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The token ids of a request."""
        text = self.text(messages)
        known = self._history
        if not text.startswith(known.text):
            self.retokenised += 1
            known = _NOTHING
        rest = text[len(known.text) :]
        ids = [*known.ids, *(self._tokenizer(rest, add_special_tokens=False)["input_ids"] if rest else ())]
        self._request = _Text(text, ids)
        return list(ids)

    def text(self, messages: Sequence[dict[str, Any]]) -> str:
        """The text of a request."""
        return render(self._tokenizer, [plain(message) for message in messages], self.arguments)

    def answered(self, tokens: list[int]) -> None:
        """Add the tokens that were generated for the last request to the history."""
        text, ids = self._request
        self._history = _Text(text + self._tokenizer.decode(tokens, skip_special_tokens=False), [*ids, *tokens])


class _Text(NamedTuple):
    """A text and the token ids that it stands for."""

    text: str
    ids: list[int]


_NOTHING = _Text("", [])
_FIELDS = ("reasoning_content", "tool_calls", "tool_call_id", "name")  # what templates read beside role and content


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message as a chat template takes it. Content in parts becomes the text of its parts."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return {"role": message["role"], "content": content} | {key: message[key] for key in _FIELDS if message.get(key)}
