"""`radmoe study`: the paper's analyses on your pools, each with a verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from radmoe.cli.common import Json
from radmoe.errors import InputError
from radmoe.system.printing import bar, console, say, say_block

HEADING = "Research"
EXAMPLES = (
    "radmoe study --list",
    "radmoe study readouts pools/lab-qwen-thinking-*",
    "radmoe study kernel,scaling pools/* --out studies/",
    "radmoe study all pools/* --out studies/ --quick",
)


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A study by name or number, several with commas, or all.", show_default=False
        ),
    ] = None,
    pools: Annotated[
        list[Path] | None, typer.Argument(metavar="POOL", help="Graded pool directories.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name every study and what it needs, and exit.")] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print every claim with the rule that decides it, and exit.")
    ] = False,
    cited: Annotated[
        str,
        typer.Option(
            "--cite",
            help="What claims.md cites for the rules, such as a commit of packages/radmoe-studies/docs/rules.md.",
        ),
    ] = "",
    readings: Annotated[
        Path | None,
        typer.Option(
            "--readings",
            help="A TOML file of readings by claim, and of earlier verdicts in a table `before`, which claims.md shows.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write pages, CSV, JSON, figures and claims.md into this directory.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the resamples and sub-cohorts, for a look.")
    ] = False,
    resamples: Annotated[int, typer.Option("--resamples", help="Bootstrap resamples of every interval.")] = 5_000,
    subcohorts: Annotated[int, typer.Option("--subcohorts", help="Sub-cohorts drawn of every problem.")] = 200,
    confidence_window: Annotated[
        int,
        typer.Option(
            "--confidence-window", help="Tokens of a confidence window (the paper: 2048; lab rollouts are short)."
        ),
    ] = 32,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; changes no result.", show_default="all cores")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep what was read in the user's cache for the next call.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Run the paper's analyses on graded pools.

    They give tables, figures, and for every claim a verdict by a rule written before. A study says what it needs; where pools lack that, it says what is missing and which command would capture it, and the
    others go on. The exit code is 0 only if every study that was named ran; with all, every one that these pools allow.
    """
    if listed:
        _list(as_json)
        return
    if rules:
        from radmoe_studies.base import load
        from radmoe_studies.report.studies import rules as every_rule

        say_block(every_rule(load().values()).removesuffix("\n"))
        return
    if name is None or not pools:
        raise InputError("radmoe study needs a study and pools: radmoe study readouts POOL..., or radmoe study --list")
    rans = run_and_show(
        name,
        pools,
        out=out,
        quick=quick,
        resamples=resamples,
        subcohorts=subcohorts,
        confidence_window=confidence_window,
        seed=seed,
        jobs=jobs,
        cache=cache,
        as_json=as_json,
        cited=cited,
        readings=readings,
    )
    if any(ran.failed or (ran.lacking and "all" not in _names(name)) for ran in rans):
        raise typer.Exit(1)


def run_and_show(
    name: str,
    pools: list[Path],
    *,
    resamples: int,
    subcohorts: int = 200,
    confidence_window: int = 32,
    seed: int = 0,
    quick: bool = False,
    jobs: int | None = None,
    cache: bool = True,
    out: Path | None = None,
    as_json: bool = False,
    cited: str = "",
    readings: Path | None = None,
) -> list[Any]:
    """Run the studies that `name` names, print them or write them to `out`, and return what each gave."""
    try:
        import matplotlib
        import scipy  # noqa: F401
        import sklearn  # noqa: F401

        matplotlib.use("Agg")
    except ImportError as error:
        raise InputError(f"study needs {error.name}: pip install 'radmoe[studies]'") from None
    from radmoe_studies.base import Options
    from radmoe_studies.run import chosen

    studies = chosen(_names(name))
    read = _readings(readings)
    options = Options(resamples, subcohorts, seed, quick)
    rans = _run(studies, pools, options, confidence_window, jobs, cache)
    settings = f" --resamples {options.draws} --subcohorts {options.samples} --confidence-window {confidence_window} --seed {seed}"
    _show(rans, out, as_json, f"radmoe study {name} POOL...{settings}", pools, cited, read)
    return rans


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _readings(path: Path | None) -> Any:
    from radmoe_studies.base import load
    from radmoe_studies.report.readings import Readings, read_readings

    return Readings() if path is None else read_readings(path, (c.key for s in load().values() for c in s.claims))


def _list(as_json: bool) -> None:
    from radmoe_studies.base import load

    studies = load().values()
    if as_json:
        from radmoe.system.printing import json_text

        rows = [
            {"number": s.number, "name": s.name, "title": s.title, "where": s.where}
            | {"needs": [need.name for need in s.needs], "claims": [claim.sentence for claim in s.claims]}
            for s in studies
        ]
        say_block(json_text(rows))
        return
    for study in studies:
        needs = f" (needs {', '.join(need.name for need in study.needs)})" if study.needs else ""
        say(f"{study.number:2d}  {study.name:20s} {study.title}{needs}")


def _run(
    studies: Any, pools: list[Path], options: Any, confidence_window: int, jobs: int | None, cache: bool
) -> list[Any]:
    """Run the studies on the pools, with progress; their decisions are corrected together."""
    from dataclasses import replace

    from radmoe.cli.evaluate import cores
    from radmoe_studies.decision import corrected
    from radmoe_studies.evidence import gather
    from radmoe_studies.run import run_studies

    with bar("opening", "pools") as update:
        evidence = gather(
            pools, confidence_window=confidence_window, jobs=cores(jobs), use_cache=cache, progress=update
        )
    rans = []
    with bar("reading routing") as update:
        running = run_studies(studies, evidence, options, reading=update)
        first = next(running, None)
    with bar("running", "studies") as update:
        while first is not None:
            rans.append(first)
            update(len(rans), len(studies))
            first = next(running, None)
    say(f"{evidence.asked:,} windows asked for, {evidence.windows:,} read, {evidence.kept:,} from the cache", err=True)
    decisions = iter(corrected([d for ran in rans if ran.findings for d in ran.findings.decisions]))
    return [
        ran
        if ran.findings is None
        else replace(
            ran, findings=replace(ran.findings, decisions=tuple(next(decisions) for _ in ran.findings.decisions))
        )
        for ran in rans
    ]


def _show(
    rans: list[Any],
    out: Path | None,
    as_json: bool,
    typed: str,
    pools: list[Path],
    cited: str,
    readings: Any,
) -> None:
    from radmoe.evaluation.cache import checksum
    from radmoe.evaluation.render import visible_table
    from radmoe.evaluation.screen import NAME, show_table
    from radmoe.pool.files import write_atomic
    from radmoe.pool.schema import disk_errors
    from radmoe.system.printing import json_text
    from radmoe_studies.evidence import sampling_of
    from radmoe_studies.report.studies import (
        ReportSource,
        by_name,
        decisions_of,
        estimate_text,
        ledger,
        study_json,
        verdict_counts,
        verdict_text,
        write_study,
    )

    ways = Counter(sampling_of(pool) for pool in pools)
    source = ReportSource(typed, {name: checksum(pool) for name, pool in by_name(pools).items()}, dict(ways))
    if out is not None:
        for ran in rans:
            write_study(ran, out, source)
        with disk_errors(out / "claims.md"):
            out.mkdir(parents=True, exist_ok=True)
            write_atomic(out / "claims.md", ledger(rans, source, cited=cited, readings=readings).encode())
    if as_json:
        say_block(json_text([study_json(ran, source) for ran in rans]))
        return
    screen = console()
    for ran in rans:
        screen.print()
        screen.print(f"{ran.study.number}. {ran.study.title}", style="bold")
        for reason in ran.lacking:
            say(f"radmoe: {ran.study.name} was left out: {reason}", err=True)
        if ran.findings is None:
            continue
        for table in ran.findings.tables:
            screen.print()
            show_table(visible_table(table, NAME), screen)
        screen.print()
        for decision in ran.findings.decisions:
            verdict = verdict_text(decision).replace(decision.verdict, decision.verdict.upper(), 1)
            screen.print(f"{verdict}: {decision.claim.sentence} {estimate_text(decision)}")
            if decision.inexpressible:
                screen.print(f"Not expressible: {decision.inexpressible}.", style="dim")
        for note in ran.findings.notes:
            screen.print(note, style="dim")
    if decisions := decisions_of(rans):
        screen.print()
        screen.print(verdict_counts(decisions), style="bold")
    if out is not None:
        say(f"written to {out}: a page, CSV, JSON and figures per study, and claims.md", err=True)
