"""A tiny random gpt-oss model over gpt-oss's own vocabulary, whose steps come from a script, for the Harmony harness's tests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

import tiny_moe
import vocabularies
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.pool import Profile
from radmoe_agent.instances import Instance
from radmoe_agent.responder import ScriptedResponder
from radmoe_agent.run import HARMONY, AgentPlan, AgentRun, load_config, run_agents

CONTEXT = 131_072
BUG = {"sums.py": "def total(xs):\n    return sum(xs) + 1\n", "pkg/deep/a.py": "x = 1\n"}
_SIZE = {
    "vocab_size": 201_088,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": [200_002, 199_999, 200_012],  # as gpt-oss's own generation config
}


def tokenizer() -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=vocabularies.tokenizer("gpt-oss"))


def model(**changes: Any) -> Any:
    return tiny_moe.model("gpt-oss", **(_SIZE | changes))


def save(path: Path) -> None:
    """A checkpoint directory."""
    model().save_pretrained(path)
    tokenizer().save_pretrained(path)


@cache
def engine(context: int = CONTEXT) -> TransformersEngine:
    made = TransformersEngine(model(), tokenizer=tokenizer(), threads=1, model_name="tiny-oss")
    made.context = context
    return made


def call(tool: str, arguments: dict[str, Any] | str, thought: str = "So") -> str:
    """A step as gpt-oss writes it most often: a thought, the boundary, and a call in the analysis channel."""
    content = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return (
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>analysis to={tool} code<|message|>"
        f"{content}<|call|>"
    )


def bash(command: str, thought: str = "So") -> str:
    return call("container.exec", {"command": ["bash", "-lc", command]}, thought)


def mend(by: str) -> str:
    lines = (
        "*** Begin Patch",
        "*** Update File: sums.py",
        "-    return sum(xs) + 1",
        f"+    return sum(xs){by}",
        "*** End Patch",
    )
    return call("repo_browser.apply_patch", {"patch": "\n".join(lines)})


FINAL = "<|channel|>analysis<|message|>Done<|end|><|start|>assistant<|channel|>final<|message|>Mended.<|return|>"


def instances(*names: str) -> list[Instance]:
    return [Instance(name, "total adds 1", files=BUG) for name in names]


def run_script(out: Path, script: dict[str, list[list[str | list[str]]]], **options: Any) -> AgentRun:
    """Run the Harmony harness on a script: for every instance its runs, for every run its steps, for a step its samples."""
    return run_agents(script_plan(script, **options), out)


def script_plan(
    script: dict[str, list[list[str | list[str]]]],
    *,
    n: int | None = None,
    issues: list[Instance] | None = None,
    context: int = CONTEXT,
    **options: Any,
) -> AgentPlan:
    """The plan of `run_script`."""

    def answer(key: str, rollout_index: int) -> str:
        name, step, *attempt = key.split("/")
        samples = script[name][rollout_index][int(step)]
        return samples if isinstance(samples, str) else samples[int(attempt[0]) if attempt else 0]

    options = {
        "batch_size": 2,
        "profile": Profile(readouts=("step@union",)),
        "config": load_config(harness=HARMONY),
    } | options
    return AgentPlan(
        issues or instances(*script),
        ScriptedResponder(engine(context), answer),
        n=n or len(next(iter(script.values()))),
        harness=HARMONY,
        **options,
    )
