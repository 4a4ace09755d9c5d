"""The candidates: for each finished trajectory its patch, how it ended, and why it cannot be submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.problems.own import read_rows
from radmoe.system.foreign import read_file

POOL, CANDIDATES = "pool", "candidates.jsonl"
SUFFIX = ".traj.json"
_TEXTS = dict.fromkeys(("instance_id", "status", "patch", "model"), str)
_FIELDS: dict[str, Any] = {**_TEXTS, "run": int, "problem": str | None, "notes": list}  # of a line, with their types
_EXAMPLE = '{"instance_id": "a__b-1", "run": 0, "status": "Submitted", "patch": "..", "model": "..", "problem": null}'
_OVERFLOWED, _BROKE_OFF, _LIMITED = "outgrew the context", "broke off", "reached a limit"
_OUT_OF_TOKENS = "ran out of tokens, of a step or of the context,"
OVERFLOW, BROKE_OFF, LENGTH = "ContextExceeded", "BrokeOff", "LengthExceeded"
UNFINISHED = {  # exit statuses of mini-swe-agent, harmonyagent and radmoe under which a work tree may have half a patch
    OVERFLOW: _OVERFLOWED,
    "ContextWindowExceededError": _OVERFLOWED,
    "MaxContextWindowOverflow": _OVERFLOWED,
    "LimitsExceeded": _LIMITED,
    "MaxNewTokensExceeded": _OUT_OF_TOKENS,
    "RepeatedFormatError": _BROKE_OFF,
    "RetrialsExceeded": _BROKE_OFF,
    "UnexpectedFinishReason": _BROKE_OFF,
    BROKE_OFF: _BROKE_OFF,
    LENGTH: _OUT_OF_TOKENS,
}


@dataclass(frozen=True)
class Candidate:
    """One trajectory of an instance.

    `run` is its number, `status` how it ended (mini-swe-agent's exit status; empty where nobody knows), and `model` who
    ran. `problem` says in a line why it cannot be submitted; None where it can. `notes` are remarks on one that can.
    """

    instance_id: str
    run: int
    status: str = ""
    patch: str = ""
    model: str = ""
    problem: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return self.problem is None


class Exchange(NamedTuple):
    """One request as texts: the whole prompt, what the model answered, and why it stopped."""

    prompt: str
    response: str
    finish_reason: str


@dataclass(frozen=True)
class Trajectory:
    """A finished trajectory: its messages, the patch, and what else its file says of the run.

    `exchanges` are its requests as texts where a tape has them.
    """

    messages: list[dict[str, Any]]
    status: str
    patch: str
    model: str
    timeouts: int = 0
    error: str = ""  # of a crash
    malformed: int = 0  # steps that were sampled again
    exchanges: tuple[Exchange, ...] = ()


def read_trajectory(path: Path) -> Trajectory:
    """A `*.traj.json`. Raises InputError for one that is missing, truncated, or no trajectory."""
    content = read_file(path, "a trajectory of mini-swe-agent")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the trajectory is truncated or no JSON ({error})") from None
    match body:
        case {"messages": [*messages], "info": {**info}} if all(isinstance(m, dict) and "role" in m for m in messages):
            config = info.get("config")
            described = config.get("model") if isinstance(config, dict) else None
            model = described.get("model_name") if isinstance(described, dict) else None
            timeouts, malformed = info.get("timeouts"), info.get("malformed")
            return Trajectory(
                messages,
                str(info.get("exit_status") or ""),
                str(info.get("submission") or ""),
                str(model or ""),
                timeouts if isinstance(timeouts, int) else 0,
                str(info.get("exception_str") or ""),
                len(malformed) if isinstance(malformed, list) else 0,
            )
    raise InputError("the file has no messages and info, so it is no trajectory of mini-swe-agent")


def candidate(instance_id: str, run: int, trajectory: Trajectory) -> Candidate:
    """The candidate of a trajectory. An empty patch cannot be submitted."""
    problem = None
    reason = trajectory.status or "no exit status"
    if trajectory.error:
        reason += f": {trajectory.error.splitlines()[0][:200]}"
    if not trajectory.patch.strip():
        problem = f"its patch is empty (it ended with {reason})"
    counts = (
        (trajectory.timeouts, "commands were stopped"),
        (trajectory.malformed, "malformed steps were sampled again"),
    )
    notes = tuple(f"{count} {what}" for count, what in counts if count)
    return Candidate(instance_id, run, trajectory.status, trajectory.patch, trajectory.model, problem, notes)


def find_trajectories(directory: Path) -> dict[str, Path]:
    """The trajectories of a run directory by their instance."""
    if not directory.is_dir():
        raise InputError(f"there is no run directory {directory}: give those that mini-swe-agent wrote")
    return {path.name.removesuffix(SUFFIX): path for path in sorted(directory.rglob(f"*{SUFFIX}"))}


def refuse_other_models(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, of which those of another model than most cannot be submitted: a cohort has one model."""
    models = Counter(one.model for one in candidates if one.model)
    if len(models) < 2:
        return list(candidates)
    ((most, _),) = models.most_common(1)
    return [
        one
        if one.model in ("", most)
        else replace(
            one, problem=f"it was run by {one.model}, and most of this cohort by {most}: a cohort has one model"
        )
        for one in candidates
    ]


def refuse_unfinished(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, of which those that did not come to their end (`UNFINISHED`) cannot be submitted: what they left is half done.

    Where nothing else can be, an unfinished patch is better than none: they stay, with a note.
    """
    others = any(one.usable and one.status not in UNFINISHED for one in candidates)
    checked = []
    for one in candidates:
        if one.usable and one.status in UNFINISHED:
            said = f"it {UNFINISHED[one.status]} before it was done (it ended with {one.status})"
            one = replace(one, problem=said) if others else replace(one, notes=(*one.notes, said))
        checked.append(one)
    return checked


def write_candidates(directory: Path, candidates: Iterable[Candidate]) -> None:
    """Write or replace the list of candidates beside a pool."""
    ordered = sorted(candidates, key=lambda one: (one.instance_id, one.run))
    path = directory / CANDIDATES
    with disk_errors(path):
        write_atomic(path, "".join(json.dumps(asdict(one)) + "\n" for one in ordered).encode())


def read_candidates(directory: Path) -> dict[str, list[Candidate]]:
    """The candidates of every instance, by their run."""
    path = directory / CANDIDATES
    if not path.is_file():
        raise InputError(
            f"{directory} has no {CANDIDATES}: give a directory that radmoe agent run or radmoe agent import wrote"
        )
    instances: dict[str, dict[int, Candidate]] = {}
    for number, row in read_rows(path, "candidates", _EXAMPLE):
        if not _is_candidate(row):
            raise InputError(f"{path} line {number} is no candidate: a line is {_EXAMPLE}")
        one = Candidate(**{**row, "notes": tuple(row.get("notes", ()))})
        members = instances.setdefault(one.instance_id, {})
        if one.run in members:
            raise InputError(
                f"{path} line {number}: run {one.run} of {one.instance_id!r} is listed twice: write it again"
            )
        members[one.run] = one
    return {name: [members[run] for run in sorted(members)] for name, members in instances.items()}


def _is_candidate(row: Mapping[str, Any]) -> bool:
    """Whether a line has the fields of a candidate, each of its type."""
    if not {"instance_id", "run", "patch"} <= row.keys() <= _FIELDS.keys():
        return False
    typed = all(isinstance(value, _FIELDS[name]) for name, value in row.items())
    return (
        typed and type(row["run"]) is int and row["run"] >= 0 and all(isinstance(n, str) for n in row.get("notes", ()))
    )
