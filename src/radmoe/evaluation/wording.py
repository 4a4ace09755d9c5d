"""How sure a test is, in words: the level that counts as sure, and p-values for a sentence."""

from __future__ import annotations

SURE = 0.05


def p_text(p: float) -> str:
    """A p-value for a sentence, with as many places as show on which side of 0.05 it is."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.1 else f"p = {p:.3f}"
