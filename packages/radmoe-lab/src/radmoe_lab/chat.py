"""Chat formats: ChatML as Qwen3 writes it, Harmony as gpt-oss does, and their Jinja templates.

A model is trained on what `render` returns, and its tokenizer carries `chat_template`; a test checks that they agree.
"""

from __future__ import annotations

from radmoe.errors import InputError
from radmoe_lab.tasks import Example

STYLES = {"chatml": ("thinking", "instruct"), "harmony": ("low", "medium", "high")}
FAMILIES = tuple(STYLES)

# The first one ends a completion. Special tokens are skipped when text is decoded for people to read.
SPECIAL = {
    "chatml": ("<|im_end|>", "<|im_start|>", "<|endoftext|>"),
    "harmony": ("<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|endoftext|>"),
}  # fmt: skip
ADDED = {"chatml": ("<think>", "</think>"), "harmony": ()}  # control tokens that are not special, as in Qwen3
PAD = "<|endoftext|>"

_CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""

_HARMONY = """\
{%- set effort = reasoning_effort if reasoning_effort is defined else 'medium' %}
{%- if effort not in ['low', 'medium', 'high'] %}
{{- raise_exception('reasoning_effort must be low, medium or high') }}
{%- endif %}
{{- '<|start|>system<|message|>Reasoning: ' + effort + '<|end|>' }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- else %}
{{- '<|start|>' + ('developer' if message.role == 'system' else message.role) + '<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start|>assistant' }}
{%- endif %}"""


def chat_template(family: str) -> str:
    """The Jinja template. ChatML takes `enable_thinking`, Harmony `reasoning_effort` (low, medium or high)."""
    check_family(family)
    return _CHATML if family == "chatml" else _HARMONY


def prompt_text(prompt: str, family: str, style: str) -> str:
    """The text that a model is given for a prompt, up to where its completion begins."""
    check_family(family)
    if style not in STYLES[family]:
        raise InputError(f"{family} has no style {style!r}: use one of {', '.join(STYLES[family])}")
    if family == "harmony":
        system = f"<|start|>system<|message|>Reasoning: {style}<|end|>"
        return f"{system}<|start|>user<|message|>{prompt}<|end|><|start|>assistant"
    silent = "<think>\n\n</think>\n\n" if style == "instruct" else ""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{silent}"


def render(example: Example, family: str) -> tuple[str, str]:
    """The prompt and the completion as the model sees them. The completion ends with its end token."""
    prompt = prompt_text(str(example.problem.prompt), family, example.style)
    if family == "harmony":
        thought = f"<|channel|>analysis<|message|>{example.reasoning}<|end|>"
        return prompt, f"{thought}<|start|>assistant<|channel|>final<|message|>{example.final}<|return|>"
    thought = "" if example.style == "instruct" else f"<think>\n{example.reasoning}\n</think>\n\n"
    return prompt, f"{thought}{example.final}<|im_end|>"


def check_family(family: str) -> None:
    if family not in FAMILIES:
        raise InputError(f"unknown chat family {family!r}: use one of {', '.join(FAMILIES)}")
