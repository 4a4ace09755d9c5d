"""Rollouts that exist as tokens or texts: a JSONL file of them, or a pool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.prompts import encode
from radmoe.errors import InputError
from radmoe.pool import open_pool, schema
from radmoe.pool.files import place
from radmoe.problems import Row
from radmoe.problems.own import read_rows
from radmoe.types import Kind, Step, Trace, check_kind, check_steps
from radmoe.vocab import Vocab

SAMPLED, RETOKENISED = "sampled", "retokenised"


@dataclass(frozen=True, eq=False)
class SourceRollout:
    """One rollout to replay.

    `turns` are what the model was given and where its answers begin: one turn with the prompt for a plain rollout.
    `steps` are the turns of a trajectory, as they go into the new pool, and empty for a plain rollout. `tokens` says
    whether the token ids are the sampled ones or those of the text. `captured` is the rollout as a pool has it, with the
    routing of `layers` (all where None) and the logprobs with which it was drawn. `where` names the rollout in errors, and
    `extra` is what else is known of it, as a pool keeps it.
    """

    where: str
    rollout_index: int
    prompt: str | None
    turns: tuple[Step, ...]
    token_ids: NDArray[np.int32]
    text: str | None
    finish_reason: str | None
    tokens: str
    steps: tuple[Step, ...] = ()
    captured: Trace | None = None
    layers: tuple[int, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """The rollouts to replay, by problem.

    `record` goes into the run record of the new pool and identifies the source by its contents; `task` and `style` do
    too. `kinds` has the problems in their order, each with its kind, or None where the source does not say.
    """

    record: dict[str, Any]
    task: str | None
    style: str | None
    kinds: dict[str, Kind | None]
    has_logprobs: bool = False  # whether what was captured has log-probabilities, which are kept then

    @property
    def problems(self) -> list[str]:
        """The problems, in their order."""
        return list(self.kinds)

    def rollouts(self, problem_id: str) -> Iterator[SourceRollout]:
        """The rollouts of a problem, in their order."""


def open_source(
    path: str | Path, tokenizer: Any, vocab: Vocab, *, raw: bool = False, retokenise: bool = False
) -> Source:
    """The source at a path: a pool's directory, or a JSONL file.

    `retokenise` takes texts even where token ids are there. `raw` renders the prompts of a file without chat template.
    """
    path = place(path)
    if path.is_dir():
        return PoolSource(path, tokenizer, vocab, retokenise=retokenise)
    return FileSource(path, tokenizer, vocab, raw=raw, retokenise=retokenise)


class PoolSource(Source):
    """A pool from any engine.

    Where a rollout has no steps, its prompt is there as a text, which is tokenised again as capture does it.
    """

    def __init__(self, path: Path, tokenizer: Any, vocab: Vocab, *, retokenise: bool) -> None:
        self.pool = open_pool(path)
        self._tokenizer, self._retokenise = tokenizer, retokenise
        if not retokenise and self.pool.vocab.fingerprint != vocab.fingerprint:
            raise InputError(
                f"{path} was sampled with another tokenizer than the model's: pass its own model, or retokenise its texts"
            )
        sampling = self.pool.sampling
        raw = bool(sampling.get("raw"))
        self._special = raw or not getattr(tokenizer, "chat_template", None)
        self.kinds, self.task, self.style = self.pool.kinds, self.pool.task, self.pool.style
        self.has_logprobs = not retokenise and self.pool.has_logprobs
        self.record = {
            "source": {"pool": path.name, "model": self.pool.model, "sha256": _digest(path / schema.POOL_JSON)},
            "sampled": sampling,
            "raw": raw,
            "tokens": RETOKENISED if retokenise else SAMPLED,
        }

    def rollouts(self, problem_id: str) -> Iterator[SourceRollout]:
        columns = ["rollout_index", "text", "prompt", "finish_reason", "extra"]
        table = self.pool.runs(columns, where={"problem_id": problem_id}).to_pylist()
        runs = {run["rollout_index"]: run for run in table}
        indices, members = self.pool.rollout_indices(problem_id), self.pool.group(problem_id).rollouts
        for index, rollout in zip(indices, members, strict=True):
            run, where = runs[index], f"rollout {index} of problem {problem_id!r} in {self.pool.path}"
            if rollout.steps and self._retokenise:
                raise InputError(
                    f"{where} is a trajectory, whose steps are counted in tokens: it cannot be retokenised"
                )
            yield SourceRollout(
                where,
                index,
                run["prompt"],
                rollout.steps or self._prompt(run["prompt"], where),
                _tokens(self._tokenizer, run["text"], where) if self._retokenise else rollout.token_ids,
                run["text"],
                run["finish_reason"],
                RETOKENISED if self._retokenise else SAMPLED,
                rollout.steps,
                None if self._retokenise else rollout,
                self.pool.profile.layers,
                _extra(run["extra"]),
            )

    def _prompt(self, text: str | None, where: str) -> tuple[Step, ...]:
        if text is None:
            raise InputError(f"{where} has no prompt: without it the routing cannot be replayed")
        return (Step(tuple(self._tokenizer(text, add_special_tokens=self._special)["input_ids"]), 0),)


class FileSource(Source):
    """A JSONL file, one rollout per line.

    A line has `problem_id` (or `id`); `prompt_ids`, or `prompt` or `messages` as `radmoe capture` reads them; and
    `token_ids` or `text`; `finish_reason` and `kind` if known. A trajectory has `token_ids` and `steps`, a list of
    objects with `given` (token ids since the last turn, in the first one the prompt), `start` (the offset of the
    turn's first generated token) and, where the request did not go on from the one before, `kept` (`Step`). Lines of one problem are its rollouts, in their order.
    """

    task = style = None

    def __init__(self, path: Path, tokenizer: Any, vocab: Vocab, *, raw: bool, retokenise: bool) -> None:
        self._path, self._tokenizer, self._raw = path, tokenizer, raw
        self._words, self._retokenise = len(vocab), retokenise
        self._lines: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.kinds: dict[str, Kind | None] = {}
        for number, row in read_rows(path, "rollouts", '{"id": "1", "prompt": "..", "text": ".."}'):
            where = f"{path} line {number}"
            self._add(_record(row, where), where)
        origins = {self._origin(record) for lines in self._lines.values() for _, record in lines}
        self.record = {
            "source": {"file": path.name, "sha256": _digest(path)},
            "raw": raw,
            "tokens": origins.pop() if len(origins) == 1 else "some of them retokenised",
        }

    def rollouts(self, problem_id: str) -> Iterator[SourceRollout]:
        for index, (where, record) in enumerate(self._lines[problem_id]):
            origin, text = self._origin(record), record.get("text")
            if origin == SAMPLED:
                tokens = np.array(_ids(record["token_ids"], self._words, f"{where}: token_ids"), np.int32)
            else:
                tokens = _tokens(self._tokenizer, text, where)
            if text is None:
                text = self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
            steps = self._steps(record, len(tokens), where)
            if steps:
                prompt, turns = record.get("prompt"), steps
                prompt = prompt if isinstance(prompt, str) else None
            else:
                prompt, ids = self._prompt(record, where)
                turns = (Step(tuple(ids), 0),)
            yield SourceRollout(where, index, prompt, turns, tokens, text, record.get("finish_reason"), origin, steps)

    def _add(self, record: dict[str, Any], where: str) -> None:
        """Take a line in; the lines of one problem must agree on its kind."""
        problem, kind = str(record["problem_id"]), record.get("kind")
        try:
            kind = None if kind is None else check_kind(kind)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        known = self.kinds.get(problem)
        if None not in (kind, known) and kind != known:
            raise InputError(f"{where} gives problem {problem!r} the kind {kind}, an earlier line {known}: use one")
        self.kinds[problem] = known or kind
        self._lines.setdefault(problem, []).append((where, record))

    def _origin(self, record: dict[str, Any]) -> str:
        return RETOKENISED if self._retokenise or record.get("token_ids") is None else SAMPLED

    def _steps(self, record: dict[str, Any], tokens: int, where: str) -> tuple[Step, ...]:
        """The steps of a trajectory; empty for a plain rollout."""
        steps = record.get("steps")
        if not steps:
            return ()
        if self._origin(record) == RETOKENISED:
            raise InputError(f"{where} has steps, which are counted in tokens: it needs token_ids, and no retokenising")
        keys, more = {"given", "start"}, {"given", "start", "kept"}
        if not isinstance(steps, list) or not all(isinstance(s, dict) and keys <= set(s) <= more for s in steps):
            raise InputError(
                f"{where}: steps must be a list of objects with given and start, and kept, got {str(steps)[:60]}"
            )
        if not all(type(step["start"]) is int and type(step.get("kept", 0)) is int for step in steps):
            raise InputError(f"{where}: start and kept of a step must be whole numbers, got {str(steps)[:60]}")
        for number, step in enumerate(steps):
            if step["given"] or not number:  # later turns may have been given nothing
                _ids(step["given"], self._words, f"{where}: given of step {number}")
        if record.get("prompt_ids") not in (None, steps[0]["given"]):
            raise InputError(f"{where}: prompt_ids are not what the first step was given; leave them out")
        try:
            return check_steps([Step(tuple(s["given"]), s["start"], s.get("kept")) for s in steps], tokens)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def _prompt(self, record: dict[str, Any], where: str) -> tuple[str | None, list[int]]:
        if record.get("prompt_ids") is not None:
            text = record.get("prompt")
            ids = _ids(record["prompt_ids"], self._words, f"{where}: prompt_ids")
            return text if isinstance(text, str) else None, ids
        content = record.get("prompt") or record.get("messages")
        if not content or not isinstance(content, str | list):
            raise InputError(f"{where} needs prompt_ids, prompt or messages, got the keys {sorted(record)}")
        return encode(self._tokenizer, content, raw=self._raw)


def _record(row: Row, where: str) -> dict[str, Any]:
    """A line that names its problem and has something to replay."""
    record = dict(row)
    name = record.get("problem_id", record.get("id"))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise InputError(f"{where}: id (or problem_id) must be a text or a whole number, got {name!r}")
    if record.get("token_ids") is None and record.get("text") is None:
        raise InputError(f"{where} has neither token_ids nor text: there is nothing to replay")
    return record | {"problem_id": name}


def _ids(value: Any, words: int, where: str) -> list[int]:
    if (
        not isinstance(value, list)
        or not value
        or not all(type(token) is int and 0 <= token < words for token in value)
    ):
        raise InputError(f"{where} must be token ids in [0, {words}), at least one, got {str(value)[:60]}")
    return value


def _tokens(tokenizer: Any, text: Any, where: str) -> NDArray[np.int32]:
    if not isinstance(text, str) or not text:
        raise InputError(f"{where} has no text to tokenise, but {text!r}")
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)


def _extra(text: str | None) -> dict[str, Any]:
    """What a pool keeps of a rollout besides its columns; nothing where that is no JSON object."""
    try:
        extra = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return extra if isinstance(extra, dict) else {}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
