"""What studies found, as files: a page with its figures, tables as CSV, everything as JSON. Nothing is computed here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radmoe import __version__
from radmoe.evaluation.render import csv_of, markdown_table, markdown_text, visible_table
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.printing import json_text, visible
from radmoe.report.charts import draw
from radmoe.studies.base import Ran, Study
from radmoe.studies.decision import Decision


@dataclass(frozen=True)
class Source:
    """Where findings come from: the command that made them, and the checksum of every pool."""

    command: str
    pools: Mapping[str, str]

    @property
    def digest(self) -> str:
        """One checksum for all pools."""
        text = "\n".join(f"{name} {checksum}" for name, checksum in sorted(self.pools.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{visible(self.command)}, {len(self.pools)} pools ({self.digest}), radmoe {__version__}"


def write_study(ran: Ran, directory: Path, source: Source) -> list[Path]:
    """Write one study's page, CSV, JSON and figures; returns the files."""
    name, findings = ran.study.name, ran.findings
    if findings is None:
        return []
    figures = [file for chart in findings.charts for file in draw(chart, directory, made_by=str(source))]
    tables = [visible_table(table) for table in findings.tables]
    texts = {
        f"{name}.md": study_page(ran, source),
        f"{name}.csv": csv_of(tables),
        f"{name}.json": json_text(study_json(ran, source)) + "\n",
    }
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with disk_errors(directory / file):
            write_atomic(directory / file, text.encode())
    return [directory / file for file in texts] + figures


def study_page(ran: Ran, source: Source) -> str:
    """A study in Markdown: what it asks, what was decided, its tables and figures."""
    study, findings = ran.study, ran.findings
    assert findings is not None
    parts = [f"# {study.number}. {markdown_text(study.title)}", f"In the paper: {markdown_text(study.where)}."]
    parts += [decision_text(decision) for decision in findings.decisions]
    for table in map(visible_table, findings.tables):
        parts += [f"## {markdown_text(table.title)}", markdown_table(table)]
        parts += [markdown_text(note) for note in table.notes]
    for chart in findings.charts:
        parts.append(f"![{markdown_text(visible(chart.title))}]({chart.key}.png)")
    parts += [markdown_text(visible(note)) for note in findings.notes]
    parts.append(_made_by(source))
    return "\n\n".join(parts) + "\n"


def _made_by(source: Source) -> str:
    pools = f"{len(source.pools)} pools (checksum {source.digest})"
    return f"Made by `{visible(source.command)}` over {pools}, radmoe {__version__}."


def decision_text(decision: Decision) -> str:
    """A claim, its rule, our number and the verdict, in a few lines of Markdown."""
    claim = decision.claim
    lines = [
        f"**{markdown_text(claim.sentence)}** {decision.verdict.capitalize()}: {estimate_text(decision)}; "
        f"the paper has {markdown_text(claim.paper)}.",
        f"Rule: {markdown_text(claim.rule)} {p_values(decision)}",
    ]
    if decision.reading:
        lines.append(markdown_text(decision.reading))
    return "\n".join(f"{line}  " for line in lines)


def estimate_text(decision: Decision) -> str:
    scale, form = (100, "+.1f") if decision.unit == "points" else (1, ".2f")
    value, low, high = (format(scale * x, form) for x in (decision.estimate, decision.low, decision.high))
    return f"{value} [{low}, {high}] {decision.unit}, n = {decision.n:,}"


def p_values(decision: Decision) -> str:
    """p for and against the claim, raw, and after Holm's correction where there was one."""
    text = f"p for it {_p(decision.p_for)}, against it {_p(decision.p_against)}"
    if decision.adjusted_for is not None and decision.adjusted_against is not None:
        text += f"; after Holm {_p(decision.adjusted_for)} and {_p(decision.adjusted_against)}"
    return text + "."


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def study_json(ran: Ran, source: Source) -> dict[str, Any]:
    """Everything a study found, for a program."""
    study, findings = ran.study, ran.findings
    body: dict[str, Any] = {
        "study": study.number,
        "name": study.name,
        "title": study.title,
        "where": study.where,
        "command": source.command,
        "pools": dict(source.pools),
        "radmoe": __version__,
        "lacking": list(ran.lacking),
    }
    if findings is not None:
        body |= {
            "decisions": [decision_json(decision) for decision in findings.decisions],
            "tables": [table.to_json() for table in findings.tables],
            "charts": [chart.to_json() for chart in findings.charts],
            "notes": list(findings.notes),
        }
    return body


def decision_json(decision: Decision) -> dict[str, Any]:
    claim = decision.claim
    return {
        "claim": claim.key,
        "sentence": claim.sentence,
        "paper": claim.paper,
        "where": claim.where,
        "rule": claim.rule,
        "estimate": decision.estimate,
        "low": decision.low,
        "high": decision.high,
        "unit": decision.unit,
        "n": decision.n,
        "p_for": decision.p_for,
        "p_against": decision.p_against,
        "adjusted_for": decision.adjusted_for,
        "adjusted_against": decision.adjusted_against,
        "verdict": str(decision.verdict),
        "reading": decision.reading,
    }


def rules(studies: Iterable[Study]) -> str:
    """Every claim with its rule, as it stood before any number: what docs/rules.md holds."""
    parts = [
        "# Rules",
        "Every claim of the paper that a study tests, and the rule that decides it. `radmoe study --rules` prints this page, and a "
        "test holds it to the code, so that its history shows which rules stood when. docs/studies.md says what verdicts mean.",
    ]
    for study in studies:
        parts.append(f"## {study.number}. {study.name}: {study.title}")
        if not study.claims:
            parts.append("It reports, and decides nothing.")
        parts += [
            f"**{markdown_text(claim.sentence)}** (`{claim.key}`; {markdown_text(claim.where)}; the paper: "
            f"{markdown_text(claim.paper)})  \n{markdown_text(claim.rule)}"
            for claim in study.claims
        ]
    return "\n\n".join(parts) + "\n"


def ledger(rans: Sequence[Ran], source: Source, *, cited: str = "", readings: Mapping[str, str] | None = None) -> str:
    """The claims ledger: every claim with the paper's number, ours, the verdict by its rule, and what we make of it.

    The decisions must have been corrected together. `cited` says where the rules stood before, such as a commit of docs/rules.md.
    `readings` are by the keys of the claims.
    """
    readings = readings or {}
    parts = [
        "# Claims of the paper, and what these pools say",
        f"{_made_by(source)} Verdicts follow from rules that were written before the numbers"
        + (f" (docs/rules.md at {visible(cited)})" if cited else "")
        + "; p-values are corrected by Holm over all claims below, for and against apart.",
    ]
    head = ["study", "claim", "the paper", "here", "verdict", "p for / against, raw", "after Holm"]
    lines = [head, ["---"] * len(head)]
    for ran in rans:
        for decision in ran.findings.decisions if ran.findings else ():
            after = (
                "--"
                if decision.adjusted_for is None or decision.adjusted_against is None
                else f"{_p(decision.adjusted_for)} / {_p(decision.adjusted_against)}"
            )
            lines.append(
                [
                    f"{ran.study.number} {ran.study.name}",
                    markdown_text(decision.claim.sentence),
                    markdown_text(decision.claim.paper),
                    estimate_text(decision),
                    f"**{decision.verdict}**",
                    f"{_p(decision.p_for)} / {_p(decision.p_against)}",
                    after,
                ]
            )
    parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    parts.append("## Readings and rules")
    parts += [
        f"- **{decision.claim.key}: {decision.verdict}.** "
        + (f"{markdown_text(reading)} " if (reading := readings.get(decision.claim.key)) else "")
        + f"*Rule:* {markdown_text(decision.claim.rule)}"
        + (f" {markdown_text(decision.reading)}" if decision.reading else "")
        for ran in rans
        if ran.findings
        for decision in ran.findings.decisions
    ]
    left = [f"- {ran.study.number} {ran.study.name}: {'; '.join(ran.lacking)}" for ran in rans if ran.lacking]
    if left:
        parts += ["Left out:", "\n".join(left)]
    return "\n\n".join(parts) + "\n"
