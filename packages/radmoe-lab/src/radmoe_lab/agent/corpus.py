"""Demonstrations as token ids, with a mask of the tokens to learn: the assistant's messages without its mistakes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from radmoe_lab.agent.demonstrations import training_demonstration
from radmoe_lab.agent.templates import prompt_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BEGIN, _END = "<|im_start|>", "<|im_end|>"


def draw_demonstration(rng: Random, tokenizer: Tokenizer) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Return the token ids of a demonstration, and which of them count in the loss. The last message ends with its end
    token.
    """
    demonstration = training_demonstration(rng)
    messages = demonstration.messages()
    text = prompt_text(messages[:-1]) + messages[-1]["content"] + _END
    ids = np.array(tokenizer.encode(text).ids, np.uint16)
    begins = np.flatnonzero(ids == tokenizer.token_to_id(_BEGIN))
    ends = np.flatnonzero(ids == tokenizer.token_to_id(_END))
    learned = np.zeros(len(ids), np.bool_)
    header = len(tokenizer.encode("assistant\n").ids) + 1
    for turn, begin, end in zip(demonstration.turns, begins[2::2], ends[2::2], strict=True):
        learned[begin + header : end + 1] = turn.learn
    return ids, learned
