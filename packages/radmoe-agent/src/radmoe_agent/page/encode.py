"""Encodes an issue: the record of its decision, the patches by their trajectories, and each trajectory's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import RadmoeError
from radmoe.explorer import EncodedProblem
from radmoe.explorer.blocks import pack, ragged
from radmoe.selection.overlap import text_similarity
from radmoe.selection.readout import windows
from radmoe.selection.rule import Rule
from radmoe.types import RolloutGroup, Trace
from radmoe.vocab import Vocab
from radmoe_agent.candidates import Candidate

ISSUE, PATCH, ACTION = 20_000, 40_000, 400  # characters kept of an issue, of a patch, and of what a step did
GIVEN = 4_000  # tokens of the first request that stand for an issue nobody wrote down
SHOWN = ("run", "status", "problem", "notes", "score", "overlap", "likelihood", "density", "neighbours", "fired")
COUNTED = ("tokens", "steps", "boundaries", "steps_without_boundary", "patch_lines")

Record = Mapping[str, Any]  # a line of records.jsonl
Resolved = Mapping[int, bool]  # verdicts by run


def encode_issue(
    record: Record,
    candidates: Sequence[Candidate],
    group: RolloutGroup | None,
    *,
    verdicts: Resolved | None = None,
    every_text: bool = True,
) -> EncodedProblem:
    """Encode an issue, whose trajectories with routing are `group`.

    Without `every_text` the texts of steps are those of the pick and of the best trajectory with another patch alone, and what a step
    was given does not stand for an issue nobody wrote down: reading it takes as long as choosing.
    """
    considered = list(record["candidates"])
    groups = _grouped(record, considered, {one.run: one.patch.strip() for one in candidates})
    place = {run: k for k, one in enumerate(groups) for run in one["runs"]}
    traces = {} if group is None else dict(zip(group.rollout_indices or (), group.rollouts, strict=True))
    rival = groups[1]["runs"][0] if len(groups) > 1 else None
    steps = []
    for one in considered:
        shown = every_text or one["run"] in (record["run"], rival)
        steps.append(_steps(traces.get(one["run"]), None if group is None else group.vocab, record["readout"], shown))
    starts, begins = ragged([list(one.starts) for one in steps])
    compared, compared_begins = ragged([one.compared for one in steps])
    issue = record.get("issue") or (_given(traces, group) if every_text else "")
    known = None if verdicts is None else [verdicts.get(one["run"]) for one in considered]
    header = {
        "id": record["instance_id"],
        "kind": "agent",
        "rollouts": len(considered),
        "numbers": [one["run"] for one in considered],
        "views": [],
        "issue": issue[:ISSUE],
        "issue_cut": max(0, len(issue) - ISSUE),
        "written": bool(record.get("issue")),
        "pick": None if record["run"] is None else [one["run"] for one in considered].index(record["run"]),
        "why": record["why"],
        "method": record["method"],
        "model": record["model"],
        "readout": record["readout"],
        "candidates": [
            {name: one[name] for name in (*SHOWN, *COUNTED)} | {"patch": place.get(one["run"])} for one in considered
        ],
        "resolved": known,
        "patches": [{**one, "text": one["text"][:PATCH], "cut": max(0, len(one["text"]) - PATCH)} for one in groups],
        "acts": [one.texts for one in steps],
    }
    arrays: dict[str, NDArray[Any]] = {
        "lengths": np.array([one.length for one in steps], np.uint32),
        "step_begin": begins,
        "step_start": starts,
        "compared_begin": compared_begins,
        "compared": compared,
        "alike": np.rint(255 * text_similarity([one["text"] for one in groups])).astype(np.uint8),
    }
    return EncodedProblem(_entry(record, considered, groups, known), pack(header, arrays))


def _grouped(record: Record, considered: Sequence[Record], texts: Mapping[int, str]) -> list[dict[str, Any]]:
    """The different patches: the picked one first, others that can be submitted by the best score of their runs, then the rest."""
    known = {one["run"]: one for one in considered}
    runs: dict[tuple[str, bool], list[int]] = {}
    for run, one in known.items():
        if texts.get(run):
            runs.setdefault((texts[run], one["problem"] is None), []).append(run)

    def order(key: tuple[str, bool]) -> tuple[bool, bool, float, int]:
        own = runs[key]
        scores = [known[run]["score"] for run in own if known[run]["score"] is not None]
        return record["run"] not in own, not key[1], -max(scores, default=-np.inf), own[0]

    return [
        {"text": key[0], "runs": runs[key], "problem": known[runs[key][0]]["problem"]}
        for key in sorted(runs, key=order)
    ]


class _Steps:
    """One trajectory: where its steps start, the first tokens of the windows that were compared, and what each step did."""

    length: int = 0
    starts: Sequence[int] = ()
    compared: list[int]
    texts: list[str] | None = None

    def __init__(self) -> None:
        self.compared = []


def _steps(trace: Trace | None, vocab: Vocab | None, readout: str | None, shown: bool) -> _Steps:
    made = _Steps()
    if trace is None or vocab is None:
        return made
    try:
        tokens = trace.token_ids
        starts = [int(start) for start in trace.starts] or [0]
        spans = windows(readout or Rule().settle("agent").readout, tokens, vocab, "agent", trace.starts)
    except RadmoeError:  # it cannot be read: the record says so
        return made
    made.length, made.starts, made.compared = len(tokens), starts, [start for start, _ in spans]
    if shown:
        made.texts = _texts(tokens, starts, made.compared, vocab)
    return made


def _texts(tokens: NDArray[np.int32], starts: list[int], compared: list[int], vocab: Vocab) -> list[str]:
    """What each step did: the text from its last compared token on, or from its start where it has none."""
    ends = [*starts[1:], len(tokens)]
    texts = []
    for start, stop in zip(starts, ends, strict=True):
        own = [at for at in compared if start <= at < stop]
        first = own[-1] if own else start
        text = vocab.decode_bytes(tokens[first : min(stop, first + ACTION)]).decode("utf-8", "surrogateescape")
        texts.append(text[:ACTION] + ("…" if len(text) > ACTION or stop > first + ACTION else ""))
    return texts


def _given(traces: Mapping[int, Trace], group: RolloutGroup | None) -> str:
    """What the first step was given, which has the issue in it."""
    for trace in traces.values():
        if group is not None and trace.steps:
            return group.vocab.decode_bytes(trace.steps[0].given[:GIVEN]).decode("utf-8", "surrogateescape")
    return ""


def _entry(
    record: Record, considered: Sequence[Record], groups: Sequence[Record], known: Sequence[bool | None] | None
) -> dict[str, Any]:
    """The issue in the index: how many trajectories there are, how many patches can be submitted, and the pick."""
    pick = next((one for one in considered if one["run"] == record["run"]), None)
    judged = [] if known is None else [one for one in known if one is not None]
    right = {one["run"]: verdict for one, verdict in zip(considered, known or (), strict=False)}
    return {
        "id": record["instance_id"],
        "kind": "agent",
        "rollouts": len(considered),
        "picks": {},
        "usable": sum(one["problem"] is None for one in considered),
        "patches": sum(one["problem"] is None for one in groups),
        "pick": record["run"],
        "same": 0 if pick is None else len(pick["same"]),
        "steps": None if pick is None else pick["steps"],
        "lines": None if pick is None else pick["patch_lines"],
        "resolved": None if pick is None else right.get(pick["run"]),
        "judged": len(judged),
        "right": sum(judged),
        "left": [one["problem"].partition(" (")[0] for one in considered if one["problem"] is not None],
    }
