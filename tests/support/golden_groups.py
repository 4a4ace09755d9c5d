"""The captured groups of tests/data/golden (test_golden.py says how they were made), and planted ones, with their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from radmoe import Rollout, RolloutGroup, RouterShape, Vocab
from radmoe.grading.answers import extract
from radmoe_lab import planted
from radmoe_lab.models import weights
from radmoe_lab.planted import Planted

Answers = Sequence[str | None]
DATA = Path(__file__).parents[1] / "data" / "golden"
KINDS = ("math", "choice", "code")


def golden(kind: str) -> Iterator[tuple[RolloutGroup, list[dict[str, Any]], dict[str, np.ndarray]]]:
    """The groups of a kind in memory, and what was selected from each."""
    arrays, expected = np.load(DATA / f"{kind}.npz"), json.loads((DATA / f"{kind}.json").read_text())
    vocab = Vocab.from_file(weights(expected[0]["model"]) / "tokenizer.json")
    for number, entry in enumerate(expected):
        cuts = np.cumsum(arrays[f"{number}_lengths"])[:-1]
        columns = [
            np.split(arrays[f"{number}_{name}"].astype(dtype), cuts)
            for name, dtype in (
                ("tokens", np.int32),
                ("experts", np.int16),
                ("weights", np.float16),
                ("sampled", np.float32),
                ("topk", np.float32),
            )
        ]
        shape = RouterShape(entry["layers"], entry["experts"], entry["top_k"])
        rollouts = [Rollout(*parts) for parts in zip(*columns, strict=True)]
        matrices = {name.partition("_Z_")[2]: arrays[name] for name in arrays.files if name.startswith(f"{number}_Z_")}
        yield RolloutGroup(entry["problem_id"], rollouts, shape, vocab), entry["selections"], matrices


def golden_problems() -> list[tuple[str, RolloutGroup, Answers]]:
    problems = []
    for kind in KINDS:
        for group, _, _ in golden(kind):
            texts = [
                group.vocab.decode_bytes(rollout.token_ids).decode("utf-8", "replace") for rollout in group.rollouts
            ]
            problems.append((kind, group, [extract(kind, text) for text in texts]))
    return problems


def planted_problems() -> list[tuple[str, RolloutGroup, Answers]]:
    recipes = (
        Planted(problems=6, rollouts=16, tokens=90, seed=3),
        Planted(problems=3, rollouts=24, seed=4, kind="code"),
    )
    made = [one for recipe in recipes for one in planted.groups(recipe)]
    return [(str(one.group.kind), one.group, one.answers) for one in made]
