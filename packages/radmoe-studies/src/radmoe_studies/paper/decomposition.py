"""Study 10: the parts of the lift of every configuration. (Tab. "per-model".) It reports and decides nothing."""

from __future__ import annotations

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.evidence import Evidence
from radmoe_studies.lifts import COHORT, DENSE, FULL, MAJORITY, Lift, lifts, wanted
from radmoe_studies.paper_tables import percent, pool_of, printed
from radmoe_studies.pooling import POOLS, STARS, adjusted, configuration, groups, of_pool, shown, stars_of
from radmoe_studies.report.figures import Chart, Plot, Series

MEANS = ("avg_full", "avg_coh", "maj", "dens")  # columns of the paper's table


@study(
    10,
    "What is RAD's lift made of, by configuration?",
    where="App. effort, tab:per-model",
    requests=wanted,
)
def decomposition(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if wanted(panel)]
    tables = {panel: lifts(panel) for panel in panels}
    parts = {
        (pool, name): Lift.over(own, tables, options.draws, options.seed)
        for pool in POOLS
        for name, own in [*groups(of_pool(panels, pool), configuration).items(), ("all", of_pool(panels, pool))]
        if own
    }
    notes = [
        "Delta-anchor is what reaching the anchor tells about a rollout; delta-sel is what RAD adds to a random located "
        "rollout. Votes are scored by expectation over tied answers.",
        "In the paper 3,153 of 3,180 well-posed and 1,625 of 1,670 code problems are eligible.",
    ]
    nobody = sorted({f"{name} ({pool})" for (pool, name), lift in parts.items() if not lift and name != "all"})
    if nobody:
        notes.append(f"No eligible problem: {', '.join(nobody)}.")
    known = {key: lift for key, lift in parts.items() if lift}
    return Findings((_table(known),), _charts(known), (), tuple(notes)) if known else Findings(notes=tuple(notes))


def _table(parts: dict[tuple[str, str], Lift]) -> Table:
    rows = []
    corrected = adjusted([lift.p for lift in parts.values()])
    for ((pool, name), lift), p in zip(parts.items(), corrected, strict=True):
        anchor, gain, full, share = lift.anchor, lift.selection, lift.full, lift.headroom
        vote = shown(None if pool == "code" else lift.mean(MAJORITY), "percent", note="no vote over programs")
        cells = (
            Cell(lift.n, "count"),
            Cell(lift.of, "count"),
            shown(lift.mean(FULL), "percent"),
            shown(lift.mean(COHORT), "percent"),
            vote,
            shown(lift.mean(DENSE), "percent"),
            shown(anchor.estimate, "points", anchor.interval),
            shown(gain.estimate, "points", gain.interval, stars=stars_of(p)),
            shown(full.estimate, "points", full.interval),
            shown(share.estimate, "percent", share.interval, note="no headroom: every located rollout is right"),
        )
        rows.append(Row((Cell(name), *cells), pool))
    for row in printed("per-model"):
        means = [shown(percent(row[key]), "percent", note="no vote over programs") for key in MEANS]
        gains = [shown(percent(row[key]), "points") for key in ("d_anchor", "d_sel", "d_full")]
        first = (Cell(row["model"]), Cell(int(row["n"]), "count"), missing("see the note"))
        rows.append(Row((*first, *means, *gains, shown(percent(row["headroom"]), "percent")), f"paper, {pool_of(row)}"))
    heads = ("configuration", "eligible", "problems", "avg@full", "avg@coh", "maj", "dens")
    deltas = tuple(Column(f"delta-{name}", "95% CI") for name in ("anchor", "sel", "full"))
    columns = (*map(Column, heads), *deltas, Column("delta-sel / headroom", "95% CI"))
    return Table("decomposition", "RAD's lift, taken apart", columns, tuple(rows), (STARS,), "comparison")


def _charts(parts: dict[tuple[str, str], Lift]) -> tuple[Chart, ...]:
    plots = []
    for pool in ("math", "science", "code"):
        own = {name: lift for (where, name), lift in parts.items() if where == pool and name != "all"}
        if not own:
            continue
        series = [
            Series(label, list(own), [100 * lift.mean(column) for lift in own.values()])
            for label, column in (("all rollouts", FULL), ("located", COHORT), ("RAD's pick", DENSE))
        ]
        plots.append(Plot("dumbbells", pool, x="right (%)", series=series))
    note = "From all rollouts to located ones: delta-anchor. From there to the pick: delta-sel."
    return (Chart("decomposition", "What is RAD's lift made of?", plots, note),) if plots else ()
