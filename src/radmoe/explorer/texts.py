"""Encodes the tokens of a problem's rollouts for a page: their bytes, their log-probabilities, and which parts of long
texts are kept.

Tokens are kept as places in a table of the byte strings that occur in this problem, so a page shows exactly what the
model emitted, broken UTF-8 included. A rollout of more than WHOLE tokens is cut to its beginning, the surroundings of
its windows, and its end, which holds the answer; everything is kept where the caller wants full texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.explorer.blocks import ragged, smallest
from radmoe.types import RolloutGroup, Trace
from radmoe.vocab import Vocab

WHOLE = 1_200  # a rollout of at most so many tokens is kept whole
BEGIN, AROUND, END = 150, 60, 400  # tokens kept of a longer one: at its beginning, on each side of a window, at its end
GIVEN = 200  # tokens kept of what a step was given
PROMPT = 6_000  # characters kept of a prompt
ANSWER = 400  # characters kept of an answer, which may be a program
LOGPROB_STEPS = 32  # a stored log-probability q is -(q / 32)^2; 255 stands for everything below -63

Span = tuple[int, int]
Arrays = dict[str, NDArray[np.generic]]


def kept_spans(length: int, windows: Sequence[Span], full: bool) -> list[Span]:
    """The token ranges of a rollout that a page keeps, ascending and disjoint."""
    if full or length <= WHOLE:
        return [(0, length)]
    candidates = [(0, BEGIN), (length - END, length)]
    candidates += [(max(0, start - AROUND), min(length, stop + AROUND)) for start, stop in windows]
    spans: list[Span] = []
    for start, stop in sorted(candidates):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
        else:
            spans.append((start, stop))
    return spans


def text_arrays(group: RolloutGroup, windows: Sequence[Sequence[Span]], full: bool) -> Arrays:
    """Encode the tokens of every rollout, which of them are kept, and their log-probabilities if there are any.

    `windows` has the token ranges that any view of a rollout reads; they are always kept. T tokens are kept in S stretches:

    table [bytes], table_begin [V+1], control [V]: the distinct tokens' bytes, where each begins, whether it is a control
    token; lengths [N] in tokens; kept_begin [N+1] and kept_start, kept_stop [S]: the stretches of each rollout, and the
    tokens each holds; tokens [T] as places in the table; logprobs [T]: q for a log-probability of -(q / 32)^2, 255 below
    that; likelihood [N]; step_begin [N+1], step_start and given_length: where recorded steps begin, and how many tokens
    each was given; given_begin and given: these tokens, as places in the table.
    """
    spans = [kept_spans(len(rollout), own, full) for rollout, own in zip(group.rollouts, windows, strict=True)]
    token_pieces = [_rows_of(rollout.token_ids, own) for rollout, own in zip(group.rollouts, spans, strict=True)]
    step_inputs = [_inputs(rollout, full) for rollout in group.rollouts]
    pieces = [*token_pieces, *(tokens for steps in step_inputs for tokens in steps)]
    every, places = np.unique(np.concatenate(pieces), return_inverse=True)
    order = np.argsort(-np.bincount(places), kind="stable")  # frequent tokens first: small numbers compress well
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[places]
    total = sum(map(len, token_pieces))
    starts, begins = ragged([[start for start, _ in own] for own in spans])
    arrays: Arrays = {
        **_table(group.vocab, every[order]),
        "lengths": np.array([len(rollout) for rollout in group.rollouts], np.uint32),
        "kept_begin": begins,
        "kept_start": starts,
        "kept_stop": ragged([[stop for _, stop in own] for own in spans])[0],
        "tokens": smallest(ranks[:total]),
    }
    columns = [
        _rows_of(rollout.sampled_logprobs, own)
        for rollout, own in zip(group.rollouts, spans, strict=True)
        if rollout.sampled_logprobs is not None
    ]
    if len(columns) == len(group):
        arrays["logprobs"] = quantised(np.concatenate(columns))
    if any(step_inputs):
        step_starts, step_begins = ragged([[step.start for step in rollout.steps] for rollout in group.rollouts])
        arrays |= {
            "step_begin": step_begins,
            "step_start": step_starts,
            "given_length": ragged([[len(step.given) for step in rollout.steps] for rollout in group.rollouts])[0],
            "given_begin": np.cumsum([0, *(len(tokens) for steps in step_inputs for tokens in steps)]).astype(
                np.uint32
            ),
            "given": smallest(ranks[total:]),
        }
    return arrays


def quantised(logprobs: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Quantise log-probabilities to bytes, in finer steps near 0."""
    depth = np.sqrt(np.maximum(-logprobs.astype(np.float64), 0.0)) * LOGPROB_STEPS
    return np.where(np.isfinite(depth), np.minimum(np.rint(depth), 255), 255).astype(np.uint8)


def _rows_of(column: NDArray[np.generic], spans: Sequence[Span]) -> NDArray[np.generic]:
    return np.concatenate([column[start:stop] for start, stop in spans])


def _inputs(rollout: Trace, full: bool) -> list[NDArray[np.int32]]:
    """The tokens that each step was given: all of them, or the first ones."""
    return [np.array(step.given if full else step.given[:GIVEN], np.int32) for step in rollout.steps]


def _table(vocab: Vocab, token_ids: NDArray[np.int32]) -> Arrays:
    """The concatenated bytes of these tokens, the offset of each, and which of them are control tokens."""
    texts = [vocab.token_bytes(int(token)) for token in token_ids]
    controls = set(vocab.controls.values())
    return {
        "table": np.frombuffer(b"".join(texts), np.uint8),
        "table_begin": np.cumsum([0, *map(len, texts)]).astype(np.uint32),
        "control": np.array([int(token) in controls for token in token_ids], np.uint8),
    }
