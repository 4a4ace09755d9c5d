"""Panels whose answers to every study are known, because their basins, truths and similarities were put there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.problem import Marks
from radmoe.selection.rule import Rule
from radmoe.types import Kind
from radmoe_studies.base import Findings
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Evidence, Panel, Read, Request


def similarity(
    basin: NDArray[np.int64], signal: float, rng: np.random.Generator, noise: float = 0.05
) -> NDArray[np.float32]:
    """S [N, N] in which rollouts of one basin are more alike by `signal`; 0 is no signal at all."""
    n = len(basin)
    same = basin[:, None] == basin[None, :]
    S = 0.4 + signal * same + noise * rng.standard_normal((n, n))
    S = np.clip((S + S.T) / 2, 0.0, 1.0)
    np.fill_diagonal(S, 1.0)
    return S.astype(np.float32)


def panel(
    *,
    problems: int = 60,
    n: int = 32,
    right: float | Sequence[float] = 0.55,
    wrong_answers: int = 4,
    signal: float | Mapping[Request, float] = 0.3,
    requests: Sequence[Request] = (),
    located: float | Mapping[Request, float] = 1.0,
    confidence: float = 0.0,
    likelihood: float = 0.0,
    kind: Kind = "math",
    model: str = "lab-qwen",
    style: str = "thinking",
    dataset: str = "math-2",
    seed: int = 0,
) -> Panel:
    """A panel in which each rollout is right with a known chance, and wrong ones share `wrong_answers` wrong answers.

    Basins are answers: `signal`, one number or one per request, says how much more alike rollouts of one answer are.
    `located` is the share of rollouts that a request locates. `confidence` and `likelihood` say by how many standard
    deviations right rollouts are above wrong ones.
    """
    rng = np.random.default_rng(seed)
    rates = np.broadcast_to(np.asarray(right, float), (problems,))
    correct = rng.random((problems, n)) < rates[:, None]
    answer = np.where(correct, 0, 1 + rng.integers(0, wrong_answers, (problems, n)))
    reads = {}
    for request in requests:
        strength = signal[request] if isinstance(signal, Mapping) else signal
        share = located[request] if isinstance(located, Mapping) else located
        start = np.where(rng.random((problems, n)) < share, 40, -1).astype(np.int32)
        S = np.stack([similarity(row, strength, rng) for row in answer])
        S[np.broadcast_to((start < 0)[:, None, :], S.shape) | np.broadcast_to((start < 0)[:, :, None], S.shape)] = (
            np.nan
        )
        reads[request] = Read(S, start)
    scalars = {
        "cbw": rng.standard_normal((problems, n)) + confidence * correct,
        "likelihood": rng.standard_normal((problems, n)) + likelihood * correct,
    }
    ids = [f"{dataset}-{i:03d}" for i in range(problems)]
    return Panel(
        Path(f"pools/{model}-{style}-{dataset}"),
        Rule(confidence_window=32).settle(kind),
        dict(zip(ids, marks_of(answer, correct), strict=True)),
        model,
        style,
        dataset,
        lengths=rng.integers(80, 200, (problems, n)),
        scalars=scalars,
        reads=reads,
    )


def marks_of(answer: NDArray[np.int64], correct: NDArray[np.bool_]) -> list[Marks]:
    """The marks of rollouts whose answers are numbers [P, N]; -1 is no answer."""
    texts = [tuple(None if one < 0 else str(one) for one in row) for row in answer.tolist()]
    return [Marks(own, tuple(right)) for own, right in zip(texts, correct.tolist(), strict=True)]


def relabelled(
    one: Panel, answer: NDArray[np.int64] | None = None, correct: NDArray[np.bool_] | None = None, **other: Any
) -> Panel:
    """The panel with other answers, or with other right rollouts."""
    made = marks_of(one.answer if answer is None else answer, one.correct if correct is None else correct)
    return replace(one, marks=dict(zip(one.marks, made, strict=True)), **other)


def without_half_of_the_wrong(one: Panel, request: Request) -> Panel:
    """The panel in which no wrong rollout of even number reaches the anchor of a request; it keeps that request alone."""
    read = one.reads[request]
    lost = ~one.correct & (np.arange(one.n) % 2 == 0)
    values = read.values.copy()
    values[lost[:, :, None] | lost[:, None, :]] = np.nan
    start = np.where(lost, -1, read.start).astype(np.int32)
    return replace(one, reads={request: read._replace(values=values, start=start)})


def evidence(*panels: Panel) -> Evidence:
    return Evidence(list(panels))


def verdicts_by_key(findings: Findings) -> dict[str, ClaimVerdict]:
    """What a study decided, by the keys of its claims."""
    return {decision.claim.key: decision.verdict for decision in findings.decisions}
