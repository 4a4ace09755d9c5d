"""Pools whose texts nobody would wish for, spelled byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hostile_text import ATTACKS
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import PoolWriter
from radmoe.types import Rollout, RouterShape, Step
from radmoe_lab import planted

SHAPE = RouterShape(3, 8, 2)
SCRIPT = "<script>window.hacked = 1</script>"
MARKUP = f"{SCRIPT}</script><img src=x onerror='window.hacked = 2'><!-- <style>*{{display:none}}</style> ]]> &lt;b&gt;"
RIGHT_TO_LEFT = "abc \u202egpj.exe\u202c שלום عالم \u2066x\u2069"
UNSEEN = "a\u200bb\u2060c\ufeffd\u00ade \x1b[2J \x00 \x07 \u2028 \U000e0041"
BROKEN = b"caf\xc3 \xff\xfe \xed\xa0\x80 \xf0\x9f\x98 end \xe2\x82\xac \xc0\xaf"
LINE = "x" * 100_000
HOSTILE = {"markup": MARKUP, "right to left": RIGHT_TO_LEFT, "unseen": UNSEEN, "attacks": " ".join(ATTACKS.values())}


@cache
def _byte_tokens() -> dict[int, int]:
    vocab = planted.vocab()
    return {vocab.token_bytes(token)[0]: token for token in range(len(vocab)) if len(vocab.token_bytes(token)) == 1}


def rollout_of(text: bytes | str, *, seed: int = 0, logprobs: bool = True, weights: bool = True) -> Rollout:
    """A rollout that spells these bytes and then an answer, with routing at random."""
    rng = np.random.default_rng(seed)
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    spelled = [_byte_tokens()[byte] for byte in data]
    ids = np.array([*spelled, *planted.tokenizer().encode("\nThe answer is \\boxed{7}.").ids], np.int32)
    experts = rng.random((len(ids), SHAPE.layers, SHAPE.experts)).argsort(-1)[:, :, : SHAPE.top_k].astype(np.int16)
    mass = np.full(experts.shape, 0.5, np.float16) if weights else None
    return Rollout(ids, experts, mass, -rng.random(len(ids)).astype(np.float32) if logprobs else None)


def pool_of(
    path: Path,
    problems: dict[str, Sequence[Rollout]],
    *,
    answer: str | None = None,
    kind: str | None = "math",
    prompt: str | None = "What is it?",
    **options: Any,
) -> Path:
    """A pool of these rollouts; with an `answer`, every other one has it and is right."""
    options = {"shape": SHAPE, "vocab": planted.vocab(), "model": "odd"} | options
    with PoolWriter(path, **options) as writer:
        for name, rollouts in problems.items():
            for i, rollout in enumerate(rollouts):
                writer.add(name, rollout, kind=kind, rollout_index=i, prompt=prompt, finish_reason="stop")
    if answer is not None:
        rows = [(name, i) for name, rollouts in problems.items() for i in range(len(rollouts))]
        write_labels(path, [Label(name, i, answer if i % 2 else None, i % 2 == 1) for name, i in rows])
    return path


def agent_rollout(seed: int, *, steps: bool) -> Rollout:
    """A trajectory of three actions, with or without its steps recorded."""
    turns = [f"<think>look at file {seed}</think>cat {k}.txt\n" for k in range(3)]
    ids = [planted.tokenizer().encode(turn).ids for turn in turns]
    starts = np.cumsum([0, *map(len, ids)])[:-1]
    tokens = np.array([token for turn in ids for token in turn], np.int32)
    rng = np.random.default_rng(seed)
    experts = rng.random((len(tokens), SHAPE.layers, SHAPE.experts)).argsort(-1)[:, :, : SHAPE.top_k].astype(np.int16)
    given = planted.tokenizer().encode(f"the output was {SCRIPT}").ids
    turns_of = tuple(Step(tuple(given), int(start)) for start in starts) if steps else ()
    return Rollout(tokens, experts, np.full(experts.shape, 0.5, np.float16), steps=turns_of)
