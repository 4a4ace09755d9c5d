"""The last selections, in memory, for the page at /."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from radmoe.gateway.asks import Ask
from radmoe.gateway.backends import Sampled
from radmoe.gateway.picks import Pick

_LONGEST_TEXT = 4000  # characters of a rollout that are kept
_LONGEST_PROMPT = 2000


class Recent:
    """The last `most` selections by their id, the youngest last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.count = 0  # of all selections so far

    def add(self, identity: str, ask: Ask, sampled: Sampled, pick: Pick) -> None:
        """Keep what a page shows of a selection."""
        self.count += 1
        if not self._most:
            return
        entry = _entry(identity, ask, sampled, pick) | {"number": self.count}
        self._entries[identity] = entry
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def listed(self, after: int = 0) -> list[dict[str, Any]]:
        """The selections from number `after` on, without their rollouts; the youngest first."""
        entries = [entry for entry in reversed(self._entries.values()) if entry["number"] > after]
        return [{name: value for name, value in entry.items() if name != "rollouts"} for entry in entries]

    def get(self, identity: str) -> dict[str, Any] | None:
        """One selection with its rollouts."""
        return self._entries.get(identity)


def _entry(identity: str, ask: Ask, sampled: Sampled, pick: Pick) -> dict[str, Any]:
    selection = pick.selection
    rollouts = []
    for i, choice in enumerate(sampled.choices):
        density = None if selection is None else float(selection.density[i])
        rollouts.append(
            {
                "index": i,
                "text": choice_text(choice)[:_LONGEST_TEXT],
                "finish_reason": choice["finish_reason"],
                "located": None if selection is None else bool(selection.located[i]),
                "density": None if density is None or np.isnan(density) else density,
                "basin": None if selection is None or selection.roots[i] < 0 else int(selection.roots[i]),
            }
        )
    return {
        "id": identity,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": ask.model,
        "route": ask.route,
        "prompt": (sampled.prompt or "")[-_LONGEST_PROMPT:],
        "answer": choice_text(sampled.choices[pick.order[0]])[:_LONGEST_TEXT],
        "radmoe": pick.document,
        "rollouts": rollouts,
    }


def choice_text(choice: dict[str, Any]) -> str:
    """What a choice says: its text, its content, or its tool calls as JSON."""
    message = choice.get("message")
    if message is None:
        return str(choice.get("text", ""))
    if isinstance(message.get("content"), str) and message["content"]:
        return str(message["content"])
    return str(message.get("tool_calls") or message.get("reasoning") or "")
