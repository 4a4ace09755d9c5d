"""The findings of studies as files: a page with its figures, tables as CSV, everything as JSON. Nothing is computed here."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from radmoe import __version__
from radmoe.evaluation.render import csv_of, markdown_table, markdown_text, visible_table
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.system.printing import json_text, visible
from radmoe_studies.base import Study, StudyRun, load
from radmoe_studies.decision import ClaimDecision, ClaimVerdict
from radmoe_studies.report.charts import draw
from radmoe_studies.report.readings import Readings


@dataclass(frozen=True)
class ReportSource:
    """Where findings come from: the command that made them, the checksum of every pool, and how many were sampled in which way."""

    command: str
    pools: Mapping[str, str]
    sampling: Mapping[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One checksum for all pools."""
        text = "\n".join(f"{name} {checksum}" for name, checksum in sorted(self.pools.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{visible(self.command)}, {len(self.pools)} pools ({self.digest}), radmoe {__version__}"


def by_name(pools: Sequence[Path]) -> dict[str, Path]:
    """Pools by the names of their directories, with the directory above where two pools have one name."""
    count = Counter(pool.name for pool in pools)
    return {pool.name if count[pool.name] == 1 else f"{pool.parent.name}/{pool.name}": pool for pool in pools}


def write_study(ran: StudyRun, directory: Path, source: ReportSource) -> list[Path]:
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


def study_page(ran: StudyRun, source: ReportSource) -> str:
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


def _made_by(source: ReportSource) -> str:
    pools = f"{len(source.pools)} pools (checksum {source.digest}"
    if source.sampling:
        pools += "; sampled at " + "; ".join(f"{visible(way)}: {count}" for way, count in source.sampling.items())
    return f"Made by `{visible(source.command)}` over {pools}), radmoe {__version__}."


def decision_text(decision: ClaimDecision) -> str:
    """A claim, its rule, our number and the verdict, in a few lines of Markdown."""
    claim = decision.claim
    lines = [
        f"**{markdown_text(claim.sentence)}** {verdict_text(decision).capitalize()}: {estimate_text(decision)}; "
        f"the paper has {markdown_text(claim.paper)}.",
        f"Rule: {markdown_text(claim.rule)} {p_values(decision)}",
    ]
    lines += [markdown_text(text) for text in (_why(decision), decision.reading) if text]
    return "\n".join(f"{line}  " for line in lines)


def estimate_text(decision: ClaimDecision) -> str:
    scale, form = (100, "+.1f") if decision.unit == "points" else (1, ".2f")
    value, low, high = (format(scale * x, form) for x in (decision.estimate, decision.low, decision.high))
    return f"{value} [{low}, {high}] {decision.unit}, n = {decision.n:,}"


def verdict_text(decision: ClaimDecision) -> str:
    """The verdict, and of an undecided claim how many problems would decide it, to two digits."""
    if decision.verdict is not ClaimVerdict.UNDECIDED:
        return str(decision.verdict)
    needed = decision.needed
    if needed is None:
        return f"{decision.verdict} (no number of problems would decide it while the estimate stays)"
    digits = max(len(str(needed)) - 2, 0)
    return f"{decision.verdict} (about {round(needed, -digits):,} problems would decide it)"


def _why(decision: ClaimDecision) -> str:
    return f"Not expressible here: {decision.inexpressible}." if decision.inexpressible else ""


def p_values(decision: ClaimDecision) -> str:
    """The p-values for and against the claim, and those corrected for the number of claims where that was done."""
    text = f"p for it {_p(decision.p_for)}, against it {_p(decision.p_against)}"
    for name, pair in (("Holm", decision.holm), ("Benjamini-Hochberg", decision.bh)):
        if pair is not None:
            text += f"; after {name} {_p(pair[0])} and {_p(pair[1])}"
    return text + "."


def _pair(pair: tuple[float, float] | None) -> str:
    return "--" if pair is None else f"{_p(pair[0])} / {_p(pair[1])}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def study_json(ran: StudyRun, source: ReportSource) -> dict[str, Any]:
    """Everything a study found, for a program."""
    study, findings = ran.study, ran.findings
    body: dict[str, Any] = {
        "study": study.number,
        "name": study.name,
        "title": study.title,
        "where": study.where,
        "command": source.command,
        "pools": dict(source.pools),
        "sampling": dict(source.sampling),
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


def decision_json(decision: ClaimDecision) -> dict[str, Any]:
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
        "holm": decision.holm,
        "benjamini_hochberg": decision.bh,
        "verdict": str(decision.verdict),
        "outlasts_holm": decision.outlasts(decision.holm),
        "outlasts_benjamini_hochberg": decision.outlasts(decision.bh),
        "problems_needed": decision.needed if decision.verdict is ClaimVerdict.UNDECIDED else None,
        "not_expressible": decision.inexpressible,
        "reading": decision.reading,
    }


DROPPED = (
    "**No longer claims.** Dropped on 2026-11-18: the five of study 26 (cross-anchor.\\*), because they were those of 21 to 23 once more, "
    "and a finding counts once; effort.operational-lift-stays, because it is one claim with effort.anchor-takes-over; and "
    "readouts.marker-then-window, because it was two claims (readouts.marker-knows, readouts.window-wins) and left out two of five bars. "
    "On the same day the verdict became that of the claim's own 95% interval: Holm over some seventy claims left -3.3 [-5.1, -1.6] "
    'undecided against a margin of 1. A rule that asked for a difference "above 0" supported +0.0 [0, 0] (p = .002); each now names the '
    "smallest effect that it asks for: one point of accuracy, two where the paper's own effect is four or more, 0.05 of purity or of a "
    "correlation, and others where the rule says so. Holm and Benjamini-Hochberg now stand beside the verdict."
)


def rules(studies: Iterable[Study]) -> str:
    """Every claim with its rule, as it stood before any number: what packages/radmoe-studies/docs/rules.md holds."""
    parts = [
        "# Rules",
        "Every claim of the paper that a study tests, and the rule that decides it. `radmoe study --rules` prints this page, and a "
        "test holds it to the code, so that its history shows which rules stood when. packages/radmoe-studies/docs/studies.md says what verdicts mean.",
        DROPPED,
    ]
    for study in studies:
        parts.append(f"## {study.number}. {study.name}: {study.title}")
        if not study.claims:
            parts.append("It reports, and decides nothing.")
        for claim in study.claims:
            text = markdown_text(claim.rule) + (f" *{markdown_text(claim.changed)}*" if claim.changed else "")
            parts.append(
                f"**{markdown_text(claim.sentence)}** (`{claim.key}`; {markdown_text(claim.where)}; the paper: "
                f"{markdown_text(claim.paper)})  \n{text}"
            )
    return "\n\n".join(parts) + "\n"


def decisions_of(rans: Iterable[StudyRun]) -> list[ClaimDecision]:
    return [decision for ran in rans if ran.findings for decision in ran.findings.decisions]


def verdict_counts(decisions: Sequence[ClaimDecision]) -> str:
    """How many claims got which verdict, and how many verdicts outlast corrections for the number of claims."""
    parts = []
    for verdict in ClaimVerdict:
        own = [decision for decision in decisions if decision.verdict is verdict]
        text = f"{len(own)} {verdict}"
        if (
            own
            and verdict in (ClaimVerdict.SUPPORTS, ClaimVerdict.REFUTES)
            and all(one.holm is not None for one in own)
        ):
            strict, loose = sum(one.outlasts(one.holm) for one in own), sum(one.outlasts(one.bh) for one in own)
            text += f" ({strict} after Holm, {loose} after Benjamini-Hochberg)"
        parts.append(text)
    return f"{len(decisions)} claims: {', '.join(parts)}."


def ledger(rans: Sequence[StudyRun], source: ReportSource, *, cited: str = "", readings: Readings | None = None) -> str:
    """The claims ledger: every claim with the paper's number, ours, the verdict by its rule, and our reading of it.

    The decisions must have been corrected together. `cited` says where the rules stood before, such as a commit of packages/radmoe-studies/docs/rules.md.
    `readings` are by the keys of the claims, and so are the verdicts of an earlier ledger, which stand beside the new ones.
    """
    readings = readings or Readings()
    decisions = decisions_of(rans)
    parts = [
        "# Claims of the paper, and what these pools say",
        f"{_made_by(source)} Verdicts follow from rules that were written before the numbers"
        + (f" (packages/radmoe-studies/docs/rules.md at {visible(cited)})" if cited else "")
        + ": the whole 95% interval on the claim's side of its threshold supports, the whole interval on the other side refutes. "
        "p-values are one-sided, to be compared with .025; corrections are over all claims below, for and against apart. n counts problems.",
        f"**{verdict_counts(decisions)}**",
    ]
    earlier = ["before"] if readings.before else []
    head = ["study", "claim", "the paper", "here", *earlier, "verdict", "p for / against", "Holm", "Benjamini-Hochberg"]
    lines = [head, ["---"] * len(head)]
    for ran in rans:
        for decision in ran.findings.decisions if ran.findings else ():
            before = [markdown_text(readings.before.get(decision.claim.key, "new"))] if earlier else []
            lines.append(
                [
                    f"{ran.study.number} {ran.study.name}",
                    markdown_text(decision.claim.sentence),
                    markdown_text(decision.claim.paper),
                    estimate_text(decision),
                    *before,
                    f"**{decision.verdict}**{verdict_text(decision).removeprefix(decision.verdict)}",
                    _pair((decision.p_for, decision.p_against)),
                    _pair(decision.holm),
                    _pair(decision.bh),
                ]
            )
    parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    parts.append("## Readings and rules")
    for decision in decisions:
        claim = decision.claim
        words = [markdown_text(part) for part in (readings.texts.get(claim.key, ""), _why(decision)) if part]
        words += [f"*Rule:* {markdown_text(claim.rule)}"]
        words += [markdown_text(part) for part in (claim.changed, decision.reading) if part]
        parts.append(f"- **{claim.key}: {decision.verdict}.** {' '.join(words)}")
    left = [f"- {ran.study.number} {ran.study.name}: {'; '.join(ran.lacking)}" for ran in rans if ran.lacking]
    judged = {decision.claim.key for decision in decisions}
    left += [
        f"- {claim.key}: not judged on these pools; the page of study {ran.study.number} says why"
        for ran in rans
        if ran.findings
        for claim in ran.study.claims
        if claim.key not in judged
    ]
    if left:
        parts += ["Left out:", "\n".join(left)]
    known = {claim.key for study in load().values() for claim in study.claims}
    gone = [f"{key} ({verdict})" for key, verdict in readings.before.items() if key not in known]
    if gone:
        parts.append(
            f"No longer claims, with their earlier verdicts (packages/radmoe-studies/docs/rules.md says why): {', '.join(gone)}."
        )
    return "\n\n".join(parts) + "\n"
