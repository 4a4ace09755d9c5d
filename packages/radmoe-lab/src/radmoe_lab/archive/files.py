"""Packed rollouts on disk: one file per configuration, and a manifest with the checksum of each.

A configuration is a model in one style, such as lab-qwen-thinking. Its file is an npz archive (numpy, nothing compressed)
inside one xz stream. A file is read only if its checksum is the manifest's. Somebody else may have made both: models,
styles and tasks are names of the lab's, or refused.

The P problems of a task T have n rollouts each, which stand side by side, problem after problem:

tasks                           uint8                  JSON: the names of the tasks, in the order in which they were sampled
T/tokens                        uint16 [tokens]        the token ids of all rollouts
T/lengths, T/finish_reasons     uint16, uint8 [P, n]   tokens of each rollout; 0 ended by itself, 1 was cut off
T/logprobs                      float32 [P, n]         the sum of the sampled tokens' log-probabilities, as sampled
T/correct                       bool [P, n]            whether the rollout is right
T/answers                       uint8                  JSON: [problem, rollout, answer] where a label's answer is not the
                                                       one extracted from the text
expert_ids                      uint8 [tokens, L, K]   experts, ascending, of all rollouts of the first problem of the first
                                                       task
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, RadmoeError
from radmoe.pool.files import write_atomic
from radmoe.problems import DEFAULT_SEED
from radmoe.system.foreign import check_recorded, read_file
from radmoe_lab.models import MODELS, PACKAGE
from radmoe_lab.packed_arrays import unpack_arrays
from radmoe_lab.sample import FINISH_REASONS
from radmoe_lab.tasks import TASKS

MANIFEST = "manifest.json"
FORMAT = 1
SAMPLINGS = {  # how the shipped rollouts were sampled, and where in the distribution those are
    "paper": "paper",  # at temperature 0.7 and top-p 0.9, as in the paper
    "hot": ".",  # at temperature 0.7 (lab-next) or 0.8, from all tokens
}
DEFAULT_SAMPLING = "paper"
_COUNTS = ("problems", "rollouts", "tokens", "right")  # of a task, in the manifest
_DTYPES = {"tokens": "u2", "lengths": "u2", "finish_reasons": "u1", "logprobs": "f4", "correct": "?"}
# Tokens are two bytes wide: lp and pb say that the place of a byte in its pair matters.
_FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 2, "lp": 1, "pb": 1, "dict_size": 1 << 26}
]


class ArchiveError(RadmoeError):
    """Packed rollouts that are missing, damaged, or of another model than the one that is there."""


@dataclass(frozen=True, eq=False)
class PackedTask:
    """The rollouts of P problems of a task, n of each, with their labels.

    `answers` has the answers of labels, by (problem, rollout), that are not what `grading.extract` makes of the text:
    those for which another spelling stands.
    """

    tokens: NDArray[np.uint16]  # [sum of the lengths], problem after problem, rollout after rollout
    lengths: NDArray[np.uint16]  # [P, n]
    finish_reasons: NDArray[np.uint8]  # [P, n], places in FINISH_REASONS
    logprobs: NDArray[np.float32]  # [P, n], sums over the sampled tokens as the GPU had them
    correct: NDArray[np.bool_]  # [P, n]
    answers: dict[tuple[int, int], str]

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            if getattr(self, name).dtype != np.dtype(dtype):
                raise ValueError(f"{name} of type {getattr(self, name).dtype}, not {np.dtype(dtype)}")
        shapes = {array.shape for array in (self.lengths, self.finish_reasons, self.logprobs, self.correct)}
        if len(shapes) != 1 or self.lengths.ndim != 2 or len(self.tokens) != self.lengths.sum(dtype=np.int64):
            raise ValueError("arrays of a task that disagree about its rollouts")
        if not self.lengths.size or not self.lengths.all() or self.finish_reasons.max() >= len(FINISH_REASONS):
            raise ValueError("a rollout without tokens, or with an unknown finish reason")

    def rollouts(self, problem: int) -> list[NDArray[np.uint16]]:
        """The token ids of the problem's n rollouts."""
        ends = self.lengths[: problem + 1].sum(1, dtype=np.int64)
        return np.split(
            self.tokens[ends[:-1].sum() : ends.sum()], np.cumsum(self.lengths[problem], dtype=np.int64)[:-1]
        )


@dataclass(frozen=True, eq=False)
class Packed:
    """The rollouts of a configuration by task. `expert_ids` [T, L, K], ascending along K, are those of the tokens of all
    rollouts of the first problem of the first task."""

    tasks: dict[str, PackedTask]
    expert_ids: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if not self.tasks or self.expert_ids.dtype != np.uint8 or self.expert_ids.ndim != 3:
            raise ValueError("no tasks, or routing that is none")
        if len(self.expert_ids) != next(iter(self.tasks.values())).lengths[0].sum(dtype=np.int64):
            raise ValueError("routing that is not that of the first problem's tokens")


@dataclass(frozen=True)
class Archive:
    """A directory of packed rollouts, and what its manifest says of each configuration."""

    directory: Path
    configurations: dict[str, dict[str, Any]]

    def check_names(self, names: Sequence[str]) -> list[str]:
        """Return the named configurations, or all if none is named. Raises an InputError for an unknown one."""
        for name in names:
            if name not in self.configurations:
                raise InputError(f"no configuration {name!r} is packed: use one of {', '.join(self.configurations)}")
        return [name for name in self.configurations if not names or name in names]

    def read(self, name: str) -> Packed:
        """Read the rollouts of a configuration. Raises ArchiveError if the file is not the one that was packed."""
        entry = self.configurations[name]
        path = self.directory / f"{name}.npz.xz"
        try:
            data = read_file(path, "the packed rollouts")
        except InputError as error:
            raise ArchiveError(f"{str(error).rpartition(': ')[0]}: install radmoe-lab again") from None
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ArchiveError(f"{path} is damaged: its sha256 is not that of {MANIFEST}; install radmoe-lab again")
        try:
            return unpacked(data)
        except Exception as error:  # a file that somebody else packed may fail anywhere in xz, zip, numpy or json
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArchiveError(f"{path} cannot be unpacked ({reason}): install radmoe-lab again") from None


def open_archive(
    directory: Path | None = None, *, seed: int = DEFAULT_SEED, sampling: str = DEFAULT_SAMPLING
) -> Archive:
    """The archive of a directory, by default that of the distribution radmoe-lab.

    The distribution has some for each of SAMPLINGS: one for the published problems, and one for each seed of others, on which
    choices were confirmed.
    """
    if directory is None:
        if sampling not in SAMPLINGS:
            raise InputError(f"no rollouts were sampled as {sampling!r}: use one of {', '.join(SAMPLINGS)}")
        package = find_spec(PACKAGE)
        if package is None or package.origin is None:
            raise ArchiveError("the lab's rollouts are in radmoe-lab, which is not installed: pip install radmoe-lab")
        rollouts = Path(package.origin).parent / "rollouts" / SAMPLINGS[sampling]
        directory = rollouts if seed == DEFAULT_SEED else rollouts / f"seed-{seed}"
        if rollouts.is_dir() and not (directory / MANIFEST).is_file():
            seeds = sorted(int(each.name.removeprefix("seed-")) for each in rollouts.glob("seed-*"))
            seeds = [DEFAULT_SEED] * (rollouts / MANIFEST).is_file() + seeds
            raise ArchiveError(
                f"radmoe-lab has no rollouts of seed {seed} that were sampled as {sampling!r}: use one of {str(seeds)[1:-1]}, "
                f"or another sampling ({', '.join(name for name in SAMPLINGS if name != sampling)})"
            )
    path = directory / MANIFEST
    if not path.is_file():
        raise ArchiveError(
            f"there are no rollouts at {directory}: install a radmoe-lab that has them, or sample a pool with radmoe capture"
        )
    return Archive(directory, _configurations(path))


def _configurations(path: Path) -> dict[str, dict[str, Any]]:
    try:
        body = json.loads(read_file(path, "a manifest"))
        if body["format"] != FORMAT:
            raise ArchiveError(
                f"{path} is of format {body['format']}, this radmoe reads {FORMAT}: install the other one"
            )
        for name, entry in body["configurations"].items():
            model = MODELS[check_recorded(entry["model"], MODELS, "model", name, "pack it again")]
            check_recorded(entry["style"], model.styles, f"style of {model.name}", name, "pack it again")
            tasks = [check_recorded(task, TASKS, "task", name, "pack it again") for task in entry["tasks"]]
            counts = [int(each[count]) for each in entry["tasks"].values() for count in _COUNTS]
            if min(counts, default=0) < 0 or any(int(each["rollouts"]) < 1 for each in entry["tasks"].values()):
                raise ValueError(f"the counts of {name!r}")
            if not all(math.isfinite(float(entry["sampling"][setting])) for setting in ("temperature", "top_p")):
                raise ValueError(f"the sampling of {name!r}")
            known = tasks and f"{entry['model']}-{entry['style']}" == name and isinstance(entry["sha256"], str)
            if not known or not isinstance(entry["sampling"]["seed"], int) or not isinstance(entry["checkpoint"], dict):
                raise ValueError(f"the entry of {name!r}")
            if not 1 <= int(entry["n"]) < 1 << 16:
                raise ValueError(f"n of {name!r}")
        if not body["configurations"]:
            raise ValueError("it names no configuration")
        return dict(body["configurations"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ArchiveError(f"{path} is damaged ({error}): install radmoe-lab again") from None


def packed(rollouts: Packed) -> bytes:
    """Serialise a configuration to the bytes of its file."""
    arrays: dict[str, NDArray[Any]] = {"tasks": _text(list(rollouts.tasks)), "expert_ids": rollouts.expert_ids}
    for task, each in rollouts.tasks.items():
        answers = [[*place, answer] for place, answer in each.answers.items()]
        arrays |= {f"{task}/{name}": array for name, array in vars(each).items()} | {f"{task}/answers": _text(answers)}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return lzma.compress(file.getvalue(), lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=_FILTERS)


def unpacked(data: bytes) -> Packed:
    """Parse the bytes of a file into a configuration."""
    arrays, tasks = unpack_arrays(data), {}
    for name in _value(arrays["tasks"]):
        task = check_recorded(name, TASKS, "task", "it", "pack it again")
        fields: dict[str, Any] = {name: arrays[f"{task}/{name}"] for name in PackedTask.__dataclass_fields__}
        answers = {(int(problem), int(i)): str(answer) for problem, i, answer in _value(fields["answers"])}
        tasks[task] = PackedTask(**fields | {"answers": answers})
    return Packed(tasks, arrays["expert_ids"])


def write_archive(directory: Path, configurations: dict[str, tuple[Packed, dict[str, Any]]]) -> None:
    """Write configurations, each with its entry for the manifest, beside those that are there already.

    The manifest comes last, and every file appears whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries = _configurations(directory / MANIFEST) if (directory / MANIFEST).exists() else {}
    for name, (rollouts, entry) in configurations.items():
        data = packed(rollouts)
        write_atomic(directory / f"{name}.npz.xz", data)
        entries[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} | entry
    known = [f"{model.name}-{style}" for model in MODELS.values() for style in model.styles]
    order = sorted(entries, key=lambda name: (known.index(name) if name in known else len(known), name))
    body = {"format": FORMAT, "configurations": {name: entries[name] for name in order}}
    write_atomic(directory / MANIFEST, (json.dumps(body, indent=1) + "\n").encode())


def _text(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _value(array: NDArray[np.uint8]) -> Any:
    return json.loads(array.tobytes())
