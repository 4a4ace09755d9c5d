"""The card of a data set: README.md, whose front matter the Hub and `datasets` read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from radmoe.system.printing import visible
from radmoe_integrations.hub import layout

if TYPE_CHECKING:
    from radmoe_integrations.hub.export import Exported

WARNING = (
    "routing alone gives tokens back: a linear decoder reads 98% of the tokens that went into a pass from one row of it, and "
    "95 to 99.6% of answers' first digits from a window (radmoe's docs/security.md; python -m benchmarks.leakage)"
)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_MEANING = {
    "problem_id": "the problem; its rollouts stand together",
    "problem_index": "the problem's place among those that were asked, or null",
    "kind": "what an answer looks like, which decides the marker: math, choice, code, text, agent, or null",
    "rollout_index": "the number of the rollout within its problem",
    "finish_reason": "why it ended",
    "steps": "the turns of a trajectory: where each starts among the tokens, and how many tokens of the one before it keeps",
    "given": "the tokens that each turn was given",
    "text": "the completion",
    "prompt": "what was asked",
    "extra": "what the writer was told besides, as JSON",
    "token_ids": "the completion: ids of `tokenizer.json`, special tokens included",
    "positions": "the tokens whose routing is here, ascending",
    "expert_ids": "the experts of the pass that predicts each token",
    "weights": "their weights, which sum to 1 over the experts of a token and layer",
    "sampled_logprobs": "log-probabilities of the tokens",
    "topk_logprobs": "log-probabilities of the likeliest tokens",
    "prompt_expert_ids": "the experts of the prompt's own positions",
    "prompt_weights": "their weights",
}


def card(description: dict[str, Any], exported: Exported) -> str:
    """The text of README.md."""
    model, has_labels = description["run"]["model"], exported.labels > 0
    size = next((name for most, name in _SIZES if exported.rollouts < most), "n>1M")
    configs = {"rollouts": "default: true"} | ({"labels": ""} if has_labels else {})
    front = ["---", "# license: add the one that you give it, and look at the model's and the problems' own"]
    front += [f"pretty_name: {_quoted(f'Rollouts of {model} with their routing')}"]
    front += ["tags:", *(f"- {tag}" for tag in ("radmoe", "mixture-of-experts", "expert-routing", "best-of-n"))]
    front += ["size_categories:", f"- {size}", "configs:"]
    for name, more in configs.items():
        front += [f"- config_name: {name}", *([f"  {more}"] if more else [])]
        front += ["  data_files:", "  - split: train", f"    path: data/{name}-*.parquet"]
    stored = "of every token" if exported.readouts is None else f"in the windows of {', '.join(exported.readouts)}"
    shapes = {name: shape for name, (_, shape) in layout.arrays(description["columns"]).items()}
    columns = [
        f"| `{one.name}` | {one.type} | {_shape(shapes.get(one.name, ()))}{_MEANING[one.name]} |"
        for one in layout.fields(description)
    ]
    run = {name: value for name, value in description["run"].items() if name != "profile"}
    router = {name: description[name] for name in ("layers", "experts", "top_k")}
    listed = [
        f"| {name} | {entry.get('rows', '')} | {entry['bytes']} | {entry['sha256']} |"
        for name, entry in description["files"].items()
    ]
    labels = (
        f"The config `labels` has {exported.labels:,} of them: `problem_id`, `rollout_index`, the normalised `answer` and whether it is "
        "`correct`. They stand apart so that nothing that selects reads them unasked."
        if has_labels
        else "There are no labels: the pool was not graded."
    )
    texts = (
        "Texts and prompts are in it."
        if exported.texts
        else "Texts and prompts were left out; the completions are in it all the same, as token ids."
    )
    return "\n".join(
        [
            *front,
            "---",
            "",
            "# Rollouts of a mixture-of-experts model, with their routing",
            "",
            f"> **This data set is as private as the prompts and completions that it was recorded with.** {texts} And even without "
            f"token ids, {WARNING}. It is not anonymous.",
            "",
            f"{exported.problems:,} problems, {exported.rollouts:,} rollouts of {exported.tokens:,} tokens, the experts that the router "
            f"chose {stored}. Written by `radmoe export`.",
            "",
            "```json",
            json.dumps({"run": run, "router": router}, indent=1),
            "```",
            "",
            "| column | type | |",
            "| --- | --- | --- |",
            *columns,
            "",
            "A column of several numbers for each row is flat: reshape it to the shape that stands beside it.",
            "",
            f"**Labels.** {labels}",
            "",
            "## Reading it",
            "",
            "```python",
            "from datasets import load_dataset",
            "",
            'rollouts = load_dataset("DIRECTORY OR NAME", split="train").with_format("numpy")',
            f'experts = rollouts[0]["expert_ids"].reshape{(-1, *shapes["expert_ids"])}',
            "```",
            "",
            "As a pool, which `radmoe select` reads:",
            "",
            "```python",
            "from radmoe_integrations.hub.reading import import_hub",
            "",
            'import_hub("DIRECTORY", "pool/")',
            "```",
            "",
            "## Checksums",
            "",
            "| file | rows | bytes | SHA-256 |",
            "| --- | ---: | ---: | --- |",
            *listed,
            "",
        ]
    )


def _quoted(text: str) -> str:
    """A text as YAML has it on one line, whatever it holds."""
    return json.dumps(visible(text), ensure_ascii=False)


def _shape(row: tuple[int, ...]) -> str:
    return f"[..., {', '.join(map(str, row))}]: " if row else ""
