"""Prompts to token ids, through the tokenizer's chat template."""

from __future__ import annotations

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
    """What a chat template is told for a style: Qwen's templates take `enable_thinking`, gpt-oss's `reasoning_effort`."""
    if style not in _STYLES:
        raise InputError(f"unknown style {style!r}: use one of {', '.join(_STYLES)}")
    return dict(_STYLES[style])


def encode(tokenizer: Any, content: Content, *, raw: bool = False, **arguments: object) -> tuple[str, list[int]]:
    """A prompt as the model sees it: its text and token ids. `content` is a text, or chat messages.

    A text becomes one user message of the tokenizer's chat template, if it has one; `raw` takes the text as it is, with
    the tokenizer's own special tokens. Messages need a chat template. `arguments` go to the template (see
    `template_arguments`).
    """
    template = bool(getattr(tokenizer, "chat_template", None)) and not raw
    if isinstance(content, str) and not template:
        return content, list(tokenizer(content)["input_ids"])
    if not template:
        reason = "with raw there is no chat template" if raw else "this tokenizer has no chat template"
        raise InputError(f"{reason} to render messages with: pass the prompt as a text")
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **arguments)
    except Exception as error:  # a template is a program of its own: jinja2 errors, KeyError, TypeError
        raise InputError(f"the chat template refuses {str(messages)[:80]}: {str(error).splitlines()[0]}") from None
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])
