"""The lab's sampled trajectories (`radmoe_lab.agent.sample`) as requests, whose token ids are those that were sampled."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from radmoe.engines.base import Engine
from radmoe.errors import InputError
from radmoe_agent.candidates import Candidate
from radmoe_agent.importer import ReplayRequest, RequestSource, why_not
from radmoe_lab.agent.records import read_trajectories
from radmoe_lab.agent.repositories import TASK, repositories


def lab_source(path: Path, engine: Engine, *, limit: int | None = None) -> RequestSource:
    """Open the trajectories of a file, or those of its first repositories. Verdicts in the file are ignored."""
    header, trajectories = read_trajectories(path)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    names = list(header["repositories"])[:limit]
    last = 1 + max((int(name.rpartition("-")[2]) for name in names), default=0)
    issues = {one.repository_id: one.issue for one in repositories(seed=header["seed"], limit=last)}
    known = {(one.repository_id, one.number): one for one in trajectories if one.repository_id in names}
    tokenizer = engine.tokenizer

    def load(name: str, run: int) -> list[ReplayRequest]:
        requests = known[name, run].requests(
            issues[name],
            lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]),
            lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)),
            engine.context or 1 << 30,
        )
        return [ReplayRequest(prompt, step.tokens.tolist()) for prompt, step in requests]

    candidates, runs = [], dict[str, list[int]]()
    for (name, run), one in known.items():
        problem = why_not(partial(load, name, run), engine) if one.steps else None
        if one.steps and problem is None:
            runs.setdefault(name, []).append(run)
        if problem is None and not one.patch.strip():
            problem = f"its patch is empty (it ended with {one.exit_status})"
        candidates.append(Candidate(name, run, one.exit_status, one.patch, str(header.get("model", "")), problem))
    source = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return RequestSource(candidates, runs, load, {"source": source, "limit": limit}, task=TASK)
