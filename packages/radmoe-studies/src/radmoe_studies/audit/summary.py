"""Checks counted per table, and the report as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from radmoe_studies.audit.check import Check, show
from radmoe_studies.audit.notes import NOTES, REMARKS


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """One table: how many of its figures were checked, and how the checks came out.

    A figure that follows in two ways is checked twice.
    """

    table: str
    about: str
    figures: int
    checks: int
    agrees: int
    rounding: int
    differs: int


def summarise(checks: Sequence[Check], about: dict[str, str]) -> list[AuditSummary]:
    return [
        _summary(label, about[label], [c for c in checks if c.table == label])
        for label in dict.fromkeys(c.table for c in checks)
    ]


def total(checks: Sequence[Check]) -> AuditSummary:
    return _summary("all", "", checks)


def _summary(label: str, about: str, checks: Sequence[Check]) -> AuditSummary:
    verdicts = Counter(c.verdict for c in checks)
    return AuditSummary(
        label,
        about,
        len({c.key for c in checks}),
        len(checks),
        verdicts["agrees"],
        verdicts["within rounding"],
        verdicts["differs"],
    )


def allows(check: Check) -> str:
    """What the rounding of the inputs allows, in words."""
    low, high = show(check.low, check.published), show(check.high, check.published)
    return f"the inputs fix {low}" if low == high else f"the inputs allow {low} to {high}"


def note(check: Check) -> str:
    """A possible explanation of a difference, where the arithmetic suggests one; else an empty text."""
    return NOTES.get(check.key, "") if check.verdict == "differs" else ""


def markdown(checks: Sequence[Check], about: dict[str, str]) -> str:
    return "\n".join(_lines(checks, about)) + "\n"


def _lines(checks: Sequence[Check], about: dict[str, str]) -> Iterator[str]:
    whole = total(checks)
    yield "# Audit of the paper's published figures"
    yield ""
    yield "Written by `radmoe audit --out packages/radmoe-studies/docs/audit.md`; nothing here was typed by hand but the notes."
    yield ""
    yield (
        f"{whole.checks:,} checks of {whole.figures:,} published figures: **{whole.agrees:,} agree, "
        f"{whole.rounding:,} are within rounding, {whole.differs:,} differ.**"
    )
    yield ""
    yield "Every figure that follows from other published figures is recomputed from them. It *agrees* when the result"
    yield "rounds to what is printed; it is *within rounding* when it does not, but some values that round to the printed"
    yield "inputs give it (a printed 73.9 stands for 73.85 to 73.95); else it *differs*. A percentage of n problems is"
    yield "taken as the whole number of problems it must be, where only one fits. A figure that follows in two ways is"
    yield "checked twice. The figures are under `packages/radmoe-studies/src/radmoe_studies/published/tables`, one file per table."
    yield ""
    yield from _table(
        ("table", "about", "figures", "checks", "agree", "within rounding", "differ"),
        (
            (
                f"`tab:{s.table}`" if s.table != "prose" else "text",
                s.about,
                s.figures,
                s.checks,
                s.agrees,
                s.rounding,
                s.differs,
            )
            for s in summarise(checks, about)
        ),
    )
    yield ""
    yield "## What differs"
    yield ""
    for check in (c for c in checks if c.verdict == "differs"):
        yield f"- **tab:{check.table}, {check.row}, {check.figure}**: printed {check.printed}; {check.arithmetic}; {allows(check)}."
        if note(check):
            yield f"  {note(check)}"
    if not whole.differs:
        yield "Nothing."
    yield ""
    yield "## What the arithmetic cannot settle"
    yield ""
    for remark in REMARKS:
        yield f"- {remark}"
    yield ""
    yield "## Within rounding"
    yield ""
    yield from _table(
        ("table", "row", "figure", "printed", "recomputed", "inputs allow"),
        (
            (
                c.table,
                c.row,
                c.figure,
                c.printed,
                c.arithmetic,
                f"{show(c.low, c.published)} to {show(c.high, c.published)}",
            )
            for c in checks
            if c.verdict == "within rounding"
        ),
    )
    yield ""
    yield "## Every check that agrees"
    for summary in summarise(checks, about):
        rows = [c for c in checks if c.table == summary.table and c.verdict == "agrees"]
        if rows:
            yield ""
            yield f"### {'Text' if summary.table == 'prose' else f'tab:{summary.table}'}: {summary.about}"
            yield ""
            yield from _table(
                ("row", "figure", "printed", "recomputed"), ((c.row, c.figure, c.printed, c.arithmetic) for c in rows)
            )


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"| {' | '.join('---' for _ in headings)} |"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"
