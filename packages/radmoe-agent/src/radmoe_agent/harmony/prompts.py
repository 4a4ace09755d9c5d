"""What a model is told before its first step: the system message with its tools, the instructions, and the issue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from radmoe.errors import InputError
from radmoe_agent.harmony.messages import Message
from radmoe_agent.harmony.tools import tools_text

EFFORTS = ("low", "medium", "high")
EFFORT = EFFORTS[2]  # App. "Agentic best-of-N"
_SYSTEM = """You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06

Reasoning: {effort}

{tools}

# Valid channels: analysis, commentary, final. Channel must be included for every message."""
_INSTRUCTIONS = """# Instructions

You are a software engineer. The user gives you an issue of the repository in {{cwd}}. Change the repository's source files so that
the issue is resolved, in general and in the style of the code around them.

- In every turn, think first, then call exactly one tool. You see its answer before your next turn.
- Find the code that the issue is about, reproduce the problem, make the smallest change that resolves it, and check it. Run the
  repository's own tests for what you changed.
- Leave existing tests and configuration as they are, and remove every file that you made only to try something out.
- Each command runs in a new shell in {{cwd}}: changes of directory and of variables are lost. Nobody can answer a prompt.
- When the issue is resolved, write a short summary in the final channel. That ends your work, and the state of the files is
  what you hand in."""
CONFIG: dict[str, Any] = {
    "agent": {
        "system_template": _INSTRUCTIONS,
        "instance_template": "Resolve this issue:\n\n<issue>\n{{task}}\n</issue>",
        "step_limit": 1000,  # as the public harness: the context, not a count, ends a long trajectory
    },
    "environment": {"cwd": "/testbed", "timeout": 300, "env": {"PAGER": "cat", "MANPAGER": "cat", "LESS": "-R"}},
}


def effort_of(arguments: Mapping[str, object]) -> str:
    """The reasoning effort that chat template arguments ask for; `EFFORT` where they ask for none."""
    if arguments.keys() - {"reasoning_effort"}:
        raise InputError(f"the Harmony harness knows the styles {', '.join(EFFORTS)} alone")
    return str(arguments.get("reasoning_effort", EFFORT))


def first_messages(agent: Mapping[str, Any], effort: str, variables: Mapping[str, Any]) -> list[Message]:
    """The messages before the first step. `agent` is that section of the configuration, whose templates see `variables`."""
    from jinja2 import StrictUndefined, Template

    def rendered(name: str) -> str:
        return str(Template(str(agent[name]), undefined=StrictUndefined).render(**variables))

    return [
        Message("system", _SYSTEM.format(effort=effort, tools=tools_text())),
        Message("developer", rendered("system_template")),
        Message("user", rendered("instance_template")),
    ]
