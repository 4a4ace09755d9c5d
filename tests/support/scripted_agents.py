"""A tiny MoE model whose answers come from a script, and small repositories with a bug, for the agents' tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import tiny_moe
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.pool import Profile
from radmoe_agent.instances import Instance
from radmoe_agent.responder import ScriptedResponder
from radmoe_agent.run import AgentPlan, AgentRun, run_agents

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
FORGETFUL = (  # drops the reasoning of earlier turns, as Qwen3's own template does
    "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CONFIG: dict[str, Any] = {
    "agent": {"system_template": "Mend it.", "instance_template": "{{task}}"},
    "model": {
        "observation_template": "{{output.returncode}}{{output.exception_info}}\n{{output.output}}",
        "format_error_template": "{{actions|length}} commands",
    },
}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"
BUG = {"sums.py": "def total(xs):\n    return sum(xs) + 1\n"}


@cache
def engine(template: str = TEMPLATE) -> TransformersEngine:
    tokenizer = tiny_moe.PreTrainedTokenizerFast(
        tokenizer_object=tiny_moe.planted.tokenizer(), eos_token="<|im_end|>", chat_template=template
    )
    model = tiny_moe.model("qwen3-moe", max_position_embeddings=2048)
    return TransformersEngine(model, tokenizer=tokenizer, threads=1, model_name="tiny")


def step(command: str, thought: str = "So") -> str:
    """An answer of the model: a thought, the boundary, and one command."""
    return f"<think>{thought}</think>\n```mswea_bash_command\n{command}\n```"


def mend(by: str) -> str:
    return step(f"sed -i 's/ + 1/{by}/' sums.py")


def instances(*names: str) -> list[Instance]:
    return [Instance(name, "total adds 1", files=BUG) for name in names]


def run_script(
    out: Path,
    script: dict[str, list[list[str]]],
    *,
    template: str = TEMPLATE,
    n: int | None = None,
    only: int | None = None,
    config: dict[str, Any] = CONFIG,
    issues: list[Instance] | None = None,
    **options: Any,
) -> AgentRun:
    """Run mini-swe-agent on a script: for every instance its runs, and for every run its answers."""

    def answer(key: str, rollout_index: int) -> str:
        name, _, number = key.rpartition("/")
        return script[name][rollout_index][int(number)]

    options = {"workers": 2, "profile": Profile(readouts=("step@union",))} | options
    plan = AgentPlan(
        issues or instances(*script)[:only],
        ScriptedResponder(engine(template), answer),
        config,
        n=n or len(next(iter(script.values()))),
        **options,
    )
    return run_agents(plan, out)
