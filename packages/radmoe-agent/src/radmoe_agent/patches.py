"""The patch to submit for every instance, and why: what cannot be submitted leaves first, and a method chooses among the rest.

A candidate that cannot be submitted neither wins nor counts as a neighbour. No verdict and no hidden test is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, RadmoeError
from radmoe.pool import Pool, open_pool
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.selection.kernels import knn
from radmoe.selection.readout import Reading
from radmoe.selection.rule import Rule, Setting
from radmoe.selection.selector import choose, similarity
from radmoe.selection.steps import Counts, count_steps
from radmoe.types import SELECTION_KEYS, Anchor, RolloutGroup, Selection, Trace
from radmoe_agent.candidates import POOL, Candidate, read_candidates, refuse_unfinished
from radmoe_agent.checks import check_confinement, check_patches
from radmoe_agent.defaults import METHOD, TEST_SECONDS
from radmoe_agent.instances import Instance
from radmoe_agent.methods import Cohort, parts_of, scores_of
from radmoe_agent.reasons import why

PREDS, RECORDS = "preds.json", "records.jsonl"


@dataclass(frozen=True)
class Considered:
    """One candidate as the decision saw it.

    `same` are the runs that can be submitted and left the same patch, this one among them. `score` is what the method gave it,
    and `overlap` (its patch with all others), `likelihood` and `density` are the numbers behind the methods. `neighbours` are the
    runs that its density counts, and `fired` is the number of (layer, expert) pairs of its fingerprint. None and empty where
    something was not measured. Steps and boundaries are counted apart.
    """

    run: int
    status: str
    problem: str | None
    notes: tuple[str, ...]
    same: tuple[int, ...]
    score: float | None
    overlap: float | None
    likelihood: float | None
    density: float | None
    neighbours: tuple[int, ...]
    fired: int | None
    tokens: int | None
    steps: int | None
    boundaries: int | None
    steps_without_boundary: int | None
    patch_bytes: int
    patch_lines: int
    patch_sha256: str


@dataclass(frozen=True)
class PatchDecision:
    """The patch that is submitted for an instance, and why. If none can be, `run` is None and the patch is empty.

    `selection` is what routing alone says of the trajectories `runs`, those with routing, in their order; None if there are none. A
    trajectory that cannot be submitted is not located in it. `issue` is what was to be solved, where instances say so.
    """

    instance_id: str
    run: int | None
    patch: str
    why: str
    method: str
    model: str
    setting: Setting
    selection: Selection | None
    runs: tuple[int, ...]
    candidates: tuple[Considered, ...]
    issue: str = ""


@dataclass(frozen=True, eq=False)
class Compared:
    """The routing of an issue's trajectories: S [n, n] and what was read, of those that can be submitted and have a boundary."""

    group: RolloutGroup
    S: NDArray[np.float32]
    reading: Reading
    selection: Selection

    @property
    def traces(self) -> dict[int, Trace]:
        """Every trajectory with routing, by its run."""
        return dict(zip(self.group.rollout_indices or (), self.group.rollouts, strict=True))

    @cached_property
    def facts(self) -> dict[int, dict[str, Any]]:
        """What the comparison says of each trajectory that was compared, by its run."""
        indices = np.array(self.group.rollout_indices or (), np.int64)
        runs = indices[self.reading.located].tolist()
        densities = self.selection.density[self.reading.located].tolist()
        near = knn(self.S, self.selection.k).tolist() if len(runs) > 1 else [[]] * len(runs)
        fired = np.count_nonzero(self.reading.Z, axis=1).tolist()
        return {
            run: {"density": _number(density), "neighbours": tuple(runs[j] for j in own), "fired": count}
            for run, density, own, count in zip(runs, densities, near, fired, strict=True)
        }


def decide_all(
    directory: str | Path,
    *,
    method: str = METHOD,
    rule: Rule | None = None,
    limit: int | None = None,
    instances: Sequence[Instance] = (),
    test_seconds: int = TEST_SECONDS,
    threads: int = 1,
) -> Iterator[PatchDecision]:
    """Decide for every instance of a directory that `run_agents` or `import_trajectories` wrote, in their order.

    `method` is a name of `radmoe_agent.methods`, or several joined by +. `rule` says what routing is compared: by default every
    boundary as a set, the binary kernel, k = 4. `step@union` also reads the first row of every step without a boundary. With
    `instances`, a patch that does not apply to its repository, or fails its visible tests, is not submitted. One that outgrew the
    context is not, where another can be. No result depends on the number of threads.
    """
    directory = Path(directory)
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    parts = parts_of(method)
    every = read_candidates(directory)
    pool = open_pool(directory / POOL)
    if "likelihood" in parts and not pool.has_logprobs:
        raise InputError(
            f"{pool.path} keeps no log-probabilities, which likelihood reads: run or import with --topk-logprobs 20, or "
            f"use another method ({METHOD})"
        )
    setting = (rule or Rule()).settle("agent")
    repositories = {one.instance_id: one for one in instances}
    if repositories:
        check_confinement()
    order = [*(name for name in pool.problems if name in every), *sorted(every.keys() - set(pool.problems))]

    def work(job: tuple[str, RolloutGroup | None]) -> PatchDecision:
        name, group = job
        members = every[name]
        if name in repositories:
            members = check_patches(repositories[name], members, test_seconds=test_seconds)
        made = decide(name, refuse_unfinished(members), group, setting, pool.model, method=method)
        return replace(made, issue=repositories[name].problem_statement) if name in repositories else made

    jobs = ((name, _group(pool, name)) for name in order[:limit])
    if threads == 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(threads) as workers:
        while batch := list(islice(jobs, 4 * threads)):
            yield from workers.map(work, batch)


def decide(
    instance_id: str,
    members: Sequence[Candidate],
    group: RolloutGroup | None,
    setting: Setting,
    model: str,
    *,
    method: str = METHOD,
) -> PatchDecision:
    """Decide for one instance, whose trajectories with routing are `group`."""
    members, compared = _compare(members, group, setting)
    usable = [one for one in members if one.usable]
    traces = {} if compared is None else compared.traces
    considered = {one.run: _counted(one, traces.get(one.run), compared) for one in members}
    pick: int | None = usable[0].run if usable else None
    scores = None
    if len(usable) > 1:
        cohort = _cohort(usable, traces, compared, setting.k)
        scores = scores_of(method, cohort)
        if np.isfinite(scores.total).any():
            pick = usable[int(np.nanargmax(scores.total))].run
        same = {patch: tuple(one.run for one in usable if one.patch.strip() == patch) for patch in _distinct(usable)}
        columns = zip(usable, scores.total, cohort.mean_overlaps, cohort.likelihoods, strict=True)
        for one, score, overlap, likelihood in columns:
            considered[one.run] = replace(
                considered[one.run],
                same=same[one.patch.strip()],
                score=_number(score),
                overlap=_number(overlap),
                likelihood=_number(likelihood),
            )
    elif usable:
        considered[usable[0].run] = replace(considered[usable[0].run], same=(usable[0].run,))
    selection = None if compared is None else compared.selection
    return PatchDecision(
        instance_id,
        pick,
        next((one.patch for one in members if one.run == pick), ""),
        why(pick, tuple(considered.values()), scores, selection, setting),
        method,
        model,
        setting,
        selection,
        tuple(traces),
        tuple(considered.values()),
    )


def _distinct(usable: Sequence[Candidate]) -> list[str]:
    """The different patches, in the order of the runs that left them first."""
    return list(dict.fromkeys(one.patch.strip() for one in usable))


def _compare(
    members: Sequence[Candidate], group: RolloutGroup | None, setting: Setting
) -> tuple[list[Candidate], Compared | None]:
    """The routing of those that can be submitted, and the candidates, with a note on each whose routing cannot be read."""
    if group is None:
        return list(members), None
    usable = {one.run for one in members if one.usable}
    indices = group.rollout_indices or ()
    wanted = [i for i, run in enumerate(indices) if run in usable]
    try:
        compared = _read(group, wanted, setting)
    except RadmoeError:  # the rows of some trajectory cannot be read: it costs no other
        notes = {}
        for i in wanted:
            try:
                _read(group, [i], setting)
            except RadmoeError as error:
                notes[indices[i]] = f"its routing cannot be read ({error})"
        members = [replace(m, notes=(*m.notes, notes[m.run])) if m.run in notes else m for m in members]
        compared = _read(group, [i for i in wanted if indices[i] not in notes], setting)
    return list(members), compared


def _read(group: RolloutGroup, wanted: Sequence[int], setting: Setting) -> Compared:
    """Compare some trajectories of a group; the others are not located."""
    indices = group.rollout_indices or ()
    own = replace(
        group, rollouts=[group.rollouts[i] for i in wanted], rollout_indices=tuple(indices[i] for i in wanted)
    )
    S, read = similarity(own, setting)
    located = np.zeros(len(group), bool)
    anchors: list[Anchor | None] = [None] * len(group)
    for i, there, anchor in zip(wanted, read.located, read.anchors, strict=True):
        located[i], anchors[i] = there, anchor
    reading = Reading(read.Z, located, tuple(anchors))
    return Compared(group, S, reading, choose(group, S, reading, setting))


def _cohort(usable: Sequence[Candidate], traces: dict[int, Trace], compared: Compared | None, k: int) -> Cohort:
    located = {} if compared is None else compared.facts
    return Cohort(
        [one.patch.strip() for one in usable],
        [traces.get(one.run) for one in usable],
        np.zeros((0, 0), np.float32) if compared is None else compared.S,
        np.array([one.run in located for one in usable], bool),
        k,
    )


def _counted(one: Candidate, trace: Trace | None, compared: Compared | None) -> Considered:
    """A candidate with what can be counted of it, before anything is chosen."""
    facts: dict[str, Any] = {}
    counts: Counts | None = None
    tokens = None
    if trace is not None and compared is not None:
        tokens = len(trace)
        try:
            counts = count_steps(trace, compared.group.vocab)
        except RadmoeError:  # its tokens cannot be read: a note says so
            tokens = None
        facts = compared.facts.get(one.run, {})
    patch = one.patch.encode("utf-8", "surrogatepass")  # a stranger's may have half a character
    return Considered(
        run=one.run,
        status=one.status,
        problem=one.problem,
        notes=one.notes,
        same=(),
        score=None,
        overlap=None,
        likelihood=None,
        density=facts.get("density"),
        neighbours=facts.get("neighbours", ()),
        fired=facts.get("fired"),
        tokens=tokens,
        steps=None if counts is None else counts.steps,
        boundaries=None if counts is None else counts.boundaries,
        steps_without_boundary=None if counts is None else counts.without,
        patch_bytes=len(patch),
        patch_lines=sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in one.patch.splitlines() if line),
        patch_sha256=hashlib.sha256(patch).hexdigest(),
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def write_predictions(decisions: Iterable[PatchDecision], out: Path, records: Path | None = None) -> None:
    """Write `preds.json` as SWE-bench reads it, and the record of every decision as JSON lines."""
    decisions = list(decisions)
    preds = {
        one.instance_id: {
            "model_name_or_path": one.model,
            "instance_id": one.instance_id,
            "model_patch": one.patch,
        }
        for one in decisions
    }
    with disk_errors(out):
        write_atomic(out, (json.dumps(preds, indent=2) + "\n").encode())
    if records is not None:
        with disk_errors(records):
            write_atomic(records, "".join(json.dumps(record(one)) + "\n" for one in decisions).encode())


def record(decision: PatchDecision) -> dict[str, Any]:
    """A decision as JSON: `Selection.to_dict` among the trajectories `runs`, and what is known of each candidate.

    The patch itself is in `preds.json`.
    """
    made = dict.fromkeys(SELECTION_KEYS) if decision.selection is None else decision.selection.to_dict()
    head = {name: getattr(decision, name) for name in ("instance_id", "run", "why", "method", "model", "runs", "issue")}
    return head | made | {"candidates": [asdict(one) for one in decision.candidates]}


def _group(pool: Pool, name: str) -> RolloutGroup | None:
    return replace(pool.group(name), kind="agent") if name in pool.kinds else None
