"""How sure a test is, in words: the level that counts as sure, and p-values for a sentence."""

from __future__ import annotations

SURE = 0.05


def p_text(p: float) -> str:
    """A p-value for a sentence."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.01 else f"p = {p:.3f}"
