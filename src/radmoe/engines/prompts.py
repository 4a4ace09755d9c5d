"""A JSONL file of prompts, and prompts to token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radmoe.errors import InputError

Message = dict[str, Any]
Content = str | Sequence[Message]  # a text, or chat messages


@dataclass(frozen=True)
class Prompt:
    """One problem to sample: its id, and a text or chat messages."""

    problem_id: str
    content: Content


def read_prompts(path: str | Path) -> list[Prompt]:
    """Prompts of a JSONL file, in order.

    A line is an object with `prompt` (a text) or `messages` (role and content each), and `problem_id`
    or `id`; without one, the line's number. Other fields are left alone, blank lines skipped. A line that
    is none of this is an error that names it.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"cannot read {file} ({reason}): pass a JSONL file of prompts") from None
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file} line {number}"
        prompt = _prompt(line, number, where)
        if prompt.problem_id in seen:
            raise InputError(f"{where}: problem {prompt.problem_id!r} is already on line {seen[prompt.problem_id]}")
        seen[prompt.problem_id] = number
        prompts.append(prompt)
    if not prompts:
        raise InputError(f'{file} holds no prompts: write one object per line, such as {{"id": "1", "prompt": "..."}}')
    return prompts


def _prompt(line: str, number: int, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is not an object with a prompt, but {line.strip()[:40]}")
    name = record.get("problem_id", record.get("id", number))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise InputError(f"{where}: problem_id must be a text or a whole number, got {name!r}")
    if ("prompt" in record) == ("messages" in record):
        raise InputError(f"{where} must have either prompt or messages, got the keys {sorted(record)}")
    if "prompt" in record:
        text = record["prompt"]
        if not isinstance(text, str) or not text:
            raise InputError(f"{where}: prompt must be a text that is not empty, got {text!r}")
        return Prompt(str(name), text)
    messages = record["messages"]
    good = isinstance(messages, list) and messages
    if not good or not all(isinstance(m, dict) and "role" in m and "content" in m for m in messages):
        raise InputError(f"{where}: messages must be a list of objects with role and content")
    return Prompt(str(name), messages)


def encode(tokenizer: Any, content: Content, *, raw: bool = False, **said: object) -> tuple[str, list[int]]:
    """A prompt as the model sees it: its text and token ids.

    A text is one user message of the tokenizer's chat template, if it has one; `raw` takes it as it is,
    with the tokenizer's own special tokens. Messages need a chat template, which is told what else is `said`
    (enable_thinking, reasoning_effort).
    """
    template = bool(getattr(tokenizer, "chat_template", None)) and not raw
    if isinstance(content, str) and not template:
        return content, list(tokenizer(content)["input_ids"])
    if not template:
        why = "with raw there is no chat template" if raw else "this tokenizer has no chat template"
        raise InputError(f"{why} to render messages with: pass the prompt as a text")
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else list(content)
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **said)
    except Exception as error:  # a template is a program of its own: jinja2 errors, KeyError, TypeError
        raise InputError(f"the chat template refuses {str(messages)[:80]}: {str(error).splitlines()[0]}") from None
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])
