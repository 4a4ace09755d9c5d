"""The messages between agent and model, as mini-swe-agent 2.4 renders them from mini.yaml beside this file.

A machine that samples has neither mini-swe-agent nor Jinja, so they are written again here in Python; a test compares
the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

CONFIG = Path(__file__).with_name("mini.yaml")

SYSTEM = "You mend bugs in small repositories. Think, then give one bash command in a mswea_bash_command block."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"
FINISHED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # the first line of what a submission prints
MOST_OUTPUT = 2000  # characters of a command's output that the model sees
STEP_LIMIT = 16
FORMAT_ERRORS = 3  # in a row, after which the agent gives up
COMMAND_S = 10  # for one command

_ACTION = re.compile(r"```mswea_bash_command\s*\n(.*?)\n```", re.DOTALL)

Message = dict[str, str]


def opening(issue: str) -> list[Message]:
    """The first two messages of a conversation."""
    task = f"{issue}\n\nRun the tests with `python3 check.py`, mend the code, and submit with `{SUBMIT}`."
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]


def reply(thought: str, command: str) -> str:
    """An assistant's message."""
    return f"<think>\n{thought}\n</think>\n\n```mswea_bash_command\n{command}\n```"


def actions(content: str) -> list[str]:
    """The commands of an assistant's message; there should be one."""
    return [action.strip() for action in _ACTION.findall(content)]


def observation(output: str, code: int, *, stopped: bool = False) -> str:
    """The message that shows what a command printed. A command that was stopped has the code -1."""
    shown = output if len(output) <= MOST_OUTPUT else f"{output[:MOST_OUTPUT]}\n(cut)\n"
    return f"{'stopped' + chr(10) if stopped else ''}exit {code}\n{shown}"


def submission(output: str, code: int) -> str | None:
    """Return what a command submits, which is everything it prints after the first line; None if it submits nothing."""
    lines = output.lstrip().splitlines(keepends=True)
    if lines and lines[0].strip() == FINISHED and code == 0:
        return "".join(lines[1:])
    return None


def format_error(count: int) -> str:
    """The message that answers a reply with no command or with several."""
    return f"Expected exactly 1 action, found {count}. Give one command in a mswea_bash_command block."


def prompt_text(messages: Sequence[Message]) -> str:
    """The conversation as ChatML, up to where the assistant's next message begins."""
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"
