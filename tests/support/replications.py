"""Replications whose numbers were put there, as documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from radmoe_studies.replicate.configs import CONFIGS
from radmoe_studies.replicate.document import COUNTS, document

CONFIG = CONFIGS["qwen3-30b-a3b-thinking"]
ARMS = ("DeepConf online, keeps 90%", "DeepConf online, keeps 10%")


def cell(
    task: str, kind: str, problems: int, right: Mapping[str, float], *, n: int = 64, choice: float | None = None
) -> dict[str, Any]:
    """A cell in which each method is right on a share of the problems, and all agree on which are easy.

    "online" is the filter's share, and RAD has its own at the same tokens.
    """
    shares = {"average": 0.6, "strict": 0.6, "rad": 0.6} | dict(right)
    ease = (np.random.default_rng(0).permutation(problems) + 0.5) / problems

    def hits(share: float) -> list[float]:
        return [float(one < share) for one in ease]

    online = {"hits": hits(shares.pop("online", 0.6)), "tokens": [500.0] * problems, "rad": hits(shares["rad"])}
    each = {name: [share] * problems if name == "average" else hits(share) for name, share in shares.items()}
    chosen = {"tokens": [100] * problems, "shown": [n] * problems, "named": [1] * problems}
    return {
        "task": task,
        "kind": kind,
        "questions": "0" * 64,
        "problems": [f"{task}-{i:03}" for i in range(problems)],
        "tokens": [1000] * problems,
        "counts": {name: [n if name in ("rollouts", "located") else n // 2] * problems for name in COUNTS},
        "hits": each,
        "missing": {"behaviour": "nobody ran the programs"},
        "equal_tokens": dict.fromkeys(ARMS, online),
        "choice": None if choice is None else {"hits": hits(choice)} | chosen,
    }


def replication(*cells: dict[str, Any], seed: int = 1, n: int = 64) -> dict[str, Any]:
    """The document of one run."""
    made = dict.fromkeys(("radmoe", "engine", "model", "dtype"), "x")
    made |= {"versions": {"vllm": "0.30"}, "checkpoint": None, "tokens_per_second": 9_000.0}  # type: ignore[dict-item]
    body = document(CONFIG, [{"seed": seed, "made": made, "cells": list(cells)}])
    return body | {"sampling": body["sampling"] | {"n": n}}
