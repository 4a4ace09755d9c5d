"""The configurations of the paper, and what it prints for each of their cells.

A configuration that is none of the paper's may rehearse one: it names the configuration whose rows stand beside its own, and
which of its tasks stands for which data set. `CONFIGS` has one such, of the lab.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from radmoe.errors import InputError
from radmoe.selection.confidence import WINDOW
from radmoe.types import RouterShape
from radmoe_studies.paper_tables import percent, printed

TASKS = {  # radmoe's name of a data set -> its column in the paper's tables
    "aime_2024": "AIME24",
    "aime_2025": "AIME25",
    "brumo_2025": "BRUMO25",
    "hmmt_feb_2025": "HMMT25",
    "gpqa_diamond": "GPQA",
    "livecodebench_v5": "Code",
}
_MAIN = {"Avg@64": "average", "Cons@64": "majority", "DeepConf": "deepconf", "RAD": "rad", "RAD+DC": "rad+dc"}


class PrintedFigures(NamedTuple):
    """What the paper prints for a cell of so many problems, by method, as fractions: it has three tables that come near it.

    `cell` is of this configuration and data set (Tab. marker-only), `pool` of this configuration on all data sets of the kind
    with `pool_n` problems (Tab. per-model, Tab. dc), and `family` of this data set with the model's styles pooled (Tab. main).
    """

    cell: Mapping[str, float]
    pool: Mapping[str, float]
    pool_n: int
    pool_name: str
    family: Mapping[str, float]
    problems: int


@dataclass(frozen=True)
class PaperConfiguration:
    """A configuration: a model by its name on the hub, its style, and how it is sampled.

    `family` and `variant` are its names in the paper's tables, `tasks` the column for which each of its tasks stands, and
    `confidence_window` that of DeepConf. `rehearses` says that model and tasks only stand for the paper's.
    """

    name: str
    model: str
    style: str | None
    family: str
    variant: str
    context: int = 32_768  # prompt and completion together, the paper's "maximum context length"
    temperature: float = 0.7
    top_p: float = 0.9
    n: int = 64
    confidence_window: int = WINDOW
    tasks: Mapping[str, str] = field(default_factory=lambda: TASKS)
    rehearses: bool = False

    @property
    def router(self) -> RouterShape | None:
        """The router that the paper says the model has; None where another model stands for it."""
        if self.rehearses:
            return None
        (row,) = (row for row in printed("moe-arch") if row["family"].startswith(self.family))
        return RouterShape(int(row["layers"]), int(row["experts"]), int(row["top_k"]))

    def task(self, word: str) -> str:
        """The task that a word names: its whole name, or a beginning that no other task has."""
        named = [word] if word in self.tasks else [task for task in self.tasks if word and task.startswith(word)]
        if len(named) != 1:
            raise InputError(f"{self.name} has no task {word!r:.60}: use some of {', '.join(self.tasks)}")
        return named[0]

    def printed(self, task: str) -> PrintedFigures:
        """What the paper prints for this configuration on the data set that a task is, or stands for."""
        column = self.tasks[task]
        (names,) = (r for r in printed("configs") if (r["family"], r["variant"]) == (self.family, self.variant))
        (data,) = (row for row in printed("datasets") if row["column"] == column)
        pool = data["pool"]
        (split,) = (r for r in printed("per-model") if (r["pool"], r["model"]) == (pool, names["model"]))
        (fused,) = (r for r in printed("dc") if (r["pool"], r["group"]) == (pool, names["group"]))
        strict = {
            row["method"]: row
            for row in printed("marker-only")
            if (row["family"], row["variant"], row["column"]) == (self.family, self.variant, column)
        }
        cell: dict[str, str | float] = {
            "average": float(strict["RAD"]["value"]) - float(strict["RAD"]["gain"]),
            "strict": strict["RAD"]["value"],
            "strict+dc": strict["RAD+DC"]["value"],
        }
        kind = {"average": split["avg_full"], "majority": split["maj"], "rad": split["dens"], "rad+dc": fused["rad_dc"]}
        family = {
            _MAIN[row["method"]]: row["value"]
            for row in printed("main")
            if (row["family"], row["column"]) == (self.family, column)
        }
        size, problems = int(split["n"]), int(data["problems"])
        return PrintedFigures(_fractions(cell), _fractions(kind), size, pool, _fractions(family), problems)

    def pooled_tasks(self, pool: str) -> set[str]:
        """The tasks of a pool of the paper: math, gpqa or code."""
        columns = {row["column"] for row in printed("datasets") if row["pool"] == pool}
        return {task for task, column in self.tasks.items() if column in columns}


def _fractions(figures: Mapping[str, str | float]) -> dict[str, float]:
    """Printed percentages as fractions, without those that the paper leaves out."""
    fractions = {name: percent(str(value)) for name, value in figures.items()}
    return {name: value for name, value in fractions.items() if value is not None}


CONFIGS: dict[str, PaperConfiguration] = {
    config.name: config
    for config in (
        PaperConfiguration("gpt-oss-20b-low", "openai/gpt-oss-20b", "low", "gpt-oss-20B", "Low"),
        PaperConfiguration("gpt-oss-20b-medium", "openai/gpt-oss-20b", "medium", "gpt-oss-20B", "Med"),
        PaperConfiguration("gpt-oss-20b-high", "openai/gpt-oss-20b", "high", "gpt-oss-20B", "High"),
        PaperConfiguration("gpt-oss-120b-low", "openai/gpt-oss-120b", "low", "gpt-oss-120B", "Low"),
        PaperConfiguration("gpt-oss-120b-medium", "openai/gpt-oss-120b", "medium", "gpt-oss-120B", "Med"),
        PaperConfiguration("gpt-oss-120b-high", "openai/gpt-oss-120b", "high", "gpt-oss-120B", "High"),
        PaperConfiguration(
            "qwen3-30b-a3b-thinking", "Qwen/Qwen3-30B-A3B-Thinking-2507", None, "Qwen3-30B-A3B", "Think"
        ),
        PaperConfiguration("qwen3-30b-a3b-instruct", "Qwen/Qwen3-30B-A3B-Instruct-2507", None, "Qwen3-30B-A3B", "Inst"),
        PaperConfiguration(
            "qwen3-next-80b-a3b-thinking", "Qwen/Qwen3-Next-80B-A3B-Thinking", None, "Qwen3-Next-80B", "Think"
        ),
        PaperConfiguration(
            "qwen3-next-80b-a3b-instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct", None, "Qwen3-Next-80B", "Inst"
        ),
        PaperConfiguration(
            "lab-qwen-thinking",
            "lab-qwen",
            "thinking",
            "Qwen3-30B-A3B",
            "Think",
            context=1_024,
            confidence_window=32,
            tasks=dict(zip(("math-1", "math-2", "math-3", "math-4", "choice", "code"), TASKS.values(), strict=True)),
            rehearses=True,
        ),
    )
}


def config_named(name: object) -> PaperConfiguration:
    if not isinstance(name, str) or name not in CONFIGS:
        raise InputError(f"unknown configuration {name!r:.60}: use one of {', '.join(CONFIGS)}")
    return CONFIGS[name]
