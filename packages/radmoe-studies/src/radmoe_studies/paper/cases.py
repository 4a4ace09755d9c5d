"""Study 27: where density breaks ties that a vote cannot, and where agreement is wrong. (App. "Failure case studies".)

Tie-breaking success: three or more answers share the most votes, one rollout alone is densest, and it is right. False
consensus: the basin that RAD picks from holds at least half of the rollouts, and the pick is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies import picks
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINT, Claim, ClaimDecision, above, changed
from radmoe_studies.evidence import Bools, Evidence, Floats, Ints, Panel
from radmoe_studies.lifts import wanted
from radmoe_studies.pooling import Rows, groups, no_science, of_pool, shown, stack
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Resampled

TIED = 3  # answers that share the most votes
LARGE = 0.5  # of the rollouts make a basin a consensus
RARE = 0.05  # of the consensuses may be wrong before agreement can be called truth
BUCKETS = ("hard", "medium", "easy")  # up to a third of the rollouts right, up to two thirds, more
EXAMPLES = 5  # of each regime, per data set
FEWEST = 20  # problems: resampling fewer cases says little about others

TRUTH = Claim(
    "cases.agreement-is-not-truth",
    "Large basins can be wrong.",
    "no number: 'basin agreement is not truth'",
    "App. case-studies",
    f"Among problems whose picked basin holds at least {100 * LARGE:g}% of the rollouts, all configurations pooled, the share "
    f"with a wrong pick is above {100 * RARE:g}%: one-sided on the bootstrap over problems.",
)
SCIENCE = Claim(
    "cases.false-consensus-on-science",
    "False consensus is more common on science than on math.",
    "no number: 'concentrated on GPQA'",
    "App. case-studies",
    f"The share of science problems with a false consensus minus that of math problems, all configurations pooled, is above {POINT}: "
    "one-sided on the bootstrap over problems. Not expressible where the only science questions are the lab's, which ask for arithmetic "
    "and have no misconception to agree on: the paper's claim is about GPQA.",
    changed(EFFECT, "the lab's choice questions are no counterpart of GPQA"),
)
TIES = Claim(
    "cases.density-breaks-ties",
    "Where votes are tied, RAD's pick is right more often than a tied answer drawn at random.",
    "no number: 'over-represented on AIME25, BRUMO25'",
    "App. case-studies",
    f"On well-posed problems on which {TIED} or more answers share the most votes, all configurations pooled, RAD's hit minus "
    f"the share of right ones among the tied answers is above {100 * POINT:g} point: one-sided on the bootstrap over problems.",
    changed(EFFECT),
)


class Cases(NamedTuple):
    """Per problem of a panel [P]: how many answers share the most votes, whether one rollout is densest, and outcomes."""

    tied: Ints
    single: Bools
    hit: Floats
    vote: Floats
    large: Bools
    rate: Floats

    @property
    def success(self) -> Bools:
        return np.asarray((self.tied >= TIED) & self.single & (self.hit == 1))

    @property
    def false_consensus(self) -> Bools:
        return np.asarray(self.large & (self.hit == 0))

    @property
    def bucket(self) -> Ints:
        """The difficulty: 0 hard, 1 medium, 2 easy."""
        return np.digitize(self.rate, (1 / 3, 2 / 3), right=True)


def cases_of(panel: Panel, basin: Ints) -> Cases:
    votes = np.stack(
        [((panel.answer == a) & panel.here).sum(1) for a in range(int(panel.answer.max(initial=0)) + 1)], axis=1
    )
    most = votes.max(1, keepdims=True)
    density = panel.density(picks.standard(panel))
    top = np.where(np.isfinite(density), density, -1.0)
    single = (top == top.max(1, keepdims=True)).sum(1) == 1
    return Cases(
        ((votes == most) & (most > 0)).sum(1),
        single,
        picks.rad(panel),
        np.nan_to_num(picks.majority(panel), nan=0.0),
        basin >= LARGE * panel.here.sum(1),
        picks.rate(panel),
    )


@study(
    27,
    "Where does density break ties, and where is agreement wrong?",
    where="App. case-studies",
    requests=wanted,
    claims=(TRUTH, SCIENCE, TIES),
)
def cases(evidence: Evidence, options: Options) -> Findings:
    own = {panel: cases_of(panel, panel.outcomes.counts["basin"]) for panel in evidence.panels if wanted(panel)}
    if not own:
        return Findings(notes=("There is no math, choice or code problem.",))
    decisions, notes = _decide(own, options)
    notes += [
        "Difficulty is the share of right rollouts: up to a third is hard. A consensus on a hard problem is wrong almost by "
        "definition, so that no claim is made about difficulty.",
        "On code nearly every program is an answer of its own, so that all are tied: such ties are counted in the tables, and "
        "left out of the claim about ties.",
        "The paper asks for 32 of 64 rollouts; here it is half of the rollouts that a problem has.",
    ]
    tables = (_counts(own), _difficulty(own), _examples(own))
    return Findings(tables, (_chart(own),), tuple(decisions), tuple(notes))


def _decide(own: Mapping[Panel, Cases], options: Options) -> tuple[list[ClaimDecision], list[str]]:
    def wrong(panel: Panel) -> Floats:
        return np.where(own[panel].large, own[panel].false_consensus.astype(float), np.nan)

    def by_domain(panel: Panel) -> Floats:
        value = own[panel].false_consensus.astype(float)
        return np.column_stack([np.where(panel.domain == domain, value, np.nan) for domain in ("math", "science")])

    def ties(panel: Panel) -> Floats:
        one = own[panel]
        return np.where(one.tied >= TIED, np.nan_to_num(one.hit, nan=0.0) - one.vote, np.nan)

    decisions: list[ClaimDecision] = []
    notes: list[str] = []
    panels = list(own)

    def put(
        claim: Claim, result: Resampled | None, less: int | None, unit: str, threshold: float, why: str = ""
    ) -> None:
        if result is None or result.n < FEWEST or not np.isfinite(result.draws).all():
            notes.append(f"{claim.key} cannot be tested: fewer than {FEWEST} problems are such a case.")
            return
        quantity = result.mean(0) if less is None else result.difference(1, less)
        decisions.append(replace(above(claim, quantity, unit=unit, threshold=threshold), inexpressible=why))

    def means(rows: Rows) -> Resampled | None:
        return rows.resampled(options.draws, options.seed)

    put(TRUTH, means(stack(panels, wrong)), None, "share", RARE)
    posed = of_pool(panels, "well-posed")
    put(SCIENCE, means(stack(posed, by_domain)), 0, "share", POINT, no_science(panels))
    put(TIES, means(stack(posed, ties)), None, "points", POINT)
    return decisions, notes


def _row(name: str, panels: Sequence[Panel], own: Mapping[Panel, Cases], masks: Mapping[Panel, Bools]) -> Row:
    """Counts of cases on the problems in masks."""

    def total(values: Mapping[Panel, Bools]) -> int:
        return sum(int((values[panel] & masks[panel]).sum()) for panel in panels)

    problems = sum(int(masks[panel].sum()) for panel in panels)
    tied = total({panel: own[panel].tied >= TIED for panel in panels})
    success = total({panel: own[panel].success for panel in panels})
    large = total({panel: own[panel].large for panel in panels})
    wrong = total({panel: own[panel].false_consensus for panel in panels})
    shares = (
        shown(wrong / large if large else None, "percent", note="no basin holds half of the rollouts"),
        shown(wrong / problems if problems else None, "percent"),
    )
    return Row((Cell(name), *(Cell(count, "count") for count in (problems, tied, success, large, wrong)), *shares))


_HEADS = ("problems", f"{TIED}+ answers tied", "RAD breaks the tie rightly", "consensus", "false consensus")
_SHARES = ("of consensuses", "of problems")


def _counts(own: Mapping[Panel, Cases]) -> Table:
    everything = {panel: np.ones(len(panel), bool) for panel in own}
    parts = [*groups(own, lambda panel: panel.dataset).items(), ("all", list(own))]
    rows = tuple(_row(name, panels, own, everything) for name, panels in parts)
    columns = tuple(map(Column, ("data set", *_HEADS, *_SHARES)))
    return Table("cases", "Ties that density breaks, and agreement that is wrong", columns, rows)


def _difficulty(own: Mapping[Panel, Cases]) -> Table:
    rows = []
    for domain, panels in groups(own, lambda panel: panel.domain).items():
        for number, bucket in enumerate(BUCKETS):
            made = _row(bucket, panels, own, {panel: own[panel].bucket == number for panel in panels})
            rows.append(Row(made.cells, domain))
    columns = tuple(map(Column, ("difficulty", *_HEADS, *_SHARES)))
    return Table("cases-difficulty", "The same by difficulty", columns, tuple(rows), sections="comparison")


def _examples(own: Mapping[Panel, Cases]) -> Table:
    """The first cases of every data set, of either regime."""
    rows = []
    for regime in ("tie-breaking success", "false consensus"):
        for _, panels in groups(own, lambda panel: panel.dataset).items():
            number = 0
            for panel in panels:
                one = own[panel]
                for i in np.flatnonzero(one.success if regime == "tie-breaking success" else one.false_consensus):
                    if number == EXAMPLES:
                        break
                    number += 1
                    name = Cell(f"{panel.problem_ids[i]} ({panel.configuration})")
                    rows.append(Row((name, Cell(int(one.tied[i]), "count"), shown(one.rate[i], "percent")), regime))
    columns = (Column("problem"), Column("answers tied"), Column("rollouts that are right"))
    return Table("cases-examples", "Examples", columns, tuple(rows), sections="comparison")


def _chart(own: Mapping[Panel, Cases]) -> Chart:
    parts = groups(own, lambda panel: panel.dataset)
    names = list(parts)

    def share(panels: Sequence[Panel], of: str) -> float:
        return 100 * float(np.mean(np.concatenate([getattr(own[panel], of) for panel in panels])))

    series = [
        Series(label, names, [share(panels, of) for panels in parts.values()])
        for label, of in (("tie-breaking success", "success"), ("false consensus", "false_consensus"))
    ]
    plot = Plot("bars", y="problems (%)", series=series)
    return Chart("cases", "Where does density break ties, and where is agreement wrong?", (plot,))
