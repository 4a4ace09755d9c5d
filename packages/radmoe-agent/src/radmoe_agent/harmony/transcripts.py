"""Finished trajectories in the files of other programs, and the requests of those in Harmony: tapes, and lists of messages.

A tape is a file of JSON lines with `prompt`, `response` and `finish_reason`, in the order in which the model was asked.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from radmoe.engines.base import Engine
from radmoe.errors import InputError
from radmoe.system.foreign import read_file
from radmoe.vocab import Vocab
from radmoe_agent.candidates import BROKE_OFF, LENGTH, Exchange, Trajectory, find_trajectories, read_trajectory
from radmoe_agent.harmony.messages import CALL, CHANNEL, END, RETURN, START, Malformed, Message
from radmoe_agent.harmony.openai import OpenAIHarmony, harmony_for
from radmoe_agent.harmony.steps import FINAL, opening, read_step

TAPE = "tape.jsonl"
_ENDINGS = (TAPE, f"{TAPE}.xz")
_MOST_BYTES = 1 << 30  # of a tape that is packed
Tokens = list[int]


def files_of(directory: Path) -> dict[str, list[Path]]:
    """The files of every trajectory of a run directory: its `*.traj.json`, then its tape, whichever there are.

    A tape is `INSTANCE.tape.jsonl` or `INSTANCE/tape.jsonl`, and may be packed (`.xz`).
    """
    files = {name: [path] for name, path in find_trajectories(directory).items()}
    for path in sorted(path for ending in _ENDINGS for path in directory.rglob(f"*{ending}")):
        files.setdefault(path.name.partition(TAPE)[0].rstrip(".") or path.parent.name, []).append(path)
    return files


def read_files(name: str, paths: Sequence[Path], directory: Path) -> Trajectory:
    """A trajectory by its files. The patch of a tape that nothing else describes is that of `preds.json`.

    One of which nobody wrote how it ended broke off: every harness writes that last.
    """
    *described, last = paths
    if not last.name.endswith(_ENDINGS):
        known = read_trajectory(last)
        return known if known.status else replace(known, status=BROKE_OFF)
    if described:
        known = read_trajectory(described[0])
        tape = read_tape(last, known.patch, known.model)
        return replace(tape, status=known.status or tape.status, error=known.error)
    row: Any = None
    with suppress(InputError, ValueError, RecursionError, KeyError, TypeError):
        row = json.loads(read_file(directory / "preds.json", "predictions in SWE-bench's form"))[name]
    known_row = row if isinstance(row, dict) else {}
    return read_tape(last, str(known_row.get("model_patch") or ""), str(known_row.get("model_name_or_path") or ""))


def read_tape(path: Path, patch: str, model: str) -> Trajectory:
    """A tape as a trajectory. A response that was followed by the same prompt was refused, and is counted as malformed.

    A last line that was cut short is left out. Raises InputError for a file that is no tape.
    """
    content = read_file(path, "a tape of prompts and responses")
    if path.suffix == ".xz":
        try:
            content = lzma.LZMADecompressor().decompress(content, _MOST_BYTES)
        except lzma.LZMAError as error:
            raise InputError(f"the tape is no xz file ({error})") from None
    lines = [line for line in content.split(b"\n") if line.strip()]
    asked: list[Exchange] = []
    cut = False
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number < len(lines) or not asked:
                raise InputError(f"line {number} of the tape is no JSON") from None
            cut = True
            break
        match row:
            case {"prompt": str(prompt), "response": str(response), **rest}:
                asked.append(Exchange(prompt, response, str(rest.get("finish_reason") or "")))
            case _:
                raise InputError(f"line {number} of the tape has no prompt and response")
    if not asked:
        raise InputError("the tape is empty")
    runs = [list(same) for _, same in groupby(asked, key=lambda one: one.prompt)]
    kept = tuple(same[-1] for same in runs)
    last = kept[-1]
    status = "Submitted" if f"{CHANNEL}{FINAL}" in last.response.rpartition(START)[2] else BROKE_OFF
    if cut or last.finish_reason == "length":
        status = BROKE_OFF if cut else LENGTH
    return Trajectory([], status, patch, model, malformed=len(asked) - len(kept), exchanges=kept)


def is_harmony(trajectory: Trajectory) -> bool:
    """Whether a trajectory is a Harmony transcript: a tape, or messages with channels."""
    return bool(trajectory.exchanges) or any(one.get("channel") for one in trajectory.messages)


def requests_of_tape(exchanges: Sequence[Exchange], engine: Engine) -> list[tuple[Tokens, Tokens]]:
    """The requests of a tape and what the model answered, with the end token, which a server leaves out of its texts."""
    vocab, harmony = engine.vocab, harmony_for(engine.vocab)
    opened = opening(harmony, vocab)
    requests = []
    for number, one in enumerate(exchanges, 1):
        prompt, answer = (_encoded(engine, text) for text in (one.prompt, one.response))
        if prompt[-len(opened) :] != opened:
            raise InputError(f"the prompt of step {number} does not end with {START}assistant, so it is not in Harmony")
        try:
            call = read_step(harmony, vocab, answer).call
        except Malformed:  # where it broke off
            ended: Tokens = []
        else:
            ended = [vocab.added[RETURN if call is None else CALL]] if one.finish_reason != "length" else []
        requests.append((prompt, answer if answer[-1:] == ended else answer + ended))
    return requests


def requests_of_messages(messages: Sequence[Mapping[str, Any]], engine: Engine) -> list[tuple[Tokens, Tokens]]:
    """The requests of a list of messages, rendered as the public harness does, and what the model answered."""
    vocab, harmony = engine.vocab, harmony_for(engine.vocab)
    opened = opening(harmony, vocab)
    before: Tokens = []
    requests = []
    for own, group in groupby(messages, key=lambda one: one["role"] == "assistant"):
        rendered = harmony.render([_message(one, vocab) for one in group])
        if own:
            ended = [*rendered[:-1], vocab.added[RETURN]] if rendered[-1] == vocab.added[END] else rendered
            requests.append((before + opened, ended[len(opened) :]))
        before = before + rendered
    return requests


def _encoded(engine: Engine, text: str) -> Tokens:
    ids: Tokens = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _message(given: Mapping[str, Any], vocab: Vocab) -> Message:
    """A message of a trajectory's file: as radmoe writes it, or openai-harmony."""
    content = given.get("content")
    if isinstance(content, list):
        if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            content = "".join(part["text"] for part in content)
        else:
            harmony = harmony_for(vocab)
            if not isinstance(harmony, OpenAIHarmony):
                raise InputError("its system message is openai-harmony's, which knows gpt-oss's vocabulary alone")
            content = harmony.content_of(given)
    names = ("name", "channel", "recipient", "content_type")
    fields = {name: given[name] for name in names if isinstance(given.get(name), str)}
    if not isinstance(content, str) or (given["role"] == "tool" and "name" not in fields):
        raise InputError(f"it has a message of {given['role']!r} without a text, or of a tool without its name")
    return Message(given["role"], content, **fields)
