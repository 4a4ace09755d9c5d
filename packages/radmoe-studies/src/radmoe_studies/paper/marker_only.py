"""Study 7: how much is left if RAD reads the marker's own tokens and nothing of the answer. (Tab. "marker-only".)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies.accuracies import accuracy_table
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINTS, Claim, ClaimDecision, above, changed
from radmoe_studies.evidence import Evidence, Floats, Panel
from radmoe_studies.picks import of_method
from radmoe_studies.pooling import configuration, groups, of_pool, shown, stack
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Resampled

MOST = 0.5  # of the lift: "most" is more than half
EXCESS = 0.005  # of accuracy, beyond that half: the paper's own 63% are 1.0 points more than half
METHODS = {
    "average": "Avg@N",
    "majority-split": "Cons@N, ties split",
    "strict": "RAD, marker only",
    "strict+dc": "RAD+DC, marker only",
    "rad": "RAD",
    "rad+dc": "RAD+DC",
    "likelihood": "likelihood",
    "text-overlap": "text overlap",
}

LIFT = Claim(
    "marker-only.most-of-the-lift",
    "RAD over the marker's own tokens keeps most of the lift over a random rollout.",
    "71.1 of 66.3 to 73.9: 63%",
    "tab:marker-only",
    f"The lift of marker-only RAD over Avg@N minus {100 * MOST:g}% of the lift of RAD, on well-posed problems, all "
    f"configurations pooled, is above {100 * EXCESS:g} points: one-sided on the bootstrap over problems.",
    changed(EFFECT),
)
FUSED = Claim(
    "marker-only.most-of-the-fused-lift",
    "RAD+DC over the marker's own tokens keeps most of the lift over a random rollout.",
    "72.8 of 66.3 to 74.2: 82%",
    "tab:marker-only",
    f"The lift of marker-only RAD+DC over Avg@N minus {100 * MOST:g}% of the lift of RAD+DC, on well-posed problems, all "
    f"configurations pooled, is above {100 * EXCESS:g} points: one-sided on the bootstrap over problems.",
    changed(EFFECT),
)
CODE = Claim(
    "marker-only.lift-on-code",
    "On code, RAD over the marker's own tokens is right more often than a random rollout.",
    "65.3 (+4.0 points)",
    "tab:marker-only",
    f"Marker-only RAD minus Avg@N on code, all configurations pooled, is above {100 * POINTS:g} points: one-sided on the bootstrap "
    "over problems.",
    changed(EFFECT),
)
PRINTED = {  # pool: lift of marker-only RAD, of RAD; in points of accuracy
    ("strict", "well-posed"): (0.711 - 0.663, 0.739 - 0.663),
    ("strict+dc", "well-posed"): (0.728 - 0.663, 0.742 - 0.663),
    ("strict", "code"): (0.040, None),
}
PARTS = (("strict", "rad"), ("strict+dc", "rad+dc"))


@study(
    7,
    "How much does RAD need of the answer's own tokens?",
    where="tab:marker-only",
    claims=(LIFT, FUSED, CODE),
)
def marker_only(evidence: Evidence, options: Options) -> Findings:
    panels = evidence.panels
    results = {
        (strict, pool): lifts(panels, pool, strict, whole, options)
        for pool in ("well-posed", "code")
        for strict, whole in PARTS
    }
    decisions: list[ClaimDecision] = []
    notes = [
        "The rows of the marker's tokens were computed before the answer's first token was known, so that none of them is "
        "conditioned on the answer.",
        "The share of the lift is the ratio of two means; the claims are tested on a difference, which is defined where "
        "the lift is small, too.",
    ]
    for claim, key, column in ((LIFT, ("strict", "well-posed"), 2), (FUSED, ("strict+dc", "well-posed"), 2),
                               (CODE, ("strict", "code"), 0)):  # fmt: skip
        result = results[key]
        if result is None:
            notes.append(f"{claim.key} cannot be tested: no {key[1]} problem has a result of {METHODS[key[0]]}.")
        else:
            least = POINTS if claim is CODE else EXCESS
            decisions.append(above(claim, result.mean(column), unit="points", threshold=least))
    sections = groups(panels, configuration)
    title = "Accuracy by configuration"
    table = accuracy_table("marker-only", title, panels, sections, METHODS, "marker-only")
    return Findings((table, _shares(results)), _charts(results), tuple(decisions), tuple(notes))


def lifts(panels: Sequence[Panel], pool: str, strict: str, whole: str, options: Options) -> Resampled | None:
    """Three columns: the lift over Avg@N of the method `strict`, that of the method `whole`, and the first minus `MOST` times the second."""

    def columns(panel: Panel) -> Floats:
        floor = of_method(panel, "average")
        narrow, wide = of_method(panel, strict) - floor, of_method(panel, whole) - floor
        rows = np.column_stack([narrow, wide, narrow - MOST * wide])
        rows[~np.isfinite(rows).all(1)] = np.nan
        return rows

    return stack(of_pool(panels, pool), columns).resampled(options.draws, options.seed)


def _share(result: Resampled) -> float:
    """The share of the lift that is kept; NaN where there is no lift to keep."""
    narrow, wide = map(float, result.estimate[:2])
    return narrow / wide if wide > 0 else np.nan


def _shares(results: Mapping[tuple[str, str], Resampled | None]) -> Table:
    rows = []
    for (strict, pool), result in results.items():
        printed = PRINTED.get((strict, pool), (None, None))
        share = printed[0] / printed[1] if printed[0] is not None and printed[1] is not None else None
        own = (None, None, None) if result is None else (*map(float, result.estimate[:2]), _share(result))
        intervals = (None, None) if result is None else (result.interval(0), result.interval(1))
        rows.append(
            Row(
                (
                    Cell(METHODS[strict]),
                    shown(own[0], "points", intervals[0]),
                    shown(own[1], "points", intervals[1]),
                    shown(own[2], "percent", note="there is no lift to keep a share of"),
                    shown(printed[0], "points", note="not printed"),
                    shown(printed[1], "points", note="not printed"),
                    shown(share, "percent", note="not printed"),
                ),
                pool,
            )
        )
    heads = (Column("marker only", "95% CI"), Column("whole window", "95% CI"), Column("share kept"))
    columns = (Column("method"), *heads, Column("paper: marker only"), Column("paper: whole"), Column("paper: share"))
    return Table("marker-only-shares", "Lift over a random rollout", columns, tuple(rows), sections="comparison")


def _charts(results: Mapping[tuple[str, str], Resampled | None]) -> tuple[Chart, ...]:
    known = {f"{METHODS[s].partition(',')[0]}, {pool}": r for (s, pool), r in results.items() if r is not None}
    if not known:
        return ()
    series = []
    for column, name in enumerate(("marker only", "16 tokens from the marker on")):
        low, high = zip(*(result.interval(column) for result in known.values()), strict=True)
        values = [100 * float(result.estimate[column]) for result in known.values()]
        series.append(Series(name, list(known), values, [100 * v for v in low], [100 * v for v in high]))
    plot = Plot("bars", y="gain over a random rollout (points)", series=series)
    return (Chart("marker-only", "How much does RAD need of the answer's own tokens?", (plot,)),)
