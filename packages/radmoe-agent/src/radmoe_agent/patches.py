"""The patch to submit for every instance: the candidate whose routing at its boundaries is most agreed with.

A candidate without a patch cannot be submitted, so it neither wins nor counts as a neighbour. Nothing else of a patch is
read, and no verdict is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import EngineError, InputError
from radmoe.pool import Pool, open_pool
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.selection.kernels import knn
from radmoe.selection.readout import Reading
from radmoe.selection.rule import Rule, Setting
from radmoe.selection.selector import choose, similarity
from radmoe.selection.steps import count_steps
from radmoe.types import SELECTION_KEYS, RolloutGroup, Selection, Trace
from radmoe_agent.candidates import POOL, Candidate, read_candidates
from radmoe_agent.instances import Instance

PREDS, RECORDS = "preds.json", "records.jsonl"


@dataclass(frozen=True)
class Considered:
    """One candidate as the decision saw it.

    `density` is the mean similarity to its k nearest, `neighbours` are their runs, and `fired` is the number of
    (layer, expert) pairs of its fingerprint; None and empty where it was not compared. Steps and boundaries are counted
    apart.
    """

    run: int
    status: str
    problem: str | None
    notes: tuple[str, ...]
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

    `selection` is the choice among the candidates `runs`, in their order; None if none of them has routing.
    """

    instance_id: str
    run: int | None
    patch: str
    why: str
    model: str
    setting: Setting
    selection: Selection | None
    runs: tuple[int, ...]
    candidates: tuple[Considered, ...]


def decide_all(
    directory: str | Path,
    *,
    rule: Rule | None = None,
    limit: int | None = None,
    instances: Sequence[Instance] = (),
    threads: int = 1,
) -> Iterator[PatchDecision]:
    """Decide for every instance of a directory that `run_agents` or `import_trajectories` wrote, in their order.

    By default the readout is every boundary as a set, the kernel is binary and k is 4. `step@union` also reads the first
    row of every step without a boundary. With `instances`, a patch that does not apply to its repository is not
    submitted. No result depends on the number of threads.
    """
    directory = Path(directory)
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    every = read_candidates(directory)
    pool = open_pool(directory / POOL)
    setting = (rule or Rule()).settle("agent")
    repositories = {one.instance_id: one for one in instances}
    if repositories:
        _check_confinement()
    order = [*(name for name in pool.problems if name in every), *sorted(every.keys() - set(pool.problems))]

    def work(job: tuple[str, RolloutGroup | None]) -> PatchDecision:
        name, group = job
        members = every[name]
        if name in repositories:
            members = check_patches(repositories[name], members)
        return decide(name, members, group, setting, pool.model)

    jobs = ((name, _group(pool, name)) for name in order[:limit])
    if threads == 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(threads) as workers:
        while batch := list(islice(jobs, 4 * threads)):
            yield from workers.map(work, batch)


def decide(
    instance_id: str, members: Sequence[Candidate], group: RolloutGroup | None, setting: Setting, model: str
) -> PatchDecision:
    """Decide for one instance, whose trajectories with routing are `group`."""
    traces = {} if group is None else dict(zip(group.rollout_indices or (), group.rollouts, strict=True))
    usable = [one.run for one in members if one.usable]
    runs = [run for run in usable if run in traces]
    facts: dict[int, dict[str, Any]] = {}
    selection = None
    if group is not None and runs:
        own = replace(group, rollouts=[traces[run] for run in runs], rollout_indices=tuple(runs))
        S, reading = similarity(own, setting)
        selection = choose(own, S, reading, setting)
        facts = _facts(S, reading, selection, runs, setting.k)
    pick: int | None = usable[0] if usable else None
    if selection is not None and selection.rollout_index is not None:
        pick = selection.rollout_index
        why = f"the densest of {len(facts)}: mean similarity {facts[pick]['density']:.3f} to its {selection.k} nearest"
        why += "" if np.isnan(selection.margin) else f", {selection.margin:.3f} above every other basin"
    elif pick is None:
        why = "no candidate can be submitted: the patch is empty"
    elif len(usable) == 1:
        why = "the only candidate that can be submitted"
    else:
        why = f"fewer than two of {len(usable)} candidates have {setting.readout}: the first that can be submitted"
    patch = next((one.patch for one in members if one.run == pick), "")
    considered = tuple(_considered(one, traces.get(one.run), group, facts.get(one.run, {})) for one in members)
    return PatchDecision(instance_id, pick, patch, why, model, setting, selection, tuple(runs), considered)


def _facts(
    S: NDArray[np.float32], reading: Reading, selection: Selection, runs: Sequence[int], k: int
) -> dict[int, dict[str, Any]]:
    """The results of the comparison for each located candidate, by its run."""
    density = dict(zip(runs, selection.density.tolist(), strict=True))
    located = [run for run, there in zip(runs, reading.located, strict=True) if there]
    neighbours = knn(S, k).tolist() if len(located) > 1 else [[]] * len(located)
    return {
        run: {
            "density": None if np.isnan(density[run]) else density[run],
            "neighbours": tuple(located[j] for j in near),
            "fired": int(np.count_nonzero(row)),
        }
        for run, near, row in zip(located, neighbours, reading.Z, strict=True)
    }


def _check_confinement() -> None:
    """Refuse a machine that cannot run git confined, with an EngineError: that is the fault of no repository."""
    from radmoe_agent.run import silence

    silence()
    from radmoe_agent.confined import check_confinement

    check_confinement()


def check_patches(instance: Instance, members: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of an instance, of which those whose patch does not apply to the repository cannot be submitted.

    git runs confined, in a copy of the repository that this process neither reads nor writes.
    """
    from radmoe_agent.run import silence

    silence()
    from radmoe_agent.confined import ConfinedEnvironment

    checked = list(members)
    repository = "" if instance.repository is None else str(instance.repository)
    try:
        with ExitStack() as stack:
            place = ConfinedEnvironment(repository=repository, files=dict(instance.files))
            stack.callback(place.cleanup)
            for number, one in enumerate(members):
                if one.usable:
                    done = place.run("git apply --check -", stdin=one.patch.encode("utf-8", "replace"))
                    if done.code != 0 or done.stopped:
                        said = done.stopped or done.output.decode(errors="replace").strip() or "git gives no reason"
                        checked[number] = replace(one, problem=f"its patch does not apply ({said.splitlines()[0]})")
    except EngineError as error:  # somebody else made the repository: what is wrong with it costs no other
        problem = f"its patch cannot be checked ({error})"
        return [replace(one, problem=problem) if one.usable else one for one in members]
    return checked


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
    """A decision as JSON: `Selection.to_dict` among the candidates `runs`, and what is known of each candidate.

    The patch itself is in `preds.json`.
    """
    made = dict.fromkeys(SELECTION_KEYS) if decision.selection is None else decision.selection.to_dict()
    head = {name: getattr(decision, name) for name in ("instance_id", "run", "why", "model", "runs")}
    return head | made | {"candidates": [asdict(one) for one in decision.candidates]}


def _group(pool: Pool, name: str) -> RolloutGroup | None:
    return replace(pool.group(name), kind="agent") if name in pool.kinds else None


def _considered(one: Candidate, trace: Trace | None, group: RolloutGroup | None, facts: dict[str, Any]) -> Considered:
    counts = None if trace is None or group is None else count_steps(trace, group.vocab)
    patch = one.patch.encode("utf-8", "surrogatepass")  # a stranger's may have half a character
    return Considered(
        run=one.run,
        status=one.status,
        problem=one.problem,
        notes=one.notes,
        density=facts.get("density"),
        neighbours=facts.get("neighbours", ()),
        fired=facts.get("fired"),
        tokens=None if trace is None else len(trace),
        steps=None if counts is None else counts.steps,
        boundaries=None if counts is None else counts.boundaries,
        steps_without_boundary=None if counts is None else counts.without,
        patch_bytes=len(patch),
        patch_lines=sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in one.patch.splitlines() if line),
        patch_sha256=hashlib.sha256(patch).hexdigest(),
    )
