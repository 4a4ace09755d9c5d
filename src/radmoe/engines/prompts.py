"""Prompts to token ids, through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.problems import Content

_STYLES: dict[str, dict[str, object]] = {  # how a model is to think -> what its chat template is told
    "thinking": {"enable_thinking": True},
    "instruct": {"enable_thinking": False},
    "low": {"reasoning_effort": "low"},
    "medium": {"reasoning_effort": "medium"},
    "high": {"reasoning_effort": "high"},
}


def template_arguments(style: str) -> dict[str, object]:
    """The chat template arguments for a style: Qwen's templates take `enable_thinking`, gpt-oss's `reasoning_effort`."""
    if style not in _STYLES:
        raise InputError(f"unknown style {style!r}: use one of {', '.join(_STYLES)}")
    return dict(_STYLES[style])


def style_of(arguments: Mapping[str, object]) -> str | None:
    """The style that these chat template arguments stand for; None if they stand for none or include others."""
    return next((style for style, own in _STYLES.items() if own == arguments), None)


def encode(tokenizer: Any, content: Content, *, raw: bool = False, **arguments: object) -> tuple[str, list[int]]:
    """A prompt as the model sees it: its text and token ids. `content` is a text, or chat messages.

    A text becomes one user message of the tokenizer's chat template, if it has one; `raw` takes the text as it is, with
    the tokenizer's own special tokens. Messages need a chat template. `arguments` go to the template (see
    `template_arguments`).
    """
    template = bool(getattr(tokenizer, "chat_template", None)) and not raw
    if isinstance(content, str) and not template:
        return content, list(tokenizer(content)["input_ids"])
    if not template and raw:
        raise InputError("with raw there is no chat template to render messages with: pass the prompt as a text")
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    text = render(tokenizer, messages, arguments)
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])


def render(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, object], *, answer: bool = True
) -> str:
    """The text of chat messages; with `answer` it ends where the model's answer begins. `arguments` go to the template."""
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("this tokenizer has no chat template to render messages with: pass the prompt as a text")
    try:
        return str(
            tokenizer.apply_chat_template(list(messages), add_generation_prompt=answer, tokenize=False, **arguments)
        )
    except Exception as error:  # a template is a program of its own: jinja2 errors, KeyError, TypeError
        raise InputError(f"the chat template refuses {str(messages)[:80]}: {str(error).splitlines()[0]}") from None
