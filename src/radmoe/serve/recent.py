"""The last selections, in memory, for the page at /."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from radmoe.explorer import encode_index, encode_problem
from radmoe.pool import Profile
from radmoe.selection.rule import Rule
from radmoe.serve.api_request import ApiRequest
from radmoe.serve.backends import SampledRollouts
from radmoe.serve.best_of import ServedPick
from radmoe.types import Rollout, RolloutGroup, Selection

_LONGEST_TEXT = 400  # characters of a question and of an answer in the list
# Keys of the answer's `radmoe` that are listed.
_LISTED = ("method", "reason", "kind", "fusion", "margin", "within_noise", "probability", "sampled", "seconds")


class Recent:
    """The last `most` selections by their id, the youngest last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[dict[str, Any], ShownSelection | None]] = OrderedDict()
        self.count = 0  # of all selections so far
        self.started = _now()

    def add(self, ask: ApiRequest, answer: dict[str, Any], shown: ShownSelection | None) -> None:
        """Keep what the pages show of a selection: of its request, of the whole answer and of the rollouts."""
        self.count += 1
        if not self._most:
            return
        entry = _entry(ask, answer) | {"number": self.count, "routing": shown is not None}
        self._kept[answer["id"]] = entry, shown
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def listed(self, after: int = 0) -> list[dict[str, Any]]:
        """The selections after number `after`, the latest first. Those with `routing` have a page of their own."""
        return [entry for entry, _ in reversed(self._kept.values()) if entry["number"] > after]

    def blocks(self, identity: str) -> tuple[bytes, bytes] | None:
        """The index and the problem of one selection for the explorer's page; None where it is not kept."""
        entry, shown = self._kept.get(identity, ({}, None))
        if shown is None:
            return None
        setting = Rule(preset=shown.selection.preset).settle(shown.selection.kind, len(shown.group))
        problem = encode_problem(
            shown.group, settings=[setting], prompt=shown.prompt, finish=shown.finish, full_text=True
        )
        source = {"name": f"{identity}, {entry['model']}, {entry['time']}", "facts": []}
        return encode_index([problem.entry | {"pool": 0}], pools=[source], title="radmoe: one selection"), problem.block


@dataclass(frozen=True)
class ShownSelection:
    """The data from which the page of one selection is built when it is opened."""

    group: RolloutGroup
    selection: Selection
    prompt: str | None
    finish: list[str]


def shown_selection(sampled: SampledRollouts, pick: ServedPick) -> ShownSelection | None:
    """What is kept for the page of a selection: of the routing only the rows that were read, so that it takes little
    memory. None where no routing was read."""
    group, selection = pick.group, pick.selection
    if group is None or selection is None:
        return None
    profile, rollouts = Profile(readouts=(selection.readout,)), []
    for rollout in group.rollouts:
        assert isinstance(rollout, Rollout)
        if rollout.positions is None:
            rows = profile.kept_rows(rollout.token_ids, group.vocab, group.kind)
            weights = None if rollout.weights is None else rollout.weights[rows]
            rollout = Rollout(rollout.token_ids, rollout.expert_ids[rows], weights, positions=rows)
        rollouts.append(rollout)
    name = f"Answered with rollout {pick.order[0]}"  # a preset may weigh more than the page does
    trimmed = RolloutGroup(name, rollouts, group.shape, group.vocab, group.kind)
    return ShownSelection(
        trimmed, selection, sampled.prompt, [str(choice["finish_reason"]) for choice in sampled.choices]
    )


def _entry(ask: ApiRequest, answer: dict[str, Any]) -> dict[str, Any]:
    radmoe = answer["radmoe"]
    return {
        "id": answer["id"],
        "time": _now(),
        "model": ask.model,
        "question": _cut(question_of(ask.body)),
        "answer": _cut(choice_text(answer["choices"][0])),
        "basin": None if radmoe["basin"] is None else len(radmoe["basin"]),
        "compared": sum(value is not None for value in radmoe["density"] or ()),
        **{name: radmoe[name] for name in _LISTED},
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cut(text: str) -> str:
    """The beginning and the end of a text, where an answer usually stands."""
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]}…{text[-half:]}"


def question_of(body: dict[str, Any]) -> str:
    """What was asked: the last thing that the user said, or the prompt, which may be token ids. A part that is no text is named."""
    messages, content = body.get("messages"), body.get("prompt")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
    parts = content if isinstance(content, list) else [content or ""]
    return " ".join(str(part.get("text", part.get("type")) if isinstance(part, dict) else part) for part in parts)


def choice_text(choice: dict[str, Any]) -> str:
    """What a choice says: its text, its content, or its tool calls as JSON."""
    message = choice.get("message")
    if message is None:
        return str(choice.get("text", ""))
    if isinstance(message.get("content"), str) and message["content"]:
        return str(message["content"])
    return str(message.get("tool_calls") or message.get("reasoning") or "")
