"""Study 18: what does reasoning effort do to RAD's lift? (App. "Reasoning effort: a ceiling effect, not lost skill".)

The same problems at three efforts of one model. Contrasts are over problems that are eligible at both efforts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINTS, Claim, ClaimDecision, above, all_of, changed, within
from radmoe_studies.evidence import Evidence, Floats, Panel
from radmoe_studies.gains import all_arrive
from radmoe_studies.lifts import (
    COHORT,
    DENSE,
    FULL,
    FUSED,
    MAJORITY,
    Contrast,
    Lift,
    lifts,
    paired,
    wanted,
)
from radmoe_studies.needs import EFFORTS
from radmoe_studies.paper_tables import percent, pool_of, printed
from radmoe_studies.picks import standard
from radmoe_studies.pooling import STARS, adjusted, of_pool, shown, stars_of
from radmoe_studies.report.figures import Chart, Plot, Series

STYLES = ("low", "medium", "high")
POOLS = ("math", "well-posed")
RESAMPLES = 5_000  # the paper's, for the paired bootstrap
SHARE_MARGIN = 0.05  # of the headroom: a smaller share than at low effort by less than this is "equal"
LIFT_MARGIN = 0.03  # points of accuracy by which the operational lift may move and still "stay"

_PAIRED = "on math problems eligible at both, all models with efforts pooled"
GAIN = Claim(
    "effort.gain-shrinks",
    "With more effort, RAD adds less to a random located rollout.",
    "+12.2 / +11.2 / +3.6 points; low - high +9.3 and +9.2",
    "App. effort, tab:effort-trend",
    f"Delta-sel at low effort minus delta-sel at high effort, {_PAIRED}, is above {100 * POINTS:g} points: one-sided on the paired "
    "bootstrap over problems.",
    changed(EFFECT),
)
SKILL = Claim(
    "effort.skill-stays",
    "It is a ceiling: the share of the headroom that RAD takes does not fall.",
    "21% / 39% / 43% of the headroom",
    "App. effort, tab:effort-decomp",
    f"Delta-sel as a share of 1 - avg@coh, at high effort minus at low effort, {_PAIRED}, is above -{100 * SHARE_MARGIN:g}% of the "
    "headroom: one-sided on the paired bootstrap over problems.",
)
ANCHOR = Claim(
    "effort.anchor-takes-over",
    "With more effort the lift over a random rollout stays, because who reaches the anchor makes up for what selection loses.",
    "delta-full +12.2 / +12.6 / +14.6, delta-anchor +0.1 / +1.4 / +11.0 points",
    "App. effort, tab:effort-decomp",
    f"Delta-anchor at high effort minus at low effort, {_PAIRED}, is above {100 * POINTS:g} points (one-sided), and delta-full at low "
    f"effort minus at high effort lies within {100 * LIFT_MARGIN:g} points of 0 (two one-sided tests), on the paired bootstrap over "
    f"problems; the weaker decides. Not expressible where fewer than {POINTS:.0%} of the rollouts at high effort never reach the "
    "anchor: delta-anchor can be no larger than that.",
    changed(
        EFFECT,
        "two claims were one: without unfinished rollouts the lift over a random rollout is delta-sel, and its test was that of "
        "effort.gain-shrinks",
    ),
)
CLAIMS = (GAIN, SKILL, ANCHOR)
CONTRASTS = (("low", "high"), ("medium", "high"), ("low", "medium"))


@study(
    18,
    "What does reasoning effort do to RAD's lift?",
    where="App. effort, tab:effort-decomp, tab:effort-trend",
    requests=wanted,
    claims=CLAIMS,
    needs=(EFFORTS,),
)
def effort(evidence: Evidence, options: Options) -> Findings:
    draws = options.draws if options.quick else max(options.draws, RESAMPLES)
    panels = [p for p in of_pool(evidence.panels, "well-posed") if p.style in STYLES]
    tables = {panel: lifts(panel) for panel in panels}
    own = {
        (pool, style): Lift.over([p for p in of_pool(panels, pool) if p.style == style], tables, draws, options.seed)
        for pool in POOLS
        for style in STYLES
    }
    decisions, notes = _decide(of_pool(panels, "math"), tables, draws, options.seed)
    trend = _trend(panels, tables, draws, options.seed)
    return Findings((_decomposition(own), trend), _charts(own), tuple(decisions), tuple(notes))


def _decide(
    panels: Sequence[Panel], tables: Mapping[Panel, Floats], draws: int, seed: int
) -> tuple[list[ClaimDecision], list[str]]:
    rows = paired(panels, "low", "high", tables)
    if not len(rows.table):
        return [], ["No claim can be tested: no math problem is eligible at both low and high effort of one model."]
    contrast = Contrast(rows, draws, seed)
    decisions, notes = [above(GAIN, contrast.difference(), unit="points", threshold=POINTS)], list[str]()
    share = contrast.share(1).minus(contrast.share(0))
    if share.finite:
        decisions.append(above(SKILL, share, unit="share", threshold=-SHARE_MARGIN))
    else:
        notes.append(f"{SKILL.key} cannot be tested: at one effort every located rollout is right.")
    anchor = contrast.lift(1, COHORT, FULL).minus(contrast.lift(0, COHORT, FULL))
    parts = [
        above(ANCHOR, anchor, unit="points", threshold=POINTS),
        within(ANCHOR, contrast.difference(DENSE, FULL), unit="points", margin=LIFT_MARGIN),
    ]
    high = [panel for panel in panels if panel.style == "high"]
    decisions.append(replace(all_of(ANCHOR, parts), inexpressible=all_arrive(high, standard(high[0]), POINTS)))
    return decisions, notes


def _decomposition(own: Mapping[tuple[str, str], Lift]) -> Table:
    rows = []
    corrected = adjusted([lift.p if lift else None for lift in own.values()])
    for ((pool, style), lift), p in zip(own.items(), corrected, strict=True):
        if lift:
            anchor, gain, full, share = lift.anchor, lift.selection, lift.full, lift.headroom
            cells = (
                Cell(lift.n, "count"),
                shown(lift.mean(FULL), "percent"),
                shown(lift.mean(MAJORITY), "percent"),
                shown(anchor.estimate, "points", anchor.interval),
                shown(gain.estimate, "points", gain.interval, stars=stars_of(p)),
                shown(full.estimate, "points", full.interval),
                shown(share.estimate, "percent", share.interval, note="no headroom"),
                shown(lift.mean(DENSE), "percent"),
                shown(lift.mean(FUSED), "percent", note="no confidences"),
            )
            rows.append(Row((Cell(style), *cells), pool))
    for row in printed("effort-decomp"):
        first = [shown(percent(row[key]), "percent") for key in ("avg64", "cons64")]
        gains = [shown(percent(row[key]), "points") for key in ("d_anchor", "d_sel", "d_full")]
        last = [shown(percent(row[key]), "percent") for key in ("headroom", "rad", "rad_dc")]
        rows.append(
            Row((Cell(row["effort"].lower()), missing("see tab:per-model"), *first, *gains, *last), "paper, math")
        )
    heads = [Column(name) for name in ("effort", "eligible", "Avg@N", "Cons@N")]
    heads += [Column(f"delta-{name}", "95% CI") for name in ("anchor", "sel", "full")]
    columns = (*heads, Column("delta-sel / headroom", "95% CI"), Column("RAD"), Column("RAD+DC"))
    return Table("effort-lift", "RAD's lift by reasoning effort", columns, tuple(rows), (STARS,), "comparison")


def _trend(panels: Sequence[Panel], tables: Mapping[Panel, Floats], draws: int, seed: int) -> Table:
    rows = []
    for pool in POOLS:
        for model in dict.fromkeys(panel.model for panel in panels):
            for one, other in CONTRASTS:
                pairs = paired([p for p in of_pool(panels, pool) if p.model == model], one, other, tables)
                if not len(pairs.table):
                    continue
                contrast = Contrast(pairs, draws, seed)
                for method, top in (("RAD", DENSE), ("RAD+DC", FUSED)):
                    full, gain = contrast.difference(top, FULL), contrast.difference(top, COHORT)
                    cells = (
                        shown(full.estimate, "points", full.interval),
                        shown(gain.estimate, "points", gain.interval),
                    )
                    rows.append(
                        Row((Cell(f"{model}: {one} - {other}, {method}"), Cell(contrast.n, "count"), *cells), pool)
                    )
    for row in printed("effort-trend"):
        values = [Cell(percent(row[key]), "points", *_bounds(row, key)) for key in ("full", "sel")]
        name = Cell(f"{row['size']}: {row['contrast'].lower().replace('-', ' - ')}, {row['method']}")
        rows.append(Row((name, Cell(int(row["n"]), "count"), *values), f"paper, {pool_of(row)}"))
    columns = (Column("contrast"), Column("problems"), Column("delta-full", "95% CI"), Column("delta-sel", "95% CI"))
    return Table(
        "effort-trend", "Differences of lifts on the same problems", columns, tuple(rows), sections="comparison"
    )


def _bounds(row: Mapping[str, str], key: str) -> tuple[float, float]:
    return float(row[f"{key}_low"]) / 100, float(row[f"{key}_high"]) / 100


def _charts(own: Mapping[tuple[str, str], Lift]) -> tuple[Chart, ...]:
    known = {style: lift for (pool, style), lift in own.items() if pool == "math" and lift}
    if not known:
        return ()
    series = []
    for name in ("anchor", "selection", "full"):
        values = [getattr(lift, name) for lift in known.values()]
        low, high = zip(*(value.interval for value in values), strict=True)
        label = {"anchor": "delta-anchor", "selection": "delta-sel", "full": "delta-full"}[name]
        heights = [100 * value.estimate for value in values]
        series.append(Series(label, list(known), heights, [100 * v for v in low], [100 * v for v in high]))
    lift_plot = Plot("bars", "lift", x="effort", y="points", series=series)
    shares = [lift.headroom for lift in known.values()]
    low, high = zip(*(share.interval for share in shares), strict=True)
    share = Series(
        "share",
        list(known),
        [100 * share.estimate for share in shares],
        [100 * v for v in low],
        [100 * v for v in high],
    )
    share_plot = Plot("bars", "share of the headroom", x="effort", y="delta-sel / (1 - avg@coh), %", series=(share,))
    return (Chart("effort", "What does reasoning effort do to RAD's lift?", (lift_plot, share_plot)),)
