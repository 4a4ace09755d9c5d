"""`radmoe agent evaluate`: study 28 on an agent's own trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json
from radmoe.errors import InputError
from radmoe.system.printing import say
from radmoe_agent.commands.agent import Directory

EXAMPLES = ("radmoe agent evaluate runs/ --labels verdicts.jsonl",)


def evaluate_command(
    directory: Directory,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help='JSON lines {"instance_id": .., "run": .., "resolved": ..}.', show_default=False),
    ] = None,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            "--report", help="SWE-bench's report of a run; repeat it, in the order of the runs.", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write tables and figures into this directory.")] = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Bootstrap resamples of every interval.")] = 5_000,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")] = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Processes.", show_default="all cores")] = None,
    as_json: Json = False,
) -> None:
    """Compare selectors on trajectories that have verdicts.

    Verdicts are SWE-bench's reports or a file of labels. They are read here and by nothing that selects. Without any, those of an earlier call are used.
    The page of radmoe agent select gets them, and the tables.
    """
    from radmoe.grading.labels import read_labels
    from radmoe.report.explorer import table_block
    from radmoe_agent.candidates import POOL, read_candidates
    from radmoe_agent.page import PAGE, write_page
    from radmoe_agent.page.write import read_records
    from radmoe_agent.patches import RECORDS
    from radmoe_studies.commands.study import run_and_show
    from radmoe_studies.verdicts import label_patches, read_reports, read_verdicts

    if labels is not None and reports:
        raise InputError("give --labels or --report, not both")
    if labels is not None or reports:
        candidates = read_candidates(directory)
        verdicts = read_verdicts(labels) if labels is not None else read_reports(list(reports or ()))
        patches = {(name, one.run): one.patch for name, members in candidates.items() for one in members}
        graded = label_patches(directory / POOL, patches, verdicts)
        say(str(graded), err=True)
    rans = run_and_show(
        "agent", [directory / POOL], resamples=resamples, seed=seed, jobs=jobs, out=out, as_json=as_json
    )
    if (directory / RECORDS).is_file():
        known = {
            (name, run): label.correct
            for name, runs in read_labels(directory / POOL).items()
            for run, label in runs.items()
        }
        tables = [table_block(table) for ran in rans if ran.findings for table in ran.findings.tables]
        write_page(directory, read_records(directory / RECORDS), directory / PAGE, verdicts=known, tables=tables)
        say(f"{directory / PAGE} has the verdicts and the tables now", err=True)
    if any(ran.failed or ran.lacking for ran in rans):
        raise typer.Exit(1)
