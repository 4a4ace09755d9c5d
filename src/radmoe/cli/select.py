"""`radmoe select` picks which rollout of each problem to return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import (
    Json,
    KindName,
    PoolPath,
    limited,
    progress,
    settled_kinds,
    sizes_of,
    takes_rule,
    write_file,
)
from radmoe.cli.sureness import Judged, find_sureness
from radmoe.errors import InputError
from radmoe.system.printing import bar, console, json_text, say, say_block

if TYPE_CHECKING:
    from radmoe.pool import Pool
    from radmoe.selection.rule import Rule
    from radmoe.types import Kind, RolloutGroup, Selection

EXAMPLES = (
    "radmoe select pool/",
    "radmoe select pool/ --preset best",
    "radmoe select mine/ --kind code --readout delimiter@marker",
    "radmoe select pool/ --fusion conf50 --json",
    "radmoe select texts.jsonl --model ./model --kind code",
    "radmoe select runs/pool/ --kind agent",
    "radmoe select pool/ --calibration sure.json --abstain-below 0.7",
    "radmoe select pool/ --noise 0.004",
)


@takes_rule()
def command(
    pool: PoolPath,
    rule: Any,
    kind: KindName = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Where POOL is a JSONL file of texts: the checkpoint to replay them through."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", help="How sure each pick is: a file of radmoe calibrate.", show_default="the shipped one"
        ),
    ] = None,
    abstain_below: Annotated[
        float | None, typer.Option("--abstain-below", help="No pick where it is right with less than this probability.")
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise", help="Mark picks that are ahead by less than this numeric noise, which radmoe doctor measures."
        ),
    ] = None,
    problem: Annotated[list[str] | None, typer.Option("--problem", help="Only this problem; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Threads; changes no result.")] = 1,
    text: Annotated[bool, typer.Option("--text", help="Also print the chosen rollout's text.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON lines to this file instead.")] = None,
) -> None:
    """Pick one rollout per problem by routing agreement.

    Texts are compared only under --preset best+text or with --compare. A JSONL file of finished texts, as radmoe replay
    takes it, is selected from in one step with --model.

    Under --json (or --out) each line is a selection (docs/readouts.md lists its keys: index is the pick's place among the
    problem's rollouts, null if RAD abstained), with problem_id, and dense where a calibration says so. A line is printed as
    soon as its pick is made.
    """
    from radmoe.selection.selector import select_many
    from radmoe.types import check_noise

    check_noise(noise)
    with _opened(pool, model, kind) as opened:
        problems = limited(limit, list(problem) if problem else opened.problems)
        for name in problems:
            opened.check_problem(name)
        kinds = settled_kinds(opened, kind, rule.readout, problems)
        sureness = find_sureness(opened, calibration, abstain_below, rule)
        rule = sureness.rule

        def groups() -> Iterator[RolloutGroup]:
            return (replace(opened.group(name), kind=own) for name, own in kinds.items())

        selections = progress(select_many(groups(), threads=jobs, rule=rule), sizes_of(opened, kinds), "selecting")
        made: list[Selection] = []

        def judged() -> Iterator[Judged]:
            for selection, group in zip(selections, groups(), strict=True):
                made.append(selection)
                yield sureness.judge(selection.with_noise(noise), group)

        if as_json or out is not None:
            picks = _write_json(problems, judged(), out)
        else:
            picks = sureness.column(list(judged()))
            _print(problems, picks, kinds, rule, sureness.heading)
            for note in sureness.notes([one.selection for one in picks]):
                say(note)
            if any(one.selection.within_noise for one in picks):
                say(
                    f"~: within numeric noise: another rollout's density is less than {noise:g} away, so a second pass may pick it. "
                    f"It is of the same basin unless the margin is below {noise:g} too."
                )
        if text:
            _print_texts(opened, [(problem, one.selection) for problem, one in zip(problems, picks, strict=True)])
        _refuse_nothing(pool, made)


@contextmanager
def _opened(path: Path, model: str | None, kind: str | None) -> Iterator[Pool]:
    """The pool; or, where the path is a file of rollouts, a pool of their replay, which goes away afterwards."""
    from radmoe.pool import open_pool
    from radmoe.types import check_kind

    if not path.is_file():
        if model is not None:
            there = "is a directory" if path.is_dir() else "is not there"
            raise InputError(f"--model replays a JSONL file, and {path} {there}: leave it out to select from a pool")
        yield open_pool(path)
        return
    if model is None:
        raise InputError(
            f"{path} is a file of rollouts, which have no routing yet: give --model CHECKPOINT to replay them"
        )
    from radmoe.engines.replay import replay

    with TemporaryDirectory(prefix="radmoe-select-") as scratch:
        with bar("replaying") as update:
            replay(
                path, model, Path(scratch) / "pool", kind=None if kind is None else check_kind(kind), progress=update
            )
        yield open_pool(Path(scratch) / "pool")


def _write_json(problems: list[str], judged: Iterator[Judged], out: Path | None) -> list[Judged]:
    """Print a line per pick as it is made, or write all of them to a file."""
    picks, lines = [], []
    for problem, one in zip(problems, judged, strict=True):
        picks.append(one)
        lines.append(json_text({"problem_id": problem} | one.selection.to_dict() | {"dense": one.selection.dense}))
        if out is None:
            say(lines.pop())
    if out is not None:
        write_file(out, "".join(line + "\n" for line in lines))
    return picks


def _print(problems: list[str], judged: list[Judged], kinds: dict[str, Kind], rule: Rule, heading: str) -> None:
    from radmoe.system.screen import ScreenTable

    sizes = {
        kinds[problem]: len(one.selection.located)
        for problem, one in reversed(list(zip(problems, judged, strict=True)))
    }
    settings = [rule.settle(kind, sizes[kind]) for kind in dict.fromkeys(kinds.values())]  # of its first problem
    table = ScreenTable(title="; ".join(map(str, settings)), box=None)
    table.add_column("problem")
    for name in ("rollouts", "located", "pick", "density", "basin size", "margin", heading):
        table.add_column(name, justify="right")
    for problem, one in zip(problems, judged, strict=True):
        s = one.selection
        counts = (str(len(s.located)), str(int(s.located.sum())))
        if s.index is None:
            table.add_row(problem, *counts, "abstains", "", "", "", str(one), style="yellow")
            continue
        margin = "-" if isnan(s.margin) else f"{s.margin:.3f}"
        pick = f"{'~' if s.within_noise else ''}{s.index}"
        table.add_row(problem, *counts, pick, f"{s.density[s.index]:.3f}", str(len(s.basin)), margin, str(one))
    console().print(table)


def _print_texts(pool: Pool, picks: list[tuple[str, Selection]]) -> None:
    """Print the texts of the picks. Text is read only here, after every pick was made."""
    for problem, selection in picks:
        if selection.index is not None:
            text = pool.texts(problem)[selection.index]
            say("")
            say(f"--- {problem}, rollout {selection.index}")
            say_block(text)


def _refuse_nothing(path: Path, picks: list[Selection]) -> None:
    """Raise AnchorNotFound if no problem has a pick: most likely the kind or the readout is wrong for this pool."""
    from radmoe.errors import AnchorNotFound

    if any(s.index is not None for s in picks):
        return
    if not picks:
        raise AnchorNotFound(f"{path} holds no rollouts: nothing to select from")
    first, largest = picks[0], max(len(s.located) for s in picks)
    if largest < 2:
        reason = "no problem has more than one rollout, and a density needs two: sample more with -n"
    elif not any(s.located.any() for s in picks):
        reason = (
            f"no rollout has the anchor of {first.readout} for kind {first.kind}: radmoe inspect shows the anchors there "
            "are, --readout takes another"
        )
    else:
        reason = (
            f"no problem has two rollouts with the anchor of {first.readout} for kind {first.kind}, which a density needs: "
            "sample more, or take another --readout (radmoe inspect shows the anchors there are)"
        )
    raise AnchorNotFound(f"{path}: {reason}")
