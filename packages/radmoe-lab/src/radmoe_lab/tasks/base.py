"""Worked examples of problems, to train on, and the styles they are written in."""

from __future__ import annotations

from dataclasses import dataclass

from radmoe.errors import InputError
from radmoe.problems import Problem

STYLES = ("low", "medium", "high", "thinking", "instruct")


@dataclass(frozen=True)
class Example:
    """A problem with a worked answer: `reasoning` is the thinking (empty in the style "instruct"), `final` the response."""

    problem: Problem
    reasoning: str
    final: str
    style: str


def check_style(style: str) -> None:
    if style not in STYLES:
        raise InputError(f"unknown style {style!r}: use one of {', '.join(STYLES)}")
