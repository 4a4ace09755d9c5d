"""What studies need of pools, and the command that would provide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from radmoe_studies.evidence import Evidence, Panel


@dataclass(frozen=True)
class Need:
    """Something that pools must have; `remedy` says how to get it."""

    name: str
    met: Callable[[Evidence], bool]
    remedy: str

    def lacking(self, evidence: Evidence) -> str | None:
        return None if self.met(evidence) else f"needs {self.name}: {self.remedy}"


def styles_of(evidence: Evidence) -> dict[str, set[str]]:
    """The styles that each model was asked in."""
    styles: dict[str, set[str]] = {}
    for panel in evidence.panels:
        styles.setdefault(panel.model, set()).add(panel.style)
    return styles


def _any(condition: Callable[[Panel], bool]) -> Callable[[Evidence], bool]:
    return lambda evidence: any(condition(panel) for panel in evidence.panels)


LOGPROBS = Need(
    "top-k log-probabilities",
    _any(lambda panel: "cbw" in panel.scalars),
    "radmoe capture keeps them unless --no-logprobs",
)
VOTES = Need(
    "answers that can be counted (math or choice)",
    _any(lambda panel: panel.domain in ("math", "science")),
    "radmoe capture --task math-2 (or any data set of kind math or choice), then radmoe grade",
)
MATH = Need(
    "math problems",
    _any(lambda panel: panel.domain == "math"),
    "radmoe capture --task math-2, then radmoe grade",
)
EFFORTS = Need(
    "one model at three efforts on the same problems",
    lambda evidence: any({"low", "medium", "high"} <= styles for styles in styles_of(evidence).values()),
    "radmoe capture --model lab-oss --task math-2 with --style low, medium and high, each into its own pool",
)
PAIRS = Need(
    "one model thinking and not thinking on the same problems",
    lambda evidence: any({"thinking", "instruct"} <= styles for styles in styles_of(evidence).values()),
    "radmoe capture --model lab-qwen --task math-2 with --style thinking and instruct, each into its own pool",
)
MANY = Need(
    "16 or more rollouts per problem",
    _any(lambda panel: panel.n >= 16),
    "radmoe capture -n 64",
)
