"""The paper's published figures, recomputed from each other: `audit()` returns a Check for each way a figure follows."""

from __future__ import annotations

from radmoe_studies.audit import (
    across,
    agentic,
    averages,
    claims,
    decomposition,
    efforts,
    granularity,
    headlines,
    holm,
    mcnemar,
    pooled,
    power,
)
from radmoe_studies.audit.check import Check, Verdict
from radmoe_studies.audit.paper import Paper, load

__all__ = ["Check", "Paper", "Verdict", "audit", "load"]


FAMILIES = (
    mcnemar,
    holm,
    power,
    granularity,
    averages,
    headlines,
    pooled,
    decomposition,
    efforts,
    agentic,
    across,
    claims,
)


def audit(paper: Paper | None = None) -> list[Check]:
    """Check every figure that follows from others, in the order of the paper's tables."""
    source = load() if paper is None else paper
    checks = [check for family in FAMILIES for check in family.checks(source)]
    order = {label: i for i, label in enumerate(source.about)}
    return sorted(checks, key=lambda check: order[check.table])
