"""One agent's conversation, step by step, exactly as mini-swe-agent 2.4 runs it with mini.yaml.

The caller samples the replies and runs the commands, for many conversations at a time. These alone determine what a
conversation says and when and how it ends; a test runs the same conversations with the real package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from radmoe_lab.agent.templates import (
    FORMAT_ERRORS,
    STEP_LIMIT,
    Message,
    actions,
    format_error,
    observation,
    opening,
    prompt_text,
    submission,
)

SUBMITTED, LIMITS_EXCEEDED, FORMAT_ERROR, CONTEXT_EXCEEDED = EXIT_STATUSES = (
    "Submitted",
    "LimitsExceeded",
    "RepeatedFormatError",
    "ContextExceeded",
)
BOUNDARY = "</think>"

Encode = Callable[[str], list[int]]


@dataclass
class LabConversation:
    """A conversation about one issue. `exit_status` is empty while it goes on.

    Ask for `prompt`, hand the reply to `reply`, run the command that it returns, and hand the result to `observe`.
    The ids of what was sampled stay as they are; only what is new is tokenised.
    """

    issue: str
    encode: Encode
    context: int
    messages: list[Message] = field(default_factory=list)
    exit_status: str = ""
    patch: str = ""
    calls: int = 0
    _format_errors: int = 0
    _known: tuple[str, list[int]] = ("", [])
    _request: tuple[str, list[int]] = ("", [])

    def __post_init__(self) -> None:
        self.messages = opening(self.issue)

    def prompt(self) -> list[int] | None:
        """The token ids of the next request; None where the conversation has ended."""
        if self.exit_status:
            return None
        if self.calls >= STEP_LIMIT:
            self.exit_status = LIMITS_EXCEEDED
            return None
        text = prompt_text(self.messages)
        known, ids = self._known
        ids = [*ids, *self.encode(text[len(known) :])] if text.startswith(known) else self.encode(text)
        if len(ids) >= self.context:
            self.exit_status = CONTEXT_EXCEEDED
            return None
        self.calls += 1
        self._request = text, ids
        return list(ids)

    def reply(self, text: str, token_ids: Sequence[int], *, ended: bool) -> str | None:
        """Return the command of a reply. None if the reply does not have exactly one; the conversation then continues
        without it.

        `text` leaves out the token that ended the reply, and `ended` says whether there was one.
        """
        commands = actions(text.rpartition(BOUNDARY)[2])
        if len(commands) != 1:
            self._format_errors += 1
            self.messages.append({"role": "user", "content": format_error(len(commands))})
            if self._format_errors >= FORMAT_ERRORS:
                self.exit_status = FORMAT_ERROR
            return None
        self._known = self._request[0] + text + ("<|im_end|>" if ended else ""), [*self._request[1], *token_ids]
        self.messages.append({"role": "assistant", "content": text})
        return commands[0]

    def observe(self, output: str, code: int, *, stopped: bool = False) -> str:
        """Record what the command printed. Returns the message that shows it, which is empty after a submission."""
        patch = submission(output, code)
        if patch is not None:
            self.exit_status, self.patch = SUBMITTED, patch
            return ""
        shown = observation(output, code, stopped=stopped)
        self.go_on(shown)
        return shown

    def go_on(self, shown: str) -> None:
        """Append a message that shows what the command did."""
        self._format_errors = 0
        self.messages.append({"role": "user", "content": shown})
