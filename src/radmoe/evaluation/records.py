"""What is kept of an evaluated pool: a few numbers per problem, from which every table is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.readout import Readout

# What selects, by the name it has everywhere: key -> label. N is filled in where a pool has one.
METHODS = {
    "average": "Avg@N",
    "majority": "Cons@N",
    "deepconf": "DeepConf",
    "rad": "RAD",
    "rad+dc": "RAD+DC",
    "strict": "RAD",
    "strict+dc": "RAD+DC",
    "deepconf-mean": "DeepConf mean",
    "deepconf-tail": "DeepConf tail",
    "deepconf-lowest-window": "DeepConf lowest window",
    "deepconf-tail-top10": "DeepConf tail, top 10%",
    "deepconf-bottom-window-top10": "DeepConf bottom window, top 10%",
    "confident": "most confident (cBW)",
    "medoid": "medoid",
    "longest": "longest",
    "shortest": "shortest",
    "most-steps": "most steps",
    "fewest-steps": "fewest steps",
    "oracle": "oracle pass@N",
}
VOTES = ("majority", *(m for m in METHODS if m.startswith("deepconf")))
ROUTING = ("rad", "rad+dc", "strict", "strict+dc", "medoid")  # need two located rollouts somewhere
NO_PICK = -1  # abstained, or nobody could vote: counts as wrong

COUNTS = ("rollouts", "right", "answered", "distinct", "plurality", "located", "located_right", "basin")


@dataclass(frozen=True)
class Settings:
    """How RAD read the pool. `strict` is the marker-only readout of the same anchor, None where there is none."""

    task: str = "math"
    readout: str = "delimiter@16"
    k: int = 10
    kernel: str = "weighted"

    @property
    def strict(self) -> str | None:
        readout = Readout.parse(self.readout)
        if readout.width in ("marker", "union") or readout.kind not in ("delimiter", "boundary", "trajectory"):
            return None
        return str(Readout(readout.kind, "marker", readout.name, readout.occurrence))


class Problem(NamedTuple):
    """One problem: counts over its rollouts, what each method picked, whether that is right, and what kept one from picking."""

    problem_id: str
    counts: dict[str, int]
    picks: dict[str, int]
    hits: dict[str, bool]
    missing: dict[str, str]


@dataclass(frozen=True, eq=False)
class Records:
    """An evaluated pool: arrays over its P problems, and who it is.

    `counts`: rollouts, right ones, ones with an answer, distinct answers, votes of the most frequent; located by the
    readout, right among those; size of the basin RAD picked from.
    `missing` says why a method has no result here. `notes` are what a reader of the tables must know.
    """

    pool: str
    settings: Settings
    problem_ids: tuple[str, ...]
    counts: dict[str, NDArray[np.int64]]
    picks: dict[str, NDArray[np.int64]]
    hits: dict[str, NDArray[np.bool_]]
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: str = ""
    dataset: str = ""

    def __len__(self) -> int:
        return len(self.problem_ids)

    @classmethod
    def collect(
        cls, problems: Iterable[Problem], *, pool: str, settings: Settings, notes: tuple[str, ...] = ()
    ) -> Records:
        """Stack problems. A method that failed on one has no result at all: its denominator would be another."""
        rows = list(problems)
        if not rows:
            raise InputError(f"{pool} has no labelled problem: grade the pool first")
        missing: dict[str, str] = {}
        most = max(row.counts["located"] for row in rows)
        if most < 2:
            why = "no rollout has" if most == 0 else "no two rollouts of a problem have"
            missing |= dict.fromkeys(ROUTING, f"{why} the anchor of {settings.readout} for task {settings.task}")
        if not any(row.counts["answered"] for row in rows):
            missing |= dict.fromkeys(VOTES, "no rollout has an answer that could be read")
        for row in rows:
            missing = row.missing | missing
        methods = [m for m in METHODS if m not in missing and all(m in row.picks for row in rows)]
        return cls(
            pool,
            settings,
            tuple(row.problem_id for row in rows),
            {name: np.array([row.counts[name] for row in rows], np.int64) for name in COUNTS},
            {m: np.array([row.picks[m] for row in rows], np.int64) for m in methods},
            {m: np.array([row.hits[m] for row in rows], bool) for m in methods},
            missing,
            notes,
        )

    def to_json(self) -> dict[str, Any]:
        """All but the names, which are given anew on every call."""
        body = {"pool": self.pool, "missing": self.missing}
        body |= {"settings": asdict(self.settings), "problem_ids": list(self.problem_ids), "notes": list(self.notes)}
        for name in ("counts", "picks", "hits"):
            body[name] = {key: values.astype(np.int64).tolist() for key, values in getattr(self, name).items()}
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Records:
        return cls(
            body["pool"],
            Settings(**body["settings"]),
            tuple(body["problem_ids"]),
            {key: np.array(values, np.int64) for key, values in body["counts"].items()},
            {key: np.array(values, np.int64) for key, values in body["picks"].items()},
            {key: np.array(values, bool) for key, values in body["hits"].items()},
            body["missing"],
            tuple(body["notes"]),
        )
