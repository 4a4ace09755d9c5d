"""Verdicts on an agent's patches: what a hidden test suite said of each trajectory, as labels of a pool.

They come from SWE-bench's own reports, one per run, or from JSON lines. A trajectory without a patch is wrong, whatever
was said of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radmoe.errors import InputError
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import open_pool
from radmoe.problems.own import read_rows
from radmoe.system.foreign import read_file

Verdicts = dict[tuple[str, int], bool]
_EXAMPLE = '{"instance_id": "a__b-1", "run": 0, "resolved": true}'


@dataclass(frozen=True)
class Labelled:
    """How many trajectories of a pool have a verdict, how many are right, and how many have none."""

    labelled: int
    right: int
    without: int

    def __str__(self) -> str:
        line = f"{self.labelled:,} trajectories have a verdict, {self.right:,} of them resolve their issue"
        return line + (f"; {self.without:,} have none, and their issues are left out" if self.without else "")


def read_verdicts(path: Path) -> Verdicts:
    """Verdicts from JSON lines."""
    verdicts: Verdicts = {}
    for number, row in read_rows(path, "verdicts", _EXAMPLE):
        match dict(row):
            case {"instance_id": str(name), "run": int(run), "resolved": bool(resolved)}:
                if verdicts.setdefault((name, run), resolved) != resolved:
                    raise InputError(f"{path} line {number} contradicts an earlier verdict on run {run} of {name!r}")
            case _:
                raise InputError(f"{path} line {number} is no verdict: a line is {_EXAMPLE}")
    return verdicts


def read_reports(paths: Sequence[Path]) -> Verdicts:
    """Verdicts from SWE-bench's reports, of which the r-th is that of run r.

    A report is the file that its harness writes at the end (`resolved_ids`, `submitted_ids`), or a directory of its logs
    (`INSTANCE/report.json`). An issue that a run did not submit, or whose evaluation ended in an error, is not resolved.
    """
    verdicts: Verdicts = {}
    for run, path in enumerate(paths):
        one = _logs(path) if path.is_dir() else _report(path)
        verdicts |= {(name, run): resolved for name, resolved in one.items()}
    return verdicts


def label_patches(pool: Path, patches: Mapping[tuple[str, int], str], verdicts: Verdicts) -> Labelled:
    """Write the labels of a pool of trajectories. The answer of a trajectory is its patch."""
    opened = open_pool(pool)
    labels, without = [], 0
    for problem in opened.problems:
        for run in opened.rollout_indices(problem):
            patch = patches.get((problem, run), "").strip().encode("utf-8", "replace").decode()  # a label is whole text
            resolved = verdicts.get((problem, run)) if patch else False
            if resolved is None:
                without += 1
            else:
                labels.append(Label(problem, run, patch or None, resolved))
    if not labels or (verdicts and not any((problem, run) in verdicts for problem, run, *_ in labels)):
        raise InputError(
            f"none of {len(verdicts):,} verdicts is on a trajectory of {pool}: its issues are {', '.join(opened.problems[:3])}"
        )
    write_labels(pool, labels)
    return Labelled(len(labels), sum(label.correct for label in labels), without)


def _report(path: Path) -> dict[str, bool]:
    body = _json(path)
    if isinstance(body, dict) and isinstance(body.get("resolved_ids"), list):
        resolved = set(map(str, body["resolved_ids"]))
        lists = (body.get(key) for key in ("submitted_ids", "completed_ids", "unresolved_ids"))
        known = {str(name) for names in lists if isinstance(names, list) for name in names}
        return {name: name in resolved for name in sorted(known | resolved)}
    raise InputError(f"{path} has no resolved_ids: give the report that SWE-bench's harness writes at its end")


def _logs(path: Path) -> dict[str, bool]:
    made: dict[str, bool] = {}
    for report in sorted(path.rglob("report.json")):
        body = _json(report)
        for name, entry in body.items() if isinstance(body, dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get("resolved"), bool):
                made[str(name)] = entry["resolved"]
    if not made:
        raise InputError(f"{path} has no report.json of SWE-bench's: give its logs of one run, or its final report")
    return made


def _json(path: Path) -> Any:
    try:
        return json.loads(read_file(path, "SWE-bench's report"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON ({error}): give SWE-bench's report") from None
