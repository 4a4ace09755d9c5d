"""`radmoe replicate`: one of the paper's cells on the user's own hardware."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import Json, names, option, size, takes, takes_engine, write_file
from radmoe.engines import engine_names
from radmoe.errors import InputError
from radmoe.system.printing import console, json_text, say, say_block, say_json

if TYPE_CHECKING:
    from radmoe_studies.replicate.configs import PaperConfiguration

HEADING = "Research"
EXAMPLES = (
    "radmoe replicate --list",
    "radmoe replicate lab-qwen-thinking --task math-2 -n 8 --limit 12 --out rehearsal --yes",
    "radmoe replicate qwen3-30b-a3b-thinking --task aime_2025,gpqa,livecodebench --engine vllm-http --url http://localhost:8000",
    "radmoe replicate gpt-oss-20b-low --task aime_2025 --data FILE --engine vllm --out mine --yes",
    "radmoe replicate --merge mine/replication.json theirs/replication.json --out pooled.json",
)
RESULT = "replication.json"

_SAMPLED: dict[str, Any] = {  # the arguments of `replicated`
    "task": option(
        str, "--task", "Data sets, with commas; a beginning suffices, as in gpqa.", "all of the configuration"
    ),
    "data": option(
        Path, "--data", "A directory with TASK.jsonl for some tasks, or the file of a single one.", "from the hub"
    ),
    "engine": option(
        str, "--engine", f"{', '.join(engine_names())}, or the dotted path of an engine of your own.", "transformers"
    ),
    "model": option(str, "--model", "The model's directory, or its name in the Hugging Face cache.", "the paper's"),
    "n": option(int, "-n", "Rollouts per problem.", "the paper's 64"),
    "limit": option(int, "--limit", "Only the first problems of each task."),
    "seed": option(int, "--seed", "Of the sampling; people who pool their results need different ones.", "drawn once"),
    "batch_size": option(int, "--batch-size", "Rollouts sampled together; costs memory.", "256"),
    "full": option(bool, "--full", "Keep the routing of every token, not the windows alone."),
    "choose": option(
        bool, "--choose-by-model", "Also let the model choose among its own answers, and count the tokens."
    ),
}


@takes_engine()
@takes("sampled", dict, _SAMPLED)
def command(
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG", help="A configuration of --list; with --merge, files.", show_default=False),
    ] = None,
    sampled: Any = None,
    options: Any = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where everything goes, new or to go on with; with --merge, a file.",
            show_default="replication-CONFIG; pooled.json",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Go on after the estimate without being asked.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the paper's configurations, and exit.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Pool the replication.json of several people.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce one of the paper's cells on your own hardware.

    A short run of about two minutes says what it will take. Then rollouts are captured as the paper sampled them, with the
    routing of the windows that are read; every method selects; answers are graded; and the paper's printed rows stand
    beside yours, with intervals, paired tests and verdicts by rules that were written before. The same command goes on
    after an interrupt. It leaves replication.json, which holds no text and no routing: send it to others, and --merge
    pools theirs with yours (packages/radmoe-studies/docs/replicate.md).
    """
    if listed + merge > 1 or (listed and given):
        raise InputError("--list stands alone: give a configuration, or --merge and files, in another call")
    if listed:
        _list(as_json)
    elif merge:
        if sampled or yes:
            raise InputError("--merge pools what was sampled before: leave out what says how to sample")
        _merged([Path(name) for name in given or ()], out or Path("pooled.json"), as_json)
    else:
        from radmoe_studies.replicate.configs import CONFIGS, config_named

        if given is None or len(given) != 1:
            raise InputError(f"radmoe replicate needs one configuration, got {len(given or ())}: {', '.join(CONFIGS)}")
        config = config_named(given[0])
        _replicated(config, out or Path(f"replication-{config.name}"), options, yes, as_json, **sampled)


def _list(as_json: bool) -> None:
    from radmoe_studies.replicate.configs import CONFIGS, TASKS

    if as_json:
        rows = [asdict(one) | {"router": str(one.router) if one.router else None} for one in CONFIGS.values()]
        say_json([row | {"tasks": list(row["tasks"])} for row in rows])
        return
    for one in CONFIGS.values():
        router = "a rehearsal" if one.rehearses else f"router {one.router}"
        say(f"{one.name:27}  {one.model:37}  {one.style or '':8}  {router}")
    say(f"Tasks: {', '.join(TASKS)}; of the rehearsal {', '.join(CONFIGS['lab-qwen-thinking'].tasks)}.")


def _merged(files: list[Path], out: Path, as_json: bool) -> None:
    """Pool documents and show what they say together."""
    from radmoe_studies.replicate.document import merge, read_document

    places = [file.resolve() for file in (*files, out)]
    if len(set(places)) < len(places):
        raise InputError("--merge has a file twice, or writes to one that it reads: give each once, and another --out")
    _finish(merge({str(file): read_document(file) for file in files}), out, as_json)


def _replicated(
    config: PaperConfiguration,
    out: Path,
    options: Any,
    yes: bool,
    as_json: bool,
    *,
    task: str | None = None,
    data: Path | None = None,
    engine: str = "transformers",
    model: str | None = None,
    n: int | None = None,
    limit: int | None = None,
    seed: int | None = None,
    batch_size: int = 256,
    full: bool = False,
    choose: bool = False,
) -> None:
    """Estimate, capture, grade, measure and compare."""
    from radmoe.cli.evaluate import cores
    from radmoe_studies.replicate import cell
    from radmoe_studies.replicate.document import document
    from radmoe_studies.replicate.run import Run
    from radmoe_studies.replicate.setup import Setup

    words = list(dict.fromkeys(map(config.task, names(task) or config.tasks)))
    if data is not None and not data.is_dir() and len(words) > 1:
        raise InputError(f"--data {data} is no directory, and {len(words)} tasks need one with a TASK.jsonl each")
    config = replace(config, n=config.n if n is None else n)
    if config.n < 2:
        raise InputError(f"-n must be at least 2, so that there is a choice, got {n}")
    run = Run.open(out, config, seed)
    tasks = [cell.ReplicatedTask.load(config, name, data, limit, out) for name in words]
    for one in tasks:
        one.refuse_more(config.n)
    setup = Setup.of(config, engine, model, options, run.seed, batch_size, full=full)
    try:
        estimate = run.estimate(setup, [question for one in tasks for question in one.questions], config.n)
        stored, whole = (estimate.texts + routing for routing in (estimate.windows, estimate.routing))
        disk = f"{size(whole)} on disk" if full else f"{size(stored)} on disk (with --full {size(whole)})"
        say(f"{config.name}, {', '.join(words)}: {estimate}; at most {disk}", err=True)
        if not (yes or _agreed()):
            if as_json:
                say_json({"seed": run.seed, "hours": estimate.hours, **asdict(estimate)})
            return
        for one in tasks:
            cell.capture(one, setup, config.n)
        chosen = {one.name: cell.choose(one, setup) for one in tasks} if choose else {}
        made = setup.made(estimate.speed)
    finally:
        setup.engine.close()
    jobs = cores(None)
    for one in tasks:
        cell.grade(one, jobs)
    cells = [cell.measured(one, config, chosen.get(one.name), jobs) for one in tasks]
    _finish(document(config, [{"seed": run.seed, "made": made, "cells": cells}]), out / RESULT, as_json)


def _agreed() -> bool:
    """Ask whether to go on, where somebody can answer."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm("Go on?", err=True)
    say("To go on, run the same command with --yes.", err=True)
    return False


def _finish(body: dict[str, Any], out: Path, as_json: bool) -> None:
    """Compute the results of a document, write it, and show them."""
    from radmoe.evaluation.render import visible_table
    from radmoe.evaluation.screen import NAME, show_table
    from radmoe_studies.base import Options
    from radmoe_studies.replicate.results import results
    from radmoe_studies.report.studies import estimate_text, verdict_counts, verdict_text

    found = results(body, Options())
    body["results"] = found.to_json()
    write_file(out, json_text(body, indent=1) + "\n")
    if as_json:
        say_block(json_text(body))
        return
    screen = console()
    for table in found.tables:
        screen.print()
        show_table(visible_table(table, NAME), screen)
    screen.print()
    for decision in found.decisions:
        verdict = verdict_text(decision).replace(decision.verdict, decision.verdict.upper(), 1)
        say(f"{verdict}: {decision.claim.sentence} {estimate_text(decision)}; the paper: {decision.claim.paper}.")
    say(verdict_counts(found.decisions))
    for note in found.notes:
        say(note)
    say(f"Written to {out}: send it to whoever pools replications, or pool it: radmoe replicate --merge {out} FILE...")
