"""Study 6: how often each method returns a right rollout. (Tab. "main".)

All methods have the same denominator: an abstention, or a vote without voters, is wrong. Likelihood and text overlap are
not in the paper: they read what RAD does not, and cost less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies.accuracies import POOLED, VOTES, accuracy_table
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import EFFECT, POINT, POINTS, Claim, ClaimDecision, above, changed, within
from radmoe_studies.evidence import Evidence, Floats, Panel
from radmoe_studies.picks import of_method
from radmoe_studies.pooling import (
    HOLM,
    PAIRED,
    adjusted,
    configuration,
    groups,
    of_pool,
    paired,
    problems_of,
    shown,
    stack,
)
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Resampled

MARGIN = 0.01  # one point: the resolution at which the paper calls RAD and the vote tied
METHODS = {
    "average": "Avg@N",
    "majority-split": "Cons@N, ties split",
    "majority": "Cons@N, first seen",
    "deepconf": "DeepConf",
    "rad": "RAD",
    "rad+dc": "RAD+DC",
    "likelihood": "likelihood",
    "text-overlap": "text overlap",
    "oracle": "oracle",
}

ON_PAR = Claim(
    "main.on-par-with-majority",
    "Where voting works, RAD is on par with the majority.",
    "+0.28 points [-0.50, +1.07], p = .52",
    "tab:main",
    f"RAD minus majority (ties split by expectation) on well-posed problems, all configurations pooled, lies within "
    f"{100 * MARGIN:g} point of 0: two one-sided tests on the bootstrap over problems.",
)
FUSED = Claim(
    "main.fusion-on-par-with-majority",
    "Where voting works, RAD+DC is on par with the majority.",
    "+0.57 points [-0.22, +1.35], p = .18",
    "tab:main",
    f"RAD+DC minus majority (ties split) on well-posed problems, all configurations pooled, lies within {100 * MARGIN:g} "
    "point of 0: two one-sided tests on the bootstrap over problems.",
)
LIFT = Claim(
    "main.above-average",
    "RAD is right more often than a random rollout.",
    "73.9 against 66.3",
    "tab:main",
    f"RAD minus Avg@N on well-posed problems, all configurations pooled, is above {100 * POINTS:g} points: one-sided on the "
    "bootstrap over problems.",
    changed(EFFECT),
)
CODE = Claim(
    "main.defined-on-code",
    "On code, where exact votes mean nothing, RAD still is right more often than a random rollout.",
    "+0.6 to +9.7 points by family",
    "tab:main",
    f"RAD minus Avg@N on code, all configurations pooled, is above {100 * POINT:g} point: one-sided on the bootstrap over problems.",
    changed(EFFECT),
)
RULES = ((ON_PAR, "rad", "majority-split", "well-posed"), (FUSED, "rad+dc", "majority-split", "well-posed"),
         (LIFT, "rad", "average", "well-posed"), (CODE, "rad", "average", "code"))  # fmt: skip
COMPARISONS = (
    *((one, "majority-split", "well-posed") for one in ("rad", "rad+dc", "likelihood", "text-overlap")),
    ("rad", "majority", "well-posed"),
    ("rad+dc", "majority", "well-posed"),
    *((one, "average", pool) for pool in POOLED for one in ("rad", "rad+dc", "likelihood", "text-overlap")),
    *(("rad", one, pool) for pool in POOLED for one in ("likelihood", "text-overlap")),
)
PRINTED_GAPS = {("rad", "majority", "well-posed"): 0.0028, ("rad+dc", "majority", "well-posed"): 0.0057}


@study(
    6,
    "How often does each method return a right rollout?",
    where="tab:main",
    claims=(ON_PAR, FUSED, LIFT, CODE),
)
def main(evidence: Evidence, options: Options) -> Findings:
    panels = evidence.panels
    families = groups(panels, lambda panel: panel.family)
    configurations = groups(panels, configuration)
    accuracies = (
        accuracy_table("main-families", "Accuracy by family", panels, families, METHODS, "main"),
        accuracy_table("main-configurations", "Accuracy by configuration", panels, configurations, METHODS),
    )
    decisions, notes = [], []
    for claim, one, other, pool in RULES:
        result = difference(panels, pool, one, other, options)
        if result is None:
            notes.append(
                f"{claim.key} cannot be tested: no {pool} problem has both {METHODS[one]} and {METHODS[other]}."
            )
        else:
            decisions.append(_decide(claim, result))
    notes += [
        "The paper's majority beats chance at two rollouts, which a fair tie-break cannot; so ties are split here, and the "
        "vote that takes the first answer seen stands beside it.",
        "Well-posed and code are averages over problems of all data sets of that kind. Confidence windows have "
        f"{panels[0].setting.confidence_window} tokens."
        if panels
        else "There is no panel.",
    ]
    reasons = {f"{METHODS[m]}: {why}" for panel in panels for m, why in panel.outcomes.missing.items() if m in METHODS}
    tables = (*accuracies, _differences(panels, options))
    return Findings(tables, _charts(panels, options), tuple(decisions), (*notes, *sorted(reasons)))


def difference(panels: Sequence[Panel], pool: str, one: str, other: str, options: Options) -> Resampled | None:
    """Mean accuracies of two methods and their paired difference on a pool of problems; None where neither is known.

    Columns: one, other, one - other; rows are problems that both have.
    """

    def pairs(panel: Panel) -> Floats:
        a, b = of_method(panel, one), of_method(panel, other)
        return np.column_stack([np.where(np.isfinite(b), a, np.nan), np.where(np.isfinite(a), b, np.nan), a - b])

    return stack(of_pool(panels, pool), pairs).resampled(options.draws, options.seed)


def _decide(claim: Claim, result: Resampled) -> ClaimDecision:
    if claim in (ON_PAR, FUSED):
        return within(claim, result.mean(2), unit="points", margin=MARGIN)
    return above(claim, result.mean(2), unit="points", threshold=POINTS if claim is LIFT else POINT)


def _differences(panels: Sequence[Panel], options: Options) -> Table:
    rows, tests = list[tuple[str, list[Cell], Cell]](), list[float | None]()
    for one, other, pool in COMPARISONS:
        result = difference(panels, pool, one, other, options)
        if result is None:
            continue
        own = of_pool(panels, pool)
        pairs = np.array([np.concatenate([of_method(panel, m) for panel in own]) for m in (one, other)])
        known = np.isfinite(pairs).all(0)
        x, y = pairs[:, known]
        exact = np.isin(x, (0, 1)).all() and np.isin(y, (0, 1)).all()
        problems = [problem for problem, here in zip(problems_of(own), known, strict=True) if here]
        tests.append(paired(x, y, problems).p if exact else None)
        ours = [
            Cell(f"{METHODS[one]} - {METHODS[other]}"),
            Cell(result.n, "count"),
            shown(result.estimate[2], "points", result.interval(2)),
        ]
        rows.append((pool, ours, shown(PRINTED_GAPS.get((one, other, pool)), "points", note="not printed")))
    columns = (
        Column("comparison"),
        Column("problems"),
        Column("difference", "95% CI"),
        Column("p"),
        Column("Holm p"),
        Column("paper"),
    )
    made = []
    for (pool, ours, printed), *p in zip(rows, tests, adjusted(tests), strict=True):
        both = (shown(value, "p", note="not every problem is right or wrong") for value in p)
        made.append(Row((*ours, *both, printed), pool))
    return Table("main-differences", "Methods on the same problems", columns, tuple(made), (PAIRED, HOLM), "comparison")


def _charts(panels: Sequence[Panel], options: Options) -> tuple[Chart, ...]:
    plots = []
    for pool in POOLED:
        names, values, lows, highs = [], [], [], []
        for method, label in METHODS.items():
            result = difference(panels, pool, method, "average", options)
            if result is None or method in ("average", "oracle") or (pool == "code" and method in VOTES):
                continue
            low, high = result.interval(2)
            names.append(label)
            values.append(100 * float(result.estimate[2]))
            lows.append(100 * low)
            highs.append(100 * high)
        if names:
            plots.append(
                Plot(
                    "bars",
                    pool,
                    y="gain over a random rollout (points)",
                    series=(Series(pool, names, values, lows, highs),),
                )
            )
    title = "How often does each method return a right rollout?"
    return (Chart("main", title, plots, shared_y=True),) if plots else ()
