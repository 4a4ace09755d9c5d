"""A tiny MoE model whose answers come from a script, and small repositories with a bug, for the agents' tests."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tiny_moe
from radmoe.engines.base import Sampling
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import EngineError
from radmoe.pool import Profile
from radmoe_agent.instances import Instance
from radmoe_agent.responder import EngineResponder, ScriptedResponder
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


class DeadEngine:
    """The engine, which answers so many requests, and then none."""

    concurrent = True

    def __init__(self, answers: int) -> None:
        self._left = answers

    def __getattr__(self, name: str) -> Any:
        return getattr(engine(), name)

    def generate(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise EngineError("the GPU fell off the bus")
        return engine().generate(*arguments, **options)


def sampled_plan(dies: Path | None = None) -> AgentPlan:
    """Three issues, four times each, by a random model. The engine of whoever makes the file `dies` first is soon dead."""
    asked: Any = engine()
    if dies is not None:
        with suppress(FileExistsError):
            dies.touch(exist_ok=False)
            asked = DeadEngine(3)
    responder = EngineResponder(asked, Sampling(max_tokens=12, topk_logprobs=2), batch_size=1)
    return AgentPlan(instances("one", "two", "three"), responder, CONFIG, n=4, batch_size=1, step_limit=2)


def step(command: str, thought: str = "So") -> str:
    """An answer of the model: a thought, the boundary, and one command."""
    return f"<think>{thought}</think>\n```mswea_bash_command\n{command}\n```"


def mend(by: str) -> str:
    return step(f"sed -i 's/ + 1/{by}/' sums.py")


def instances(*names: str) -> list[Instance]:
    return [Instance(name, "total adds 1", files=BUG) for name in names]


def run_script(out: Path, script: dict[str, list[list[str]]], **options: Any) -> AgentRun:
    """Run mini-swe-agent on a script: for every instance its runs, and for every run its answers."""
    return run_agents(script_plan(script, **options), out)


def script_plan(
    script: dict[str, list[list[str]]],
    *,
    template: str = TEMPLATE,
    n: int | None = None,
    only: int | None = None,
    config: dict[str, Any] = CONFIG,
    issues: list[Instance] | None = None,
    **options: Any,
) -> AgentPlan:
    """The plan of `run_script`."""

    def answer(key: str, rollout_index: int) -> str:
        name, _, number = key.rpartition("/")
        return script[name][rollout_index][int(number)]

    options = {"batch_size": 2, "profile": Profile(readouts=("step@union",))} | options
    return AgentPlan(
        issues or instances(*script)[:only],
        ScriptedResponder(engine(template), answer),
        config,
        n=n or len(next(iter(script.values()))),
        **options,
    )
