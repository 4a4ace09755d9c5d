"""Results of evaluations on disk, and a checkout that may show them."""

from __future__ import annotations

from pathlib import Path

from pools import evaluated
from radmoe.evaluation import build_report
from radmoe.evaluation.render import as_json
from radmoe.evaluation.scores import Draws
from radmoe.types import Kind

SETS: dict[str, Kind] = {"math-1": "math", "choice": "choice", "code": "code", "code-wide": "code", "explain": "text"}
TEXT = "# radmoe\n\nAbove.\n\n## Did it help?\n\nBelow.\n"


def evaluation(path: Path, *models: str) -> Path:
    """What `radmoe evaluate` writes of some configurations, five pools each, made by hand."""
    hits = {"rad": [1, 1, 0, 1], "majority": [1, 0, 0, 1], "likelihood": [1, 1, 1, 1], "oracle": [1, 1, 1, 1]}
    pools = [
        evaluated(hits, right=[8, 4, 2, 6], dataset=name, kind=kind, model=model)
        for model in models or ("lab-oss low", "lab-oss high", "lab-qwen thinking")
        for name, kind in SETS.items()
    ]
    path.write_text(as_json(build_report(pools, Draws(resamples=100))))
    return path


def checkout(root: Path) -> Path:
    """A directory with a README that shows no results yet."""
    (root / "packages/radmoe-studies/docs").mkdir(parents=True)
    (root / "README.md").write_text(TEXT)
    return root
