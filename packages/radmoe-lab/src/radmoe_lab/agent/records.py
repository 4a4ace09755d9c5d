"""Trajectories on disk: one file, an npz archive inside an xz stream, with everything that a replay needs.

A step has the ids that were sampled, how they ended, the sum of their log-probabilities, what the conversation went on
with, and the experts at its boundary, `</think>`. The prompts follow from these (`requests`), and routing by replay.

T trajectories have S steps in all, one after another; texts are UTF-8 in uint8:

header                                uint8              JSON: model, checksums, sampling, command, device, versions, the
                                                         ids of the repositories
repository, number, steps             uint16, uint8 [T]  place in the header's list, which of the n it is, how many steps
exit_status, verdict                  uint8 [T]          places in `loop.EXIT_STATUSES` and `verdicts.VERDICTS`
patch_text, patch_length              uint32 [T]         what was submitted
tokens, length                        uint16 [S]         the sampled ids of every step
finish_reason, logprob, action        [S]                0 ended by itself, 1 was cut off; the sum of log-probabilities;
                                                         whether it had exactly one command
observation_text, observation_length  uint32 [S]         the message that followed
boundary, has_boundary                uint8 [B, L, K]    experts, ascending, in the pass that predicts the `</think>`
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.system.foreign import read_file
from radmoe_lab.agent.loop import EXIT_STATUSES, Encode, LabConversation
from radmoe_lab.agent.repositories import TASK, BuggyRepository
from radmoe_lab.agent.verdicts import UNKNOWN, VERDICTS, judge_many
from radmoe_lab.packed_arrays import unpack_arrays
from radmoe_lab.sample import FINISH_REASONS

FORMAT = 1
_NAME = re.compile(rf"{TASK}(-s-?\d{{1,18}})?-\d{{4}}")
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 25}]


@dataclass(frozen=True, eq=False)
class AgentStep:
    """One request and its reply. `observation` is the message that followed; a submission has none."""

    tokens: NDArray[np.uint16]
    finish_reason: str
    logprob: float  # the sum over its tokens
    observation: str = ""
    action: bool = True  # whether it had exactly one command; otherwise the conversation went on without it
    boundary: NDArray[np.uint8] | None = None  # experts [L, K], ascending, that predict the last </think>


@dataclass(frozen=True, eq=False)
class AgentTrajectory:
    """One conversation about one repository, from the first request to its end."""

    repository_id: str
    number: int
    steps: tuple[AgentStep, ...]
    exit_status: str
    patch: str
    verdict: str = UNKNOWN

    def requests(
        self, issue: str, encode: Encode, decode: Callable[[list[int]], str], context: int
    ) -> Iterator[tuple[list[int], AgentStep]]:
        """The prompt of every step, as token ids, with the step."""
        conversation = LabConversation(issue, encode, context)
        for step in self.steps:
            prompt = conversation.prompt()
            if prompt is None:
                raise InputError(f"{self.repository_id}/{self.number} goes on after its end: another issue or context?")
            yield prompt, step
            ended = step.finish_reason == "stop"
            ids = step.tokens.tolist()
            conversation.reply(decode(ids[:-1] if ended else ids), ids, ended=ended)
            if step.action and step.observation:
                conversation.go_on(step.observation)


def judged(
    trajectories: Sequence[AgentTrajectory], tasks: Sequence[BuggyRepository], *, jobs: int
) -> list[AgentTrajectory]:
    """Return the trajectories with a verdict each. Raises an InputError if patches cannot be judged."""
    known = {task.repository_id: task for task in tasks}
    verdicts = judge_many([(known[each.repository_id], each.patch) for each in trajectories], jobs=jobs)
    return [replace(each, verdict=verdict) for each, verdict in zip(trajectories, verdicts, strict=True)]


def write_trajectories(path: Path, header: dict[str, Any], trajectories: Sequence[AgentTrajectory]) -> None:
    """Write trajectories to a file, which appears whole or not at all."""
    steps = [step for each in trajectories for step in each.steps]
    boundaries = [step.boundary for step in steps if step.boundary is not None]
    header = {"format": FORMAT, **header, "repositories": [*dict.fromkeys(each.repository_id for each in trajectories)]}
    places = {name: place for place, name in enumerate(header["repositories"])}
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "repository": np.array([places[each.repository_id] for each in trajectories], np.uint16),
        "number": np.array([each.number for each in trajectories], np.uint8),
        "steps": np.array([len(each.steps) for each in trajectories], np.uint8),
        "exit_status": np.array([EXIT_STATUSES.index(each.exit_status) for each in trajectories], np.uint8),
        "verdict": np.array([VERDICTS.index(each.verdict) for each in trajectories], np.uint8),
        **_texts("patch", [each.patch for each in trajectories]),
        "length": np.array([len(step.tokens) for step in steps], np.uint16),
        "finish_reason": np.array([FINISH_REASONS.index(step.finish_reason) for step in steps], np.uint8),
        "logprob": np.array([step.logprob for step in steps], np.float32),
        "action": np.array([step.action for step in steps], np.bool_),
        "tokens": np.concatenate([step.tokens for step in steps]) if steps else np.zeros(0, np.uint16),
        **_texts("observation", [step.observation for step in steps]),
        "has_boundary": np.array([step.boundary is not None for step in steps], np.bool_),
        "boundary": np.array(boundaries, np.uint8),
    }
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(lzma.compress(stream.getvalue(), lzma.FORMAT_XZ, filters=_FILTERS))
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def read_trajectories(path: Path) -> tuple[dict[str, Any], list[AgentTrajectory]]:
    """Read a file's header and its trajectories. Raises an InputError if it is damaged or is something else."""
    try:
        arrays = unpack_arrays(read_file(path, "a file of trajectories"))
        header = json.loads(bytes(arrays["header"]))
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']}, not {FORMAT}")
        names = header["repositories"]
        if type(header["seed"]) is not int or not all(
            isinstance(name, str) and _NAME.fullmatch(name) for name in names
        ):
            raise ValueError("a seed or a repository that the lab does not have")
        return header, _trajectories(header, arrays)
    except Exception as error:  # a damaged file may fail anywhere in xz, zip, numpy or json
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} holds no trajectories that can be read ({reason}): sample it again with radmoe_lab.agent.sample"
        ) from None


def _trajectories(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> list[AgentTrajectory]:
    tokens = np.split(arrays["tokens"], np.cumsum(arrays["length"], dtype=np.int64))[:-1]
    observations, patches = _split_texts("observation", arrays), _split_texts("patch", arrays)
    boundaries = iter(arrays["boundary"])
    steps = [
        AgentStep(
            tokens[i],
            FINISH_REASONS[arrays["finish_reason"][i]],
            float(arrays["logprob"][i]),
            observations[i],
            bool(arrays["action"][i]),
            next(boundaries) if arrays["has_boundary"][i] else None,
        )
        for i in range(len(tokens))
    ]
    ends = np.cumsum(arrays["steps"], dtype=np.int64)
    return [
        AgentTrajectory(
            header["repositories"][arrays["repository"][i]],
            int(arrays["number"][i]),
            tuple(steps[end - arrays["steps"][i] : end]),
            EXIT_STATUSES[arrays["exit_status"][i]],
            patches[i],
            VERDICTS[arrays["verdict"][i]],
        )
        for i, end in enumerate(ends)
    ]


def _texts(name: str, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    data = [text.encode("utf-8", "surrogateescape") for text in texts]
    lengths = np.array([len(each) for each in data], np.uint32)
    return {f"{name}_text": np.frombuffer(b"".join(data), np.uint8), f"{name}_length": lengths}


def _split_texts(name: str, arrays: dict[str, NDArray[Any]]) -> list[str]:
    data, ends = arrays[f"{name}_text"].tobytes(), np.cumsum(arrays[f"{name}_length"], dtype=np.int64)
    starts = [0, *ends[:-1].tolist()] if len(ends) else []
    return [data[a:b].decode("utf-8", "surrogateescape") for a, b in zip(starts, ends.tolist(), strict=True)]
