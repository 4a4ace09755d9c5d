"""Training batches of worked problems, which worker processes draw without end."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from itertools import count
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe_lab.agent.corpus import draw_demonstration
from radmoe_lab.chat import render
from radmoe_lab.models import CONTEXT, Model, model_named
from radmoe_lab.tasks import training_example
from radmoe_lab.tokenizer import build

CHUNK = 1024  # examples a worker draws at a time
LONG_CHUNK = 256  # the same of demonstrations and long tasks
LONGEST = 1536  # tokens of an example that are learned; only long tasks have more, and their rollouts end earlier
POOL = 24  # chunks that are sorted by length together, so that batches waste little on padding
IGNORE = -100  # the label of prompt and padding, which the loss skips

Sequences = list[tuple[NDArray[np.uint16], NDArray[np.bool_]]]  # token ids, and which of them are to be learned
Batch = tuple[NDArray[np.int64], NDArray[np.int64]]  # inputs [B, T], labels [B, T]


def draw(name: str, seed: int, examples: int | None = None, shares: Mapping[str, float] | None = None) -> Sequences:
    """Tokenised training examples in a model's styles, or an agent's demonstrations. The same seed gives the same.

    `shares` of the tasks are the model's own unless given.
    """
    model, rng = model_named(name), Random(seed)
    shares = model.shares if shares is None else shares
    tokenizer = build(model.tokenizer)
    if model.agent:
        return [draw_demonstration(rng, tokenizer) for _ in range(examples or LONG_CHUNK)]
    out: Sequences = []
    for _ in range(examples or (CHUNK if model.context == CONTEXT else LONG_CHUNK)):
        (style,) = rng.choices(list(model.styles), list(model.styles.values()))
        prompt, completion = render(training_example(rng, style=style, shares=shares), model.family)
        head = tokenizer.encode(prompt).ids
        ids = np.array(head + tokenizer.encode(completion).ids, np.uint16)[:LONGEST]
        out.append((ids, np.arange(len(ids)) >= len(head)))
    return out


def batches(model: Model, *, tokens: int, pad: int, seed: int, workers: int) -> Generator[Batch, None, None]:
    """Yield batches of about `tokens` tokens without end. The rows of a batch are of similar length."""
    rng = Random(seed)
    chunks = _chunks(model, seed, workers)
    while True:
        pool = sorted((row for _ in range(POOL if workers else 1) for row in next(chunks)), key=lambda row: len(row[0]))
        groups: list[Sequences] = [[]]
        for row in pool:
            if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > tokens:
                groups.append([])
            groups[-1].append(row)
        rng.shuffle(groups)
        for group in groups:
            yield _pad(group, pad)


def _pad(rows: Sequences, pad: int) -> Batch:
    width = -(-max(len(ids) for ids, _ in rows) // 16) * 16
    inputs, labels = np.full((len(rows), width), pad), np.full((len(rows), width), IGNORE)
    for i, (ids, learned) in enumerate(rows):
        inputs[i, : len(ids)] = ids
        labels[i, : len(ids)][learned] = ids[learned]
    return inputs, labels


def _chunks(model: Model, seed: int, workers: int) -> Iterator[Sequences]:
    """Yield chunks in the order of their seeds, whichever worker draws them.

    Without workers this process draws them, and they are smaller.
    """
    seeds = count(seed * 1_000_003)
    if not workers:
        yield from (draw(model.name, s, 64, model.shares) for s in seeds)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pending: deque[Any] = deque()
        for s in seeds:
            pending.append(pool.apply_async(draw, (model.name, s, None, dict(model.shares))))
            if len(pending) >= 4 * workers:
                yield pending.popleft().get()
