"""Rollouts of a pool written out as RL frameworks and servers write them, by each format's documented layout.

Routing has one row per input position. Those before R(0), of the prompt, are no pool's: they are made up, the same for all
rollouts of a prompt.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.models import resolve_model
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool


class Sequence(NamedTuple):
    """One rollout as a framework has it: rows are those of all input positions, [P+T-1, L, K]."""

    problem: str
    group: int
    index: int
    prompt: list[int]
    tokens: list[int]
    rows: np.ndarray
    logprobs: list[float]
    top: list[list[float]]
    reward: float
    reason: str


def sequences(path: Path, model: str = "lab-qwen") -> list[Sequence]:
    """The rollouts of a graded pool, with their prompts."""
    pool, labels, made = open_pool(path), read_labels(path), []
    tokenizer = Checkpoint(resolve_model(model)).tokenizer
    for group, problem in enumerate(pool.problems):
        runs = {run["rollout_index"]: run for run in pool.runs(where={"problem_id": problem}).to_pylist()}
        rng = np.random.default_rng(group)
        for index, rollout in zip(pool.rollout_indices(problem), pool.group(problem).rollouts, strict=True):
            prompt = tokenizer(runs[index]["prompt"], add_special_tokens=False)["input_ids"]
            if not index:
                noise = rng.random((len(prompt) - 1, pool.shape.layers, pool.shape.experts))
                before = np.argsort(noise, -1)[..., : pool.shape.top_k]
            rows = np.concatenate([before, rollout.rows(0, len(rollout))[0]]).astype(np.int32)
            made.append(
                Sequence(
                    problem,
                    group,
                    index,
                    prompt,
                    rollout.token_ids.tolist(),
                    rows,
                    rollout.sampled_logprobs.tolist(),
                    rollout.topk_logprobs.tolist(),
                    float(labels[problem][index].correct),
                    runs[index]["finish_reason"],
                )
            )
    return made


def sample(one: Sequence) -> dict[str, Any]:
    """A sample of slime, as its Sample.to_dict gives it."""
    return {
        "group_index": one.group,
        "index": one.index,
        "prompt": "a prompt",
        "tokens": one.prompt + one.tokens,
        "response": "a response",
        "response_length": len(one.tokens),
        "label": "5",
        "reward": one.reward,
        "loss_mask": [1] * len(one.tokens),
        "weight_versions": ["1"],
        "rollout_log_probs": one.logprobs,
        "rollout_routed_experts": torch.from_numpy(one.rows),
        "status": {"stop": "completed", "length": "truncated"}[one.reason],
        "metadata": {"rm_type": "math"},
        "spec_info": {"spec_accept_token_num": 0},
    }


def write_slime(path: Path, every: list[Sequence]) -> Path:
    torch.save({"rollout_id": 0, "samples": [sample(one) for one in every]}, path)
    return path


def batch(every: list[Sequence], *, wider: int = 3) -> dict[str, torch.Tensor]:
    """A batch of verl: prompts padded on the left, responses on the right, and routing with zeros."""
    width = max(len(one.prompt) for one in every) + wider
    length = max(len(one.tokens) for one in every) + wider
    size, shape = len(every), every[0].rows.shape[1:]
    arrays = {
        "prompts": np.zeros((size, width), np.int64),
        "responses": np.zeros((size, length), np.int64),
        "attention_mask": np.zeros((size, width + length), np.int64),
        "response_mask": np.zeros((size, length), np.int64),
        "rollout_log_probs": np.zeros((size, length), np.float32),
        "rm_scores": np.zeros((size, length), np.float32),
        "routed_experts": np.zeros((size, width + length, *shape), np.int16),
    }
    for i, one in enumerate(every):
        first, count = width - len(one.prompt), len(one.tokens)
        arrays["prompts"][i, first:] = one.prompt
        arrays["responses"][i, :count] = one.tokens
        arrays["attention_mask"][i, first : width + count] = 1
        arrays["response_mask"][i, :count] = 1
        arrays["rollout_log_probs"][i, :count] = one.logprobs
        arrays["rm_scores"][i, count - 1] = one.reward
        arrays["routed_experts"][i, first : first + len(one.rows)] = one.rows
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def write_verl(path: Path, every: list[Sequence]) -> Path:
    """A dict of tensors of torch.save, with the uid of each rollout."""
    torch.save({**batch(every), "uid": [one.problem for one in every]}, path)
    return path


def write_dataproto(
    path: Path, every: list[Sequence], *, forge: Callable[[dict[str, Any]], None] = lambda leaves: None
) -> Path:
    """A gen_batch.dp: a pickle of a DataProto, whose batch is a consolidated TensorDict in the bytes of torch.save."""
    tensors, leaves, parts, at = batch(every), {}, [], 0
    for name, tensor in tensors.items():
        raw = tensor.numpy().tobytes()
        leaves[name] = (str(tensor.dtype), list(tensor.shape), at, at + len(raw), -len(raw) % 8)
        parts.append(raw + bytes(-len(raw) % 8))
        at += len(parts[-1])
    forge(leaves)
    storage = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)
    metadata = {"cls": "TensorDict", "non_tensors": {}, "leaves": leaves, "cls_metadata": {"batch_size": [len(every)]}}
    uid = np.array([one.problem for one in every], object)
    with (
        named("tensordict._reductions", "_rebuild_tensordict_files_consolidated") as rebuild,
        named("verl.protocol", "DataProto") as proto,
    ):
        packed = io.BytesIO()
        torch.save(_Reduced(rebuild, (metadata, storage)), packed)
        proto.__getstate__ = lambda _: (packed.getvalue(), {"uid": uid}, {"timing": 0.5})
        path.write_bytes(pickle.dumps(proto()))
    return path


class _Reduced:
    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.how = function, arguments

    def __reduce__(self) -> Any:
        return self.how


@contextmanager
def named(module: str, name: str) -> Iterator[Any]:
    """Something that pickle takes for the member of a package, which need not be installed."""
    parts = [module.rpartition(".")[0], module]
    made = {part: ModuleType(part) for part in parts if part not in sys.modules}
    thing: Any = type(name, (), {"__module__": module}) if name[0].isupper() else _function(module, name)
    sys.modules.update(made)
    setattr(sys.modules[module], name, thing)
    try:
        yield thing
    finally:
        for part in made:
            del sys.modules[part]


def _function(module: str, name: str) -> Any:
    def function(*arguments: object) -> None:
        raise AssertionError(f"{module}.{name} was called")

    function.__module__, function.__qualname__, function.__name__ = module, name, name
    return function


def vllm_line(members: list[Sequence], *, start: int = 0) -> dict[str, Any]:
    """The answer of vLLM's /v1/completions to one prompt, with its client's problem_id and rewards."""
    return {
        "problem_id": members[0].problem,
        "reward": [one.reward for one in members],
        "id": "cmpl-1",
        "model": "lab-qwen",
        "usage": {"prompt_tokens": len(members[0].prompt)},
        "choices": [
            {
                "index": i,
                "text": "",
                "finish_reason": one.reason,
                "prompt_token_ids": one.prompt,
                "token_ids": one.tokens,
                "logprobs": {
                    "token_logprobs": one.logprobs,
                    "top_logprobs": [{f"token_id:{i}": value for i, value in enumerate(step)} for step in one.top],
                },
                "routed_experts": npy(one.rows[start:].astype(np.uint8)),
            }
            for i, one in enumerate(members)
        ],
    }


def npy(rows: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, rows)
    return base64.b64encode(file.getvalue()).decode()


def prime_line(members: list[Sequence], *, start: int = 0) -> dict[str, Any]:
    """The answer of prime-rl's /inference/v1/generate, as its serialize_routed_experts encodes routing."""
    line = vllm_line(members)
    for choice, one in zip(line["choices"], members, strict=True):
        rows = one.rows[start:].astype(np.uint8)
        data = base64.b64encode(rows.tobytes()).decode()
        choice["routed_experts"] = {"data": data, "shape": list(rows.shape), "start": start, "dtype": "uint8"}
        choice["logprobs"] = {
            "content": [
                {"token": "", "logprob": sampled, "top_logprobs": [{"token": "", "logprob": value} for value in step]}
                for sampled, step in zip(one.logprobs, one.top, strict=True)
            ]
        }
        del choice["prompt_token_ids"]
    return line | {"prompt_token_ids": members[0].prompt}


def sglang_line(one: Sequence, *, start: int = 0) -> dict[str, Any]:
    """The answer of SGLang's /generate to one request."""
    return {
        "problem_id": one.problem,
        "reward": one.reward,
        "prompt_token_ids": one.prompt,
        "text": "",
        "output_ids": one.tokens,
        "meta_info": {
            "id": "1",
            "prompt_tokens": len(one.prompt),
            "completion_tokens": len(one.tokens),
            "finish_reason": {"type": one.reason},
            "output_token_logprobs": [
                [value, token, None] for value, token in zip(one.logprobs, one.tokens, strict=True)
            ],
            "output_top_logprobs": [[[value, i, None] for i, value in enumerate(step)] for step in one.top],
            "routed_experts": base64.b64encode(one.rows[start:].astype("<i4").tobytes()).decode(),
        },
    }


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def groups(every: list[Sequence]) -> list[list[Sequence]]:
    """The rollouts of each problem."""
    return [[one for one in every if one.problem == problem] for problem in dict.fromkeys(one.problem for one in every)]


def write(form: str, folder: Path, every: list[Sequence]) -> Path:
    """A file of each format, by the name that the test gives it."""
    if form == "slime":
        return write_slime(folder / "rollout_0.pt", every)
    if form == "slime arrays":  # as earlier versions had them
        samples = [
            sample(one) | {"rollout_routed_experts": one.rows, "reward": np.float64(one.reward)} for one in every
        ]
        torch.save({"rollout_id": 0, "samples": samples}, folder / "rollout_0.pt")
        return folder / "rollout_0.pt"
    if form == "verl":
        return write_dataproto(folder / "gen_batch.dp", every)
    if form == "verl dict":
        return write_verl(folder / "batch.pt", every)
    if form == "sglang":
        return write_lines(folder / "sglang.jsonl", [sglang_line(one) for one in every])
    line = {"vllm": vllm_line, "prime-rl": prime_line}[form]
    return write_lines(folder / f"{form}.jsonl", [line(members) for members in groups(every)])
