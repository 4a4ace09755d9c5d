"""The words that stand for a choice: kinds of answers, presets, kernels, fusions."""

from __future__ import annotations

from typing import Literal, get_args

from radmoe.errors import InputError

Kind = Literal["math", "choice", "code", "text", "agent"]  # what an answer looks like: it decides the marker
KINDS: tuple[Kind, ...] = get_args(Kind)
PresetName = Literal["paper", "paper+dc", "strict", "best", "best+text"]  # a documented way to select
Kernel = Literal["weighted", "binary"]  # how two route vectors are compared
Fusion = Literal["conf50", "ranksum"]  # how confidence joins density; None is plain RAD
Confidence = Literal["cbw", "tail", "likelihood"]  # a scalar of a rollout
Compare = Literal["routing", "text", "routing+text"]  # what makes two rollouts alike


def check_kind(kind: object) -> Kind:
    """Return the kind, or raise an InputError that lists the known ones."""
    if kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: use one of {', '.join(KINDS)}")
    return kind
