"""Pools as one page: every problem encoded, with what the evaluation says of it where there are labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import InputError
from radmoe.explorer import EncodedProblem, Verdicts, encode_index, encode_problem, page, usual_settings
from radmoe.explorer.views import check_shown
from radmoe.grading.labels import Label, read_labels
from radmoe.pool import Pool, files, open_pool
from radmoe.pool.schema import LABELS, disk_errors
from radmoe.selection.kinds import settle_kinds
from radmoe.selection.readout import Readout
from radmoe.selection.rule import Rule, Setting
from radmoe.types import Kind

if TYPE_CHECKING:
    from radmoe.evaluation import GradedPool, Report
    from radmoe.evaluation.table import Cell, Table

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PageOptions:
    """What a page shows: which readouts (the usual ones of each kind by default), and whether long texts stay whole."""

    kind: str | None = None
    readouts: tuple[str, ...] = ()
    rule: Rule = field(default_factory=Rule)
    full_text: bool = False
    limit: int | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit must be at least 1, got {self.limit}")
        for readout in self.readouts:
            check_shown(readout)


def write_report(
    pools: Sequence[Path], out: Path, options: PageOptions | None = None, *, progress: Progress = lambda done, of: None
) -> list[str]:
    """Write the page of some pools to a file, which appears whole or not at all, and return its notes.

    A pool without labels, or without what evaluating it needs, is shown all the same: a note says what is missing.
    `progress` is told how much is done, and how much there is: every rollout is evaluated and encoded.
    """
    options = options or PageOptions()
    sources = [_Source.open(path, options) for path in pools]
    total = sum(one.rollouts for one in sources)
    if not total:
        raise InputError(f"{', '.join(map(str, pools))}: no problem to show: capture some rollouts first")
    notes = [f"{one.name}: {note}" for one in sources for note in one.notes]
    evaluated, report, reason = _evaluated(sources, options, lambda done: progress(min(done, total), 2 * total))
    if reason:
        notes.append(reason)
    if report is not None and options.limit is not None:
        notes.append("the tables and the verdict are of all problems of the pools, not of these alone")
    entries: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    done = total
    for place, one in enumerate(sources):
        for encoded in one.encode(evaluated.get(place, ()), options):
            entries.append(encoded.entry | {"pool": place})
            blocks.append(encoded.block)
            done += encoded.entry["rollouts"]
            progress(done, 2 * total)
    index = encode_index(
        entries,
        pools=[one.facts() for one in sources],
        methods=_methods(evaluated),
        tables=[] if report is None else [table_block(table) for table in report.tables],
        verdict="" if report is None else report.verdict,
        notes=notes,
    )
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(out, lambda f: f.writelines(piece.encode() for piece in page(index, blocks)))
    return notes


@dataclass(frozen=True, eq=False)
class _Source:
    """A pool with what the page needs to know of it before a problem is read."""

    pool: Pool
    name: str
    problems: list[str]
    kinds: dict[str, Kind | None]
    labels: dict[str, dict[int, Label]] | None
    notes: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, options: PageOptions) -> _Source:
        """Open a pool, tell the kinds of its problems and note what it lacks."""
        pool = open_pool(path)
        problems = pool.problems[: options.limit]
        name = " ".join(filter(None, (pool.model, pool.style, pool.task))) or path.resolve().name
        notes: list[str] = []
        kinds: dict[str, Kind | None] = dict(pool.kinds)
        if problems:
            readout = options.readouts[0] if options.readouts else None
            try:
                settled = settle_kinds(pool, options.kind, where=str(path), readout=readout, problems=problems)
                kinds = dict(settled.kinds)
                notes += [settled.note] if settled.note else []
            except InputError as error:
                if options.kind is not None:
                    raise
                notes.append(f"nothing is selected: {error}")
        labels = None
        if files.exists(pool.path / LABELS):
            labels = read_labels(pool.path)
        else:
            agents = set(kinds.values()) == {"agent"}
            what, writes = ("trajectories", "radmoe agent evaluate") if agents else ("rollouts", "radmoe grade")
            notes.append(f"no labels, so nothing says which {what} are right ({writes} writes them)")
        if problems and not pool.has_logprobs:
            notes.append("no log-probabilities were kept, so texts are not coloured and there is no likelihood")
        if problems and not pool.has_weights:
            notes.append("the routing has expert ids only: every chosen expert counts alike")
        if pool.profile.readouts is not None:
            notes.append(f"the routing was kept at {', '.join(pool.profile.readouts)} alone")
            if regexes := [name for name in pool.profile.readouts if Readout.parse(name).is_regex]:
                notes.append(
                    f"{', '.join(regexes)} is the pool's regular expression: --readout with it searches for it"
                )
        return cls(pool, name, problems, kinds, labels, tuple(notes))

    def settings(self, kind: Kind | None, options: PageOptions) -> tuple[Setting, ...]:
        """The readouts that problems of a kind are shown under."""
        if options.readouts:
            return tuple(options.rule.but(readout=readout).settle(kind) for readout in options.readouts)
        stored = self.pool.profile.readouts
        usual = usual_settings(kind, stored and [name for name in stored if not Readout.parse(name).is_regex])
        return tuple(options.rule.but(readout=s.readout).settle(kind) for s in usual)

    @property
    def rollouts(self) -> int:
        """How many rollouts the shown problems have."""
        return sum(len(self.pool.rollout_indices(problem)) for problem in self.problems)

    def encode(self, evaluated: Sequence[GradedPool], options: PageOptions) -> Iterator[EncodedProblem]:
        """Every problem in its order, with what was `evaluated` of it."""
        rows = {problem: (one, i) for one in evaluated for i, problem in enumerate(one.problem_ids)}
        prompts, finishes = self._runs()
        for problem in self.problems:
            group = replace(self.pool.group(problem), kind=self.kinds[problem])
            picks, hits = _outcomes(*rows[problem]) if problem in rows else ({}, {})
            indices = self.pool.rollout_indices(problem)
            encoded = encode_problem(
                group,
                settings=self.settings(group.kind, options),
                verdicts=self._verdicts(problem, indices),
                picks=picks,
                hits=hits,
                prompt=prompts.get(problem),
                finish=[finishes.get((problem, index)) for index in indices],
                full_text=options.full_text,
            )
            yield encoded._replace(entry=encoded.entry | {"hits": hits})

    def _verdicts(self, problem: str, indices: Sequence[int]) -> Verdicts | None:
        if self.labels is None or problem not in self.labels:
            return None
        own = [self.labels[problem].get(index) for index in indices]
        marks = [(None, None) if label is None else (label.answer, label.correct) for label in own]
        return Verdicts(tuple(answer for answer, _ in marks), tuple(correct for _, correct in marks))

    def _runs(self) -> tuple[dict[str, str], dict[tuple[str, int], str]]:
        """The prompt of each problem, and why each rollout ended, where the pool says so."""
        table = self.pool.runs(["problem_id", "rollout_index", "finish_reason", "prompt"])
        names, prompts = table["problem_id"].to_pylist(), table["prompt"]
        keys = zip(names, table["rollout_index"].to_pylist(), strict=True)
        finishes = dict(zip(keys, table["finish_reason"].to_pylist(), strict=True))
        first = {name: i for i, name in reversed(list(enumerate(names)))}
        texts = {name: prompts[i].as_py() for name, i in first.items()}
        return {name: text for name, text in texts.items() if text is not None}, finishes

    def facts(self) -> dict[str, Any]:
        """The pool as the page describes it."""
        pool, kinds = self.pool, [kind or "not recorded" for kind in map(self.kinds.get, self.problems)]
        agents = set(kinds) == {"agent"}
        rows = {
            "model": " ".join(filter(None, (pool.model, pool.style))),
            "task": pool.task or "not recorded",
            "kind": ", ".join(f"{kind} ({kinds.count(kind):,})" for kind in dict.fromkeys(kinds)),
            "router": f"{pool.router.layers} layers, {pool.router.experts} experts, {pool.router.top_k} per token",
            "issues" if agents else "problems": f"{len(self.problems):,}"
            + (f" of {len(pool.problems):,}" if len(self.problems) < len(pool.problems) else ""),
            "trajectories" if agents else "rollouts": f"{len(pool):,}",
            "tokens": f"{pool.tokens:,}",
            "sampling": ", ".join(f"{key} {value}" for key, value in pool.sampling.items()) or "not recorded",
            "directory": pool.path.resolve().name,
        }
        return {"name": self.name, "facts": list(rows.items()), "notes": list(self.notes)}


def _evaluated(
    sources: Sequence[_Source], options: PageOptions, progress: Callable[[int], None]
) -> tuple[dict[int, tuple[GradedPool, ...]], Report | None, str]:
    """Evaluate the pools that have labels. Returns the graded pools by their place among `sources`, the report on them, and the
    reason why there is no report (empty where there is one).

    `progress` is called with the number of rollouts evaluated so far.
    """
    with_labels = {place: one for place, one in enumerate(sources) if one.labels}
    if not with_labels:
        return {}, None, ""
    try:
        from radmoe.evaluation import build_report, evaluate_pool
        from radmoe.evaluation.pools import check_distinct
    except ModuleNotFoundError as error:
        return {}, None, f"no tables: they need {error.name} (pip install 'radmoe[eval]')"
    check_distinct([one.pool.path for one in with_labels.values()])
    readout = options.readouts[0] if options.readouts else None
    evaluated: dict[int, tuple[GradedPool, ...]] = {}
    reasons: list[str] = []
    for place, one in with_labels.items():
        before = sum(earlier.rollouts for earlier in sources[:place])
        try:
            evaluated[place] = evaluate_pool(
                one.pool.path,
                kind=options.kind,
                rule=options.rule.but(readout=readout),
                jobs=options.jobs,
                progress=lambda done, _, before=before: progress(before + done),  # type: ignore[misc]
            )
        except InputError as error:
            reasons.append(f"{one.name} is not evaluated: {error}")
    report = build_report([one for pool in evaluated.values() for one in pool]) if evaluated else None
    return evaluated, report, "; ".join(reasons)


def _outcomes(graded: GradedPool, i: int) -> tuple[dict[str, int | None], dict[str, float]]:
    """What each method picked on the i-th problem, and how right that is. A vote is left out where it counts nothing."""
    from radmoe.evaluation.methods import METHODS
    from radmoe.evaluation.scores import NEAR_UNIQUE_KINDS

    near_unique = graded.kind in NEAR_UNIQUE_KINDS
    names = [name for name in graded.outcomes.hits if not (near_unique and METHODS[name].vote)]
    picks = {
        name: None if graded.outcomes.picks[name][i] < 0 else int(graded.outcomes.picks[name][i])
        for name in names
        if name in graded.outcomes.picks
    }
    return picks, {name: round(float(graded.outcomes.hits[name][i]), 4) for name in names}


def _methods(evaluated: dict[int, tuple[GradedPool, ...]]) -> list[dict[str, Any]]:
    """The methods that were measured on some problem, in the registry's order."""
    if not evaluated:
        return []
    from radmoe.evaluation.kinds import NAMES
    from radmoe.evaluation.methods import METHODS

    names = {name for pool in evaluated.values() for one in pool for name in one.outcomes.hits}
    return [
        {"name": name, "label": NAMES.get(name, method.label), "reads": list(method.reads)}
        for name, method in METHODS.items()
        if name in names
    ]


def table_block(table: Table) -> dict[str, Any]:
    """A table for the index of a page, with every cell as text, and the number to sort it by."""
    return {
        "key": table.key,
        "title": table.title,
        "columns": [
            {"title": column.title if column.n is None else f"{column.title} (n={column.n:,})", "text": column.text}
            for column in table.columns
        ],
        "section": table.sections if table.sectioned else "",
        "rows": [{"section": row.section, "cells": [_cell(cell) for cell in row.cells]} for row in table.rows],
        "notes": list(table.notes),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    from radmoe.evaluation.render import beside_text, interval_text, value_text

    body: dict[str, Any] = {"text": value_text(cell) + cell.stars}
    if isinstance(cell.value, int | float):
        body["sort"] = float(cell.value)
    for name, value in (
        ("beside", beside_text(cell)),
        ("interval", interval_text(cell)),
        ("note", cell.note),
        ("best", cell.best),
    ):
        if value:
            body[name] = value
    return body
