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
from radmoe.serve.best_of import Pick
from radmoe.types import Rollout, RolloutGroup, Selection

_LONGEST_TEXT = 400  # characters of an answer in the list


class Recent:
    """The last `most` selections by their id, the youngest last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._shown: dict[str, ShownSelection] = {}
        self.count = 0  # of all selections so far

    def add(
        self, identity: str, ask: ApiRequest, sampled: SampledRollouts, pick: Pick, shown: ShownSelection | None
    ) -> None:
        """Keep what the pages show of a selection."""
        self.count += 1
        if not self._most:
            return
        self._entries[identity] = _entry(ask, sampled, pick) | {"id": identity, "number": self.count}
        if shown is not None:
            self._shown[identity] = shown
        while len(self._entries) > self._most:
            oldest, _ = self._entries.popitem(last=False)
            self._shown.pop(oldest, None)

    def listed(self, after: int = 0) -> list[dict[str, Any]]:
        """The selections after number `after`, the latest first. Those with `routing` have a page of their own."""
        entries = [entry for entry in reversed(self._entries.values()) if entry["number"] > after]
        return [entry | {"routing": entry["id"] in self._shown} for entry in entries]

    def blocks(self, identity: str) -> tuple[bytes, bytes] | None:
        """The index and the problem of one selection for the explorer's page; None where it is not kept."""
        shown = self._shown.get(identity)
        if shown is None:
            return None
        setting = Rule(preset=shown.selection.preset).settle(shown.selection.kind, len(shown.group))
        problem = encode_problem(
            shown.group,
            settings=[setting],
            prompt=shown.prompt,
            finish=shown.finish,
            full_text=True,
        )
        return encode_index([problem.entry], title="radmoe: one selection"), problem.block


@dataclass(frozen=True)
class ShownSelection:
    """The data from which the page of one selection is built when it is opened."""

    group: RolloutGroup
    selection: Selection
    prompt: str | None
    finish: list[str]


def shown_selection(sampled: SampledRollouts, pick: Pick) -> ShownSelection | None:
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
    name = f"{group.problem_id}, answered with rollout {pick.order[0]}"  # a preset may weigh more than the page does
    trimmed = RolloutGroup(name, rollouts, group.shape, group.vocab, group.kind)
    return ShownSelection(
        trimmed, selection, sampled.prompt, [str(choice["finish_reason"]) for choice in sampled.choices]
    )


def _entry(ask: ApiRequest, sampled: SampledRollouts, pick: Pick) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": ask.model,
        "route": ask.route,
        "answer": choice_text(sampled.choices[pick.order[0]])[:_LONGEST_TEXT],
        "radmoe": pick.document,
    }


def choice_text(choice: dict[str, Any]) -> str:
    """What a choice says: its text, its content, or its tool calls as JSON."""
    message = choice.get("message")
    if message is None:
        return str(choice.get("text", ""))
    if isinstance(message.get("content"), str) and message["content"]:
        return str(message["content"])
    return str(message.get("tool_calls") or message.get("reasoning") or "")
