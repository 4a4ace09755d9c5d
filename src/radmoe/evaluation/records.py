"""What is kept of an evaluated pool: a few numbers per problem, from which every table is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.evaluation.cohort import METHODS
from radmoe.selection.confidence import WINDOW
from radmoe.selection.selector import Setting

NO_PICK = -1  # the method abstained, or nobody could vote: this counts as wrong

COUNTS = ("rollouts", "right", "answered", "distinct", "plurality", "located", "located_right", "basin")


class Problem(NamedTuple):
    """One problem: counts over its rollouts, each method's pick, how right it is, and why a method could not be used."""

    problem_id: str
    counts: dict[str, int]
    picks: dict[str, int]
    hits: dict[str, float]
    missing: dict[str, str]


@dataclass(frozen=True, eq=False)
class Records:
    """The evaluated problems of a pool that are of one kind: arrays over these P problems, and what they are called.

    `counts` holds the number of rollouts, of right ones, of those with an answer, of distinct answers, the votes of the
    most frequent answer, the rollouts that the readout located, the right ones among those, and the size of the basin
    that RAD picked from. `picks` has the index of each method's pick, for methods that make one. `hits` is 1 where the
    pick is right and 0 where it is not; for a method that draws one of several rollouts it is the chance that the draw
    is right. `missing` says why a method has no result here, `notes` what a reader of the tables must know, and
    `inferred` which kind was told from markers. `checksum` identifies the pool and its labels.
    """

    pool: str
    setting: Setting
    problem_ids: tuple[str, ...]
    counts: dict[str, NDArray[np.int64]]
    picks: dict[str, NDArray[np.int64]]
    hits: dict[str, NDArray[np.float64]]
    confidence_window: int = WINDOW
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    inferred: str = ""
    model: str = ""
    family: str = ""
    dataset: str = ""
    checksum: str = ""

    def __len__(self) -> int:
        return len(self.problem_ids)

    @classmethod
    def collect(
        cls,
        problems: Iterable[Problem],
        *,
        pool: str,
        setting: Setting,
        confidence_window: int = WINDOW,
        notes: tuple[str, ...] = (),
        inferred: str = "",
    ) -> Records:
        """Stack problems. A method that failed on one has no result at all, since its denominator would be another."""
        rows = list(problems)
        if not rows:
            raise InputError(f"{pool} has no labelled problem: grade the pool first")
        missing: dict[str, str] = {}
        most = max(row.counts["located"] for row in rows)
        if most < 2:
            why = "no rollout has" if most == 0 else "no two rollouts of a problem have"
            reason = f"{why} the anchor of {setting.readout} for kind {setting.kind}"
            missing |= dict.fromkeys(_without_anchor(rows), reason)
        if not any(row.counts["answered"] for row in rows):
            reason = "no rollout has an answer that could be read"
            missing |= dict.fromkeys((name for name, method in METHODS.items() if "answers" in method.reads), reason)
        for row in rows:
            missing = row.missing | missing
        measured = [name for name in METHODS if name not in missing and all(name in row.hits for row in rows)]
        picking = [name for name in measured if all(name in row.picks for row in rows)]
        return cls(
            pool,
            setting,
            tuple(row.problem_id for row in rows),
            {name: np.array([row.counts[name] for row in rows], np.int64) for name in COUNTS},
            {name: np.array([row.picks[name] for row in rows], np.int64) for name in picking},
            {name: np.array([row.hits[name] for row in rows], np.float64) for name in measured},
            confidence_window,
            missing,
            notes,
            inferred,
        )

    def to_json(self) -> dict[str, Any]:
        """All but the names, which are given anew on every call."""
        body: dict[str, Any] = {
            "pool": self.pool,
            "setting": asdict(self.setting),
            "confidence_window": self.confidence_window,
        }
        body |= {"problem_ids": list(self.problem_ids), "missing": self.missing}
        body |= {"notes": list(self.notes), "inferred": self.inferred}
        for name in ("counts", "picks", "hits"):
            body[name] = {key: _numbers(values) for key, values in getattr(self, name).items()}
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Records:
        return cls(
            body["pool"],
            Setting(**body["setting"]),
            tuple(body["problem_ids"]),
            {key: np.array(values, np.int64) for key, values in body["counts"].items()},
            {key: np.array(values, np.int64) for key, values in body["picks"].items()},
            {key: np.array(values, np.float64) for key, values in body["hits"].items()},
            body["confidence_window"],
            body["missing"],
            tuple(body["notes"]),
            body["inferred"],
        )


def _without_anchor(rows: list[Problem]) -> list[str]:
    """The methods that read routing and picked nothing anywhere. One with a readout of its own may have."""
    return [
        name
        for name, method in METHODS.items()
        if "routing" in method.reads and all(row.picks.get(name, NO_PICK) == NO_PICK for row in rows)
    ]


def _numbers(values: NDArray[Any]) -> list[int] | list[float]:
    """An array as JSON numbers; whole ones are written without a point."""
    whole = values.astype(np.int64)
    numbers: list[int] | list[float] = (whole if np.array_equal(whole, values) else values).tolist()
    return numbers
