"""Study 19: does RAD add more to a model that does not think? (App. "Thinking vs. instruct".)

One model in two styles on the same problems; contrasts are over problems that are eligible in both.
"""

from __future__ import annotations

from collections.abc import Mapping

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINT, POINTS, Claim, ClaimDecision, above, changed
from radmoe_studies.evidence import Evidence, Panel
from radmoe_studies.lifts import COHORT, DENSE, FULL, FUSED, Contrast, Lift, lifts, paired, wanted
from radmoe_studies.needs import PAIRS
from radmoe_studies.paper_tables import percent, printed
from radmoe_studies.pooling import STARS, adjusted, configuration, groups, of_pool, shown, stars_of
from radmoe_studies.report.figures import Chart, Plot, Series

STYLES = ("instruct", "thinking")
POOLS = ("math", "science", "well-posed")
TIMES = 2.0  # "2-3 times as much": at least twice

_PAIRED = "on math problems eligible in both, all models with both styles pooled"
MORE = Claim(
    "think-instruct.instruct-gains-more",
    "RAD adds more to a random located rollout where the model does not think.",
    "+12.3 against +4.5 (30B), +7.1 against +2.2 (Next)",
    "App. effort, tab:think-instruct",
    f"Delta-sel of instruct minus delta-sel of thinking, {_PAIRED}, is above {100 * POINTS:g} points: one-sided on the paired "
    "bootstrap over problems.",
    changed(EFFECT),
)
TWICE = Claim(
    "think-instruct.at-least-twice",
    "It adds two to three times as much.",
    "2.7 and 3.2 times",
    "App. effort, tab:think-instruct",
    f"Delta-sel of instruct minus {TIMES:g} times delta-sel of thinking, {_PAIRED}, is above {100 * POINT:g} point: one-sided on the "
    "paired bootstrap over problems.",
    changed(EFFECT),
)
CONVERGE = Claim(
    "think-instruct.thinking-converges",
    "That is because rollouts that think are right more often once they reach the anchor.",
    "avg@coh 87-92% against 61-69%",
    "App. effort, tab:think-instruct",
    f"Avg@coh of thinking minus avg@coh of instruct, {_PAIRED}, is above {100 * POINTS:g} points: one-sided on the paired bootstrap "
    "over problems.",
    changed(EFFECT),
)


@study(
    19,
    "Does RAD add more to a model that does not think?",
    where="App. effort, tab:think-instruct, fig:think-instruct",
    requests=wanted,
    claims=(MORE, TWICE, CONVERGE),
    needs=(PAIRS,),
)
def think_instruct(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in of_pool(evidence.panels, "well-posed") if panel.style in STYLES]
    whole = {
        model for model in {p.model for p in panels} if {p.style for p in panels if p.model == model} == set(STYLES)
    }
    panels = sorted((p for p in panels if p.model in whole), key=lambda p: (p.model, STYLES.index(p.style)))
    tables = {panel: lifts(panel) for panel in panels}
    own = {
        (name, pool): Lift.over(of_pool(part, pool), tables, options.draws, options.seed)
        for name, part in groups(panels, configuration).items()
        for pool in POOLS
    }
    rows = paired(of_pool(panels, "math"), *STYLES, tables)
    decisions: list[ClaimDecision] = []
    notes = list[str]()
    contrasts: dict[str, Contrast] = {}
    if len(rows.table):
        contrast = Contrast(rows, options.draws, options.seed)
        instruct, thinking = contrast.lift(0), contrast.lift(1)
        decisions.append(above(MORE, instruct.minus(thinking), unit="points", threshold=POINTS))
        decisions.append(above(TWICE, instruct.minus(thinking, TIMES), unit="points", threshold=POINT))
        offset = len(contrast.means.estimate) // 2
        converged = contrast.means.difference(offset + COHORT, COHORT)
        decisions.append(above(CONVERGE, converged, unit="points", threshold=POINTS))
        contrasts["all"] = contrast
    else:
        notes.append("No claim can be tested: no math problem is eligible in both styles of one model.")
    for model in dict.fromkeys(panel.model for panel in panels):
        part = paired([p for p in of_pool(panels, "math") if p.model == model], *STYLES, tables)
        if len(part.table):
            contrasts[model] = Contrast(part, options.draws, options.seed)
    return Findings((_table(own), _contrasts(contrasts)), _charts(own, panels), tuple(decisions), tuple(notes))


def _table(own: Mapping[tuple[str, str], Lift]) -> Table:
    rows = []
    corrected = dict(zip(own, adjusted([lift.p if lift else None for lift in own.values()]), strict=True))
    for name in dict.fromkeys(name for name, _ in own):
        math = own[name, "math"]
        means = [shown(math.mean(column) if math else None, "percent") for column in (FULL, COHORT, DENSE, FUSED)]
        gains = []
        for pool in POOLS:
            lift = own[name, pool]
            gain = lift.selection if lift else None
            value, bounds = (None, None) if gain is None else (gain.estimate, gain.interval)
            gains.append(shown(value, "points", bounds, stars=stars_of(corrected[name, pool])))
        rows.append(Row((Cell(name), Cell(math.n, "count"), *means[:2], *gains, *means[2:]), "here"))
    for row in printed("think-instruct"):
        first = [shown(percent(row[key]), "percent") for key in ("avg64", "avg_coh")]
        gains = [shown(percent(row[key]), "points") for key in ("sel_math", "sel_gpqa", "sel_wp")]
        last = (shown(percent(row["rad"]), "percent"), missing("not printed"))
        rows.append(Row((Cell(row["model"]), missing("see tab:per-model"), *first, *gains, *last), "paper"))
    heads = (Column("configuration"), Column("eligible, math"), Column("Avg@N, math"), Column("avg@coh, math"))
    gain_heads = tuple(Column(f"delta-sel, {pool}", "95% CI") for pool in POOLS)
    columns = (*heads, *gain_heads, Column("RAD, math"), Column("RAD+DC, math"))
    return Table("think-instruct", "RAD's gain with and without thinking", columns, tuple(rows), (STARS,), "comparison")


def _contrasts(contrasts: Mapping[str, Contrast]) -> Table:
    rows = []
    for name, contrast in contrasts.items():
        instruct, thinking = contrast.lift(0).estimate, contrast.lift(1).estimate
        gap = contrast.difference()
        ratio = instruct / thinking if thinking > 0 else None
        cells = (
            shown(instruct, "points"),
            shown(thinking, "points"),
            shown(gap.estimate, "points", gap.interval),
            shown(ratio, "number", note="thinking gains nothing to divide by"),
        )
        rows.append(Row((Cell(name), Cell(contrast.n, "count"), *cells)))
    heads = (Column("model"), Column("problems"), Column("delta-sel, instruct"), Column("delta-sel, thinking"))
    columns = (*heads, Column("difference", "95% CI"), Column("ratio"))
    return Table("think-instruct-pairs", "The same math problems in both styles", columns, tuple(rows))


def _charts(own: Mapping[tuple[str, str], Lift], panels: list[Panel]) -> tuple[Chart, ...]:
    names = list(dict.fromkeys(panel.configuration for panel in panels))
    series = []
    for pool in POOLS:
        known = [name for name in names if own[name, pool]]
        gains = [own[name, pool].selection for name in known]
        if gains:
            low, high = zip(*(gain.interval for gain in gains), strict=True)
            values = [100 * gain.estimate for gain in gains]
            series.append(Series(pool, known, values, [100 * v for v in low], [100 * v for v in high]))
    if not series:
        return ()
    plot = Plot("bars", y="delta-sel (points)", series=series)
    return (Chart("think-instruct", "Does RAD add more to a model that does not think?", (plot,)),)
