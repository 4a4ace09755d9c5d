"""Study 14: where is the selector good at selecting? In math more than in science, and there more than in code.
(App. "Domain dependence".)
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, domain_study
from radmoe_studies.budgets import LATE, request
from radmoe_studies.decision import EFFECT, PEOPLED, POINT, Claim, ClaimDecision, above, all_of, changed, within
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.gains import DOMAINS, Gains, all_arrive, gain_cells, gains, of_domains, pooled
from radmoe_studies.pooling import THINKING, configuration, groups, problems_of, shown
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Quantity, Resampled, resample

ANCHORS = ("So*", "boundary")
PARTS = ("selection", "full", "anchor")
NULL_MARGIN = 0.02  # the paper calls +1.00 points null
LARGE = 0.25  # of a gain: a share that counts as large
# tab:domain: points and z of So* delta-sel and delta-full, boundary delta-sel and delta-full; points of its delta-anchor.
PAPER: dict[str, tuple[float, ...]] = {
    "math": (6.88, 7.7, 6.95, 7.7, 6.17, 7.4, 10.99, 12.0, 4.82),
    "science": (2.95, 4.1, 3.09, 4.2, 2.05, 2.8, 3.74, 5.2, 1.69),
    "code": (1.00, 1.1, 1.10, 1.2, 1.77, 2.3, 5.46, 6.8, 3.69),
}

_POOLED = f"at B = {LATE}, {THINKING.name} pooled, one-sided on the bootstrap over problems"
SO_ORDER = Claim(
    "domains.so-selects-best-in-math",
    "At a trajectory anchor the selector is better in math than in science, and better there than in code.",
    "+6.88 / +2.95 / +1.00",
    "tab:domain",
    f"So*: Two differences of mean delta-sel, math minus science and science minus code, are both above {100 * POINT:g} point "
    f"{_POOLED}; the weaker of the two decides.",
    changed(PEOPLED, EFFECT),
)
BOUNDARY_ORDER = Claim(
    "domains.boundary-selects-best-in-math",
    "At the boundary the selector is better in math than in science and in code.",
    "+6.17 / +2.05 / +1.77",
    "tab:domain",
    f"boundary@16: Two differences of mean delta-sel, math minus science and math minus code, are both above {100 * POINT:g} point "
    f"{_POOLED}; the weaker of the two decides.",
    changed(PEOPLED, EFFECT, "the paper's own science minus code, 0.28 points, is less than any smallest effect"),
)
NULL = Claim(
    "domains.so-is-null-on-code",
    "At a trajectory anchor the selector does nothing on code.",
    "+1.00 (z 1.1)",
    "tab:domain",
    f"Mean delta-sel of So* on code lies within {100 * NULL_MARGIN:g} points of 0 at B = {LATE}: two one-sided tests on the "
    f"bootstrap over problems, {THINKING.name} pooled.",
    changed(PEOPLED, "n counted cells, 1,517 where 287 problems are"),
)
MECHANICAL = Claim(
    "domains.a-large-share-is-mechanical",
    "A large share of the boundary's gain in math comes from who reaches the boundary, not from selection.",
    "+4.82 of +10.99",
    "tab:domain",
    f"Mean delta-anchor of boundary@16 in math minus {LARGE:g} times its delta-full is above {100 * POINT:g} point {_POOLED}. Not "
    f"expressible where fewer than {POINT:.0%} of the rollouts never reach the boundary: delta-anchor can be no larger than that.",
    changed(
        PEOPLED, EFFECT, "n counted cells", "where every rollout finishes, delta-anchor is 0 whatever routing says"
    ),
)
CLAIMS = (SO_ORDER, BOUNDARY_ORDER, NULL, MECHANICAL)


def wanted(panel: Panel) -> list[Request]:
    return [request(anchor, LATE) for anchor in ANCHORS] if of_domains([panel]) else []


class Split(NamedTuple):
    """Gains by domain and anchor, and the means of their parts over resampled problems."""

    gains: dict[tuple[str, str], Gains]
    means: Resampled

    def mean(self, domain: str, anchor: str, part: str) -> Quantity | None:
        """A mean; None where no problem of the domain is eligible."""
        at = (DOMAINS.index(domain) * len(ANCHORS) + ANCHORS.index(anchor)) * len(PARTS) + PARTS.index(part)
        one = self.means.mean(at)
        return one if one.finite else None

    def problems(self, domain: str, anchor: str) -> int:
        one = self.mean(domain, anchor, "selection")
        return 0 if one is None else one.n


def _split(panels: list[Panel], options: Options) -> Split:
    every = {anchor: _gains(panels, anchor) for anchor in ANCHORS}
    domain = np.array([panel.domain for panel in panels for _ in panel.problem_ids])
    own = {
        (name, anchor): Gains(*(np.where(domain == name, part, np.nan) for part in every[anchor]))
        for name in DOMAINS
        for anchor in ANCHORS
    }
    table = np.column_stack([getattr(lift, part) for lift in own.values() for part in PARTS])
    return Split(own, resample(table, problems_of(panels), resamples=options.draws, seed=options.seed))


def _gains(panels: list[Panel], anchor: str) -> Gains:
    return pooled(panels, lambda panel: gains(panel, request(anchor, LATE)))


@domain_study(
    14,
    "In which domains does the selector select?",
    where="tab:domain",
    requests=wanted,
    claims=CLAIMS,
)
def domains(panels: list[Panel], options: Options) -> Findings:
    single = {name: _split(own, options) for name, own in groups(panels, configuration).items()}
    whole = _split(panels, options)
    decisions = _decide(panels, whole)
    tested = [decision.claim for decision in decisions]
    notes = [
        f"{claim.key} cannot be tested: the pools lack one of its domains." for claim in CLAIMS if claim not in tested
    ]
    return Findings((_table(whole), _models(single)), (_chart(whole),), tuple(decisions), tuple(notes))


def _decide(panels: list[Panel], whole: Split) -> list[ClaimDecision]:
    decisions: list[ClaimDecision] = []
    for claim, anchor in ((SO_ORDER, "So*"), (BOUNDARY_ORDER, "boundary")):
        math, science, code = (whole.mean(domain, anchor, "selection") for domain in DOMAINS)
        if math and science and code:
            second = science if claim is SO_ORDER else math
            gaps = math.minus(science), second.minus(code)
            decisions.append(all_of(claim, [above(claim, gap, unit="points", threshold=POINT) for gap in gaps]))
    if programs := whole.mean("code", "So*", "selection"):
        decisions.append(within(NULL, programs, unit="points", margin=NULL_MARGIN))
    reached, full = whole.mean("math", "boundary", "anchor"), whole.mean("math", "boundary", "full")
    if reached and full:
        made = above(MECHANICAL, reached.minus(full, LARGE), unit="points", threshold=POINT)
        finished = all_arrive(of_domains(panels, ("math",)), request("boundary", LATE), POINT)
        decisions.append(replace(made, inexpressible=finished))
    return decisions


def _cells(split: Split, domain: str, anchor: str) -> list[Cell]:
    lift = split.gains[domain, anchor]
    return [*gain_cells(lift.selection, lift.test(within=True)), *gain_cells(lift.full, lift.test())]


def _table(whole: Split) -> Table:
    rows = []
    for domain in DOMAINS:
        gain = whole.mean(domain, "boundary", "anchor")
        cells = [Cell(domain), Cell(whole.problems(domain, "So*"), "count"), *_cells(whole, domain, "So*")]
        cells += [*_cells(whole, domain, "boundary"), shown(gain.estimate if gain else None, "points")]
        rows.append(Row(tuple(cells), "these pools"))
    for domain, values in PAPER.items():
        cells = [Cell(value / 100, "points") if i % 2 == 0 else Cell(value, "number") for i, value in enumerate(values)]
        for i in range(0, 8, 2):
            cells[i] = Cell(values[i] / 100, "points", stars="*" if abs(values[i + 1]) >= 1.96 else "")
        rows.append(Row((Cell(domain), missing("not printed"), *cells), "the paper"))
    titles = [f"{anchor} {part}" for anchor in ANCHORS for part in ("delta-sel", "z", "delta-full", "z of delta-full")]
    columns = tuple(map(Column, ("domain", "problems", *titles, "boundary delta-anchor")))
    note = f"B = {LATE} here, 32,768 in the paper; z by the Poisson-binomial test; * where |z| is 1.96 or more."
    return Table("domains", "What the selector gains, by domain", columns, tuple(rows), (note,), "source")


def _models(single: dict[str, Split]) -> Table:
    columns = [Column("configuration")]
    columns += [Column(f"{domain}, {anchor}", "95% CI") for domain in DOMAINS for anchor in ANCHORS]
    rows = []
    for name, own in single.items():
        cells = [Cell(name)]
        for domain in DOMAINS:
            for anchor in ANCHORS:
                mean = own.mean(domain, anchor, "selection")
                cells.append(shown(mean.estimate, "points", mean.interval) if mean else missing("no eligible problem"))
        rows.append(Row(tuple(cells)))
    return Table("domains-configurations", "delta-sel by configuration", tuple(columns), tuple(rows))


def _chart(whole: Split) -> Chart:
    def series(part: str) -> list[Series]:
        out = []
        for anchor in ANCHORS:
            means = {domain: mean for domain in DOMAINS if (mean := whole.mean(domain, anchor, part))}
            ends = [mean.interval for mean in means.values()]
            values = [100 * mean.estimate for mean in means.values()]
            low, high = ([100 * end[i] for end in ends] for i in (0, 1))
            out.append(Series(anchor, list(means), values, low, high))
        return [one for one in out if one.x]

    names = {"selection": "Selection (delta-sel)", "anchor": "Who is located (delta-anchor)"}
    plots = [Plot("bars", title, y="points", series=series(part)) for part, title in names.items()]
    return Chart("domains", "In which domains does the selector select?", plots, shared_y=True)
