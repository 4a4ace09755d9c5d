"""`radmoe audit` checks whether the paper's published figures follow from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radmoe.cli.common import Json
from radmoe.errors import InputError
from radmoe.system.printing import console, say, say_json, styled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from radmoe_studies.audit import Check
    from radmoe_studies.audit.summary import AuditSummary

HEADING = "Research"
EXAMPLES = (
    "radmoe audit",
    "radmoe audit --table wjja-power --all",
    "radmoe audit --json",
    "radmoe audit --out packages/radmoe-studies/docs/audit.md",
)


def command(
    table: Annotated[
        str | None, typer.Option("--table", help="Only this table, by its label in the paper: main, dc, per-model...")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every check, not only those that differ.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the whole report as Markdown to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute the paper's figures from its other figures.

    Only figures that follow from other published ones are recomputed. A figure agrees, is within what the rounding of its inputs allows, or differs.
    A difference is a finding about the paper and not an error: the exit code is 0.
    """
    try:
        from radmoe_studies.audit import audit, load
        from radmoe_studies.audit.summary import markdown, summarise, total
    except ModuleNotFoundError as error:
        raise InputError(f"audit needs {error.name}: pip install 'radmoe[eval]'") from None

    about = dict(load().about)
    checks = audit()
    if out is not None:
        try:
            out.write_text(markdown(checks, about), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{out} cannot be written: {error.strerror}") from None
    if table is not None:
        label = table.removeprefix("tab:")
        tables = dict.fromkeys(c.table for c in checks)
        if label not in tables:
            raise InputError(f"no figure of a table {table!r} follows from others: use one of {', '.join(tables)}")
        checks = [c for c in checks if c.table == label]
    if as_json:
        tables_json = [asdict(s) for s in summarise(checks, about)]
        say_json({"total": asdict(total(checks)), "tables": tables_json, "checks": [asdict(c) for c in checks]})
        return
    if every:
        _checks(checks)
    _summary(summarise(checks, about), total(checks))
    _differences(checks)
    if out is not None:
        say("")
        say(f"report written to {out}")


def _summary(rows: Sequence[AuditSummary], whole: AuditSummary) -> None:
    from radmoe.system.screen import ScreenTable

    out = console()
    about = out.width >= 100
    table = ScreenTable(
        title="published figures recomputed from other published figures", title_justify="left", box=None
    )
    for heading in ("table", "about") if about else ("table",):
        table.add_column(heading, no_wrap=True)
    for heading in ("figures", "checks", "agree", "within rounding", "differ"):
        table.add_column(heading, justify="right", no_wrap=True)
    for s in rows:
        table.add_row(s.table, *([styled((s.about, "dim"))] if about else []), *_numbers(s))
    if len(rows) > 1:
        table.add_row("all", *([""] if about else []), *_numbers(whole), style="bold")
    out.print(table)


def _numbers(s: AuditSummary) -> list[RenderableType]:
    differs = styled((str(s.differs), "bold red")) if s.differs else "0"
    return [f"{s.figures:,}", f"{s.checks:,}", f"{s.agrees:,}", f"{s.rounding:,}", differs]


def _differences(checks: Sequence[Check]) -> None:
    from rich.padding import Padding

    from radmoe_studies.audit.summary import allows, note

    out = console()
    differences = [c for c in checks if c.verdict == "differs"]
    if not differences:
        out.print()
        out.print("no figure differs")
        return
    for c in differences:
        out.print()
        out.print(styled(("differs", "bold red"), "  ", (f"{c.table}, {c.row}, {c.figure}", "bold")))
        lines = [f"printed {c.printed}", c.arithmetic, allows(c), note(c)]
        for line in filter(None, lines):
            out.print(Padding(line, (0, 0, 0, 9)))


def _checks(checks: Sequence[Check]) -> None:
    """Print one line per check, because a table would fold the arithmetic."""
    out, colours = console(), {"agrees": "green", "within rounding": "yellow", "differs": "bold red"}
    width = max(len(c.verdict) for c in checks)
    for c in checks:
        line = f"{c.table}, {c.row}, {c.figure}: {c.printed}; {c.arithmetic}"
        out.print(styled((f"{c.verdict:<{width}}", colours[c.verdict]), f"  {line}"), soft_wrap=True)
    out.print()
