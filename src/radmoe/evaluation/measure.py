"""From a graded pool to its records: every method on every problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from radmoe.errors import InputError, PoolCorrupt
from radmoe.evaluation import cache, naming, workers
from radmoe.evaluation.cohort import Cohort, open_cohort
from radmoe.evaluation.cohort.families import family_of
from radmoe.evaluation.records import Problem, Records
from radmoe.pool.reader import manifest
from radmoe.selection.confidence import WINDOW


def evaluate_pool(
    path: str | Path,
    *,
    kind: str | None = None,
    readout: str | None = None,
    k: int | None = None,
    kernel: str | None = None,
    confidence_window: int = WINDOW,
    n: int | None = None,
    dataset: str | None = None,
    jobs: int = 1,
    use_cache: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Records, ...]:
    """Run every registered method on every graded problem of a pool, or take the results from the user's cache (`cache`).

    The result has one `Records` per kind of answer in the pool, mostly a single one. Where there are several, each is
    called after the data set and its kind, as in "mixed (code)". `kind`, `readout`, `k` and `kernel` follow from the
    pool unless given (`open_cohort`); `confidence_window` is in tokens; with `n` the pool is taken
    as if every problem had only its first n rollouts. `dataset` replaces the name that the pool records. `jobs` processes share the problems and change no result. `progress` is told how many
    problems are done, and how many there are.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    path = Path(path)
    run = manifest(path)["run"]
    request = {
        "kind": kind,
        "readout": readout and str(readout),
        "k": k,
        "kernel": kernel,
        "confidence_window": confidence_window,
        "n": n,
    }
    key = cache.identity(path)
    records = cache.load(request, key) if use_cache else None
    if records is None:
        cohort = open_cohort(
            path, kind=kind, readout=readout, k=k, kernel=kernel, confidence_window=confidence_window, n=n
        )
        problems = []
        for problem in workers.measure_all(cohort, jobs):
            problems.append(problem)
            progress(len(problems), len(cohort))
        records = _by_kind(cohort, problems)
        if use_cache:
            cache.save(request, key, records)
    name, checksum = dataset or naming.dataset(run, path), cache.checksum(path)
    return tuple(
        replace(
            one,
            pool=str(path),
            checksum=checksum,
            model=naming.model(run),
            family=family_of(str(run["model"])),
            dataset=name if len(records) == 1 else f"{name} ({one.setting.kind})",
        )
        for one in records
    )


def check_distinct(pools: Sequence[str | Path]) -> None:
    """Refuse pools that share rollouts, which would be counted twice: one pool given twice, a copy, a part of another.

    Pools are compared by content: they share rollouts if a shard of one, to its last checksum, is a shard of the other
    and both have the same run record.
    """
    homes: dict[str, Path] = {}
    for path in map(Path, pools):
        for shard in _contents(path):
            home = homes.setdefault(shard, path)
            if home is not path:
                same = "is given twice" if home == path else f"holds rollouts that are in {home} too"
                raise InputError(f"{path} {same}: give every pool once, or its rollouts are counted twice")


def _contents(path: Path) -> set[str]:
    """What identifies each shard of a pool: its description, which has the checksum of every column, and the run record."""
    meta = manifest(path)
    try:
        entries = [entry for entry in meta["shards"].values() if entry["runs"]]
        return {json.dumps([meta["run"], entry], sort_keys=True) for entry in entries}
    except (KeyError, TypeError, AttributeError) as e:
        raise PoolCorrupt(f"{path} does not list its shards ({e!r}): restore it from a copy") from None


def _by_kind(cohort: Cohort, problems: list[Problem]) -> tuple[Records, ...]:
    """One Records per kind, in the order in which the kinds first occur; the first has the pool's notes."""
    return tuple(
        Records.collect(
            (problem for problem in problems if cohort.kinds[problem.problem_id] == kind),
            pool=str(cohort.pool.path),
            setting=setting,
            confidence_window=cohort.confidence_window,
            notes=() if number else cohort.notes,
            inferred=cohort.inferred,
        )
        for number, (kind, setting) in enumerate(cohort.settings.items())
    )
