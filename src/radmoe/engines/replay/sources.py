"""Rollouts that exist as tokens or texts: a JSONL file of them, or a pool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.prompts import encode
from radmoe.errors import InputError
from radmoe.pool import open_pool, schema
from radmoe.pool.reader import StoredRollout
from radmoe.vocab import Vocab

SAMPLED, RETOKENISED = "sampled", "retokenised"


@dataclass(frozen=True, eq=False)
class Given:
    """One rollout to replay. `tokens` says whether its token ids are the sampled ones or its text's.

    `captured` is the rollout as a pool has it, of `layers` (all where None) and with the logprobs it was drawn with.
    """

    problem_id: str
    rollout_index: int
    prompt: str | None
    prompt_ids: list[int]
    token_ids: NDArray[np.int32]
    text: str | None
    finish_reason: str | None
    tokens: str
    captured: StoredRollout | None = None
    layers: tuple[int, ...] | None = None


class Source(Protocol):
    """Where rollouts come from. `record` goes into the new pool's own, and names the source by its contents."""

    record: dict[str, Any]
    problems: list[str]

    def rollouts(self, problem_id: str) -> Iterator[Given]:
        """A problem's rollouts, in their order."""

    def count(self, problem_id: str) -> int:
        """How many they are."""


def open_source(
    path: str | Path, tokenizer: Any, vocab: Vocab, *, raw: bool = False, retokenise: bool = False
) -> Source:
    """A pool's directory, or a JSONL file. `retokenise` takes texts even where token ids are there."""
    path = Path(path)
    if path.is_dir():
        return PoolSource(path, tokenizer, vocab, retokenise=retokenise)
    return FileSource(path, tokenizer, vocab, raw=raw, retokenise=retokenise)


class PoolSource:
    """A pool from any engine. Its prompts are kept as texts, and tokenised again as capture does."""

    def __init__(self, path: Path, tokenizer: Any, vocab: Vocab, *, retokenise: bool) -> None:
        self.pool = open_pool(path)
        self._tokenizer, self._retokenise = tokenizer, retokenise
        if not retokenise and self.pool.vocab.fingerprint != vocab.fingerprint:
            raise InputError(
                f"{path} was sampled with another tokenizer than the model's: pass its own model, or retokenise its texts"
            )
        said = self.pool.sampling if isinstance(self.pool.sampling, dict) else {}
        self._special = bool(said.get("raw")) or not getattr(tokenizer, "chat_template", None)
        self.problems = self.pool.problems
        self.record = {
            "source": {"pool": path.name, "model": self.pool.model, "sha256": _digest(path / schema.POOL_JSON)},
            "sampled": said,
            "tokens": RETOKENISED if retokenise else SAMPLED,
        } | {key: said[key] for key in ("kind", "task", "style", "n") if key in said}

    def count(self, problem_id: str) -> int:
        return len(self.pool.rollout_indices(problem_id))

    def rollouts(self, problem_id: str) -> Iterator[Given]:
        columns = ["rollout_index", "text", "prompt", "finish_reason"]
        table = self.pool.runs(columns, filters=[("problem_id", "=", problem_id)]).to_pylist()
        runs = {run["rollout_index"]: run for run in table}
        indices, members = self.pool.rollout_indices(problem_id), self.pool.group(problem_id).rollouts
        for index, rollout in zip(indices, members, strict=True):
            run, where = runs[index], f"rollout {index} of problem {problem_id!r} in {self.pool.path}"
            if run["prompt"] is None:
                raise InputError(f"{where} has no prompt: without it the routing cannot be replayed")
            assert isinstance(rollout, StoredRollout)
            yield Given(
                problem_id,
                index,
                run["prompt"],
                list(self._tokenizer(run["prompt"], add_special_tokens=self._special)["input_ids"]),
                _tokens(self._tokenizer, run["text"], where) if self._retokenise else rollout.token_ids,
                run["text"],
                run["finish_reason"],
                RETOKENISED if self._retokenise else SAMPLED,
                None if self._retokenise else rollout,
                self.pool.profile.layers,
            )


class FileSource:
    """A JSONL file, one rollout per line.

    A line has `problem_id` (or `id`); `prompt_ids`, or `prompt` or `messages` as `radmoe capture` reads them; and
    `token_ids` or `text`; `finish_reason` if known. Lines of one problem are its rollouts, in their order.
    """

    def __init__(self, path: Path, tokenizer: Any, vocab: Vocab, *, raw: bool, retokenise: bool) -> None:
        self._path, self._tokenizer, self._raw, self._words, self._again = path, tokenizer, raw, len(vocab), retokenise
        self._lines: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise InputError(f"cannot read {path} ({reason}): pass a JSONL file of rollouts, or a pool") from None
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                record = _record(line, f"{path} line {number}")
                self._lines.setdefault(str(record["problem_id"]), []).append((number, record))
        if not self._lines:
            raise InputError(
                f'{path} holds no rollouts: write lines such as {{"id": "1", "prompt": "..", "text": ".."}}'
            )
        self.problems = list(self._lines)
        kinds = {self._kind(record) for lines in self._lines.values() for _, record in lines}
        self.record = {
            "source": {"file": path.name, "sha256": _digest(path)},
            "raw": raw,
            "tokens": kinds.pop() if len(kinds) == 1 else "some of them retokenised",
        }

    def count(self, problem_id: str) -> int:
        return len(self._lines[problem_id])

    def rollouts(self, problem_id: str) -> Iterator[Given]:
        for index, (number, record) in enumerate(self._lines[problem_id]):
            where = f"{self._path} line {number}"
            prompt, prompt_ids = self._prompt(record, where)
            kind = self._kind(record)
            if kind == SAMPLED:
                tokens = np.array(_ids(record["token_ids"], self._words, f"{where}: token_ids"), np.int32)
            else:
                tokens = _tokens(self._tokenizer, record.get("text"), where)
            text = record.get("text")
            if text is None:
                text = self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
            yield Given(problem_id, index, prompt, prompt_ids, tokens, text, record.get("finish_reason"), kind)

    def _kind(self, record: dict[str, Any]) -> str:
        return RETOKENISED if self._again or record.get("token_ids") is None else SAMPLED

    def _prompt(self, record: dict[str, Any], where: str) -> tuple[str | None, list[int]]:
        if record.get("prompt_ids") is not None:
            text = record.get("prompt")
            return text if isinstance(text, str) else None, _ids(
                record["prompt_ids"], self._words, f"{where}: prompt_ids"
            )
        content = record.get("prompt") or record.get("messages")
        if not content or not isinstance(content, str | list):
            raise InputError(f"{where} needs prompt_ids, prompt or messages, got the keys {sorted(record)}")
        return encode(self._tokenizer, content, raw=self._raw)


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is not an object with a rollout, but {line.strip()[:40]}")
    name = record.get("problem_id", record.get("id"))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise InputError(f"{where}: problem_id must be a text or a whole number, got {name!r}")
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


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
