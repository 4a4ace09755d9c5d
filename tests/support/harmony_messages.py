"""Random Harmony messages, and completions that are damaged at random, for the renderers and parsers to agree on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from radmoe_agent.harmony.messages import MARKS, ROLES, Message
from radmoe_agent.harmony.tools import TOOLS

PIECES = (
    "def total(xs):\n    return sum(xs) + 1\n", '{"path": "", "depth": 3}\n', "So", " now", "\n\n", "\r\n", "\t", "  ", "'s", "GROUP BY",
    "<|start|>", "<|channel|>analysis", "<|end|>", "<|", "|>", "</think>", "Zürich", "naïve café", "東京", "🙂", "👩‍👩‍👧", "\u200b", "\u00a0", "e\u0301",
    "ﬁ", "İ", "ǅ", "1234567", "0x1F", "==>", "/*", "////", "...", "\u2013", "“quoted”", "\x00", "\x1b[0m", "\U0001d518\U0001d52b\U0001d526", "\u0627", "हिन्दी",
)  # fmt: skip
CHANNELS = ("analysis", "commentary", "final", "x")
TYPES = ("code", "json", "<|constrain|>json", "<|constrain|>", "text/x")
RECIPIENTS = (*TOOLS, "assistant", "all", "functions.f")


def text(rng: random.Random, most: int = 12) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(most)))


def message(rng: random.Random, roles: Sequence[str] = ROLES) -> Message:
    role = rng.choice(roles)
    return Message(
        role,
        text(rng),
        rng.choice([*TOOLS, "python"]) if role == "tool" else rng.choice([None, None, "ann"]),
        rng.choice([None, *CHANNELS]),
        rng.choice([None, None, *RECIPIENTS]),
        rng.choice([None, None, *TYPES]),
    )


def messages(rng: random.Random) -> list[Message]:
    return [message(rng) for _ in range(rng.randrange(6))]


def damaged(rng: random.Random, tokens: Sequence[int], marks: Sequence[int], size: int) -> list[int]:
    """Tokens of which some are dropped, doubled, or replaced by marks and others."""
    made: list[int] = []
    for token in tokens:
        match rng.randrange(40):
            case 0:
                continue
            case 1:
                made += [token, token]
            case 2:
                made += [token, rng.choice(marks)]
            case 3:
                made.append(rng.randrange(size))
            case _:
                made.append(token)
    return made


__all__ = ["MARKS", "damaged", "message", "messages", "text"]
