"""An engine with the router and tokenizer of a real model, and without its weights: it computes sums, and errs where it should.

It answers the questions of `sums`. Rollouts that give one answer are routed alike, so that there is agreement to find.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from transformers import PreTrainedTokenizerFast

from radmoe.engines import EngineOptions
from radmoe.engines.base import Completion, Engine, Job, completion_text, uniforms
from radmoe.engines.options import required_model
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab
from vocabularies import tokenizer

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RIGHT = 0.75  # of the rollouts
ROUTERS = {"Qwen3-30B-A3B-Thinking-2507": RouterShape(48, 128, 8), "gpt-oss-20b": RouterShape(24, 32, 4)}


class WeightlessEngine(Engine):
    """`model` is the last part of a name on the hub."""

    name, versions, context, dtype = "weightless", {"weightless": "1"}, 40_960, "none"
    tokens_sampled = 0

    def __init__(self, model: str) -> None:
        self.model_name, self.shape = model, ROUTERS[model]
        self.tokenizer: Any = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer("qwen3"), eos_token="<|im_end|>", chat_template=CHAT
        )
        self.vocab = Vocab.from_tokenizer(self.tokenizer)

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        return cls(required_model(model, cls.name, ", ".join(ROUTERS)).rpartition("/")[2])

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Any) -> Iterator[Completion]:
        self.tokens_sampled = 0
        return (self._completion(job) for job in jobs)

    def _completion(self, job: Job) -> Completion:
        asked = self.tokenizer.decode(list(job.prompt))
        chance, which = uniforms(job.sampling.seed, job.key, job.rollout_index, 2)
        error = 0 if chance < RIGHT else 1 + int(2 * which)
        ids = self.tokenizer(answer(asked, error) + "<|im_end|>", add_special_tokens=False)["input_ids"][: job.limit]
        T, rng = len(ids), np.random.default_rng([error, len(job.key)])
        order = np.argsort(rng.random((self.shape.layers, self.shape.experts)))[:, : self.shape.top_k]
        experts = np.broadcast_to(order, (T, *order.shape)).astype(np.int16)
        mass = np.full(experts.shape, 1 / self.shape.top_k, np.float16)
        top = np.full((T, job.sampling.topk_logprobs), error - 4.0, np.float32)  # what is wrong is less sure
        made = Rollout(np.array(ids, np.int32), experts, mass, np.full(T, -0.1 - error, np.float32), top)
        self.tokens_sampled += T
        reason = "length" if job.limit == T else "stop"
        text = completion_text(self.tokenizer, made.token_ids, reason)
        return Completion(job.prompt_index, job.rollout_index, made, text, reason)


def answer(asked: str, error: int) -> str:
    """What the model answers to a question of `sums`."""
    a, b = map(int, re.findall(r"What is (\d+) \+ (\d+)", asked)[0])
    thinking, value = f"<think>\n{a} and {b} make {a + b + error}.\n</think>\n\n", a + b + error
    if "Python" in asked:
        return f"{thinking}```python\nprint(int(input()) + {value})\n```"
    letter = re.search(rf"^([A-D])\) {value}$", asked, re.MULTILINE)
    return f"{thinking}It is \\boxed{{{letter[1] if letter else value}}}."


def sums(place: Path, problems: int) -> Path:
    """A directory with rows for three of the paper's data sets, in their own columns, all about sums."""
    place.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {"aime_2025": [], "gpqa_diamond": [], "livecodebench_v5": []}
    for i in range(problems):
        question, value = f"What is {i + 10} + {2 * i}?", 3 * i + 10
        rows["aime_2025"].append({"id": i, "question": question, "answer": str(value)})
        wrong = {f"Incorrect Answer {k}": str(value + k) for k in (1, 2, 3)}
        rows["gpqa_diamond"].append(
            {"Record ID": f"rec{i}", "Question": question, "Correct Answer": str(value)} | wrong
        )
        tests = [{"input": f"{k}\n", "output": f"{k + value}\n", "testtype": "stdin"} for k in (1, 5)]
        program = {"question_content": f"{question} Add it to the number that you read.", "question_id": f"q{i}"}
        rows["livecodebench_v5"].append(program | {"public_test_cases": json.dumps(tests), "private_test_cases": "[]"})
    for name, own in rows.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    return place


class SlowEngine(WeightlessEngine):
    """The same, which takes its time, so that it can be stopped on the way."""

    def _completion(self, job: Job) -> Completion:
        time.sleep(0.01)
        return super()._completion(job)


class ShortEngine(WeightlessEngine):
    """The same on a server that was started with too little context."""

    context = 8_192
