"""Study 9: how far above a random rollout is each pick? (App. "Exact random baselines".) It reports, decides nothing.

A random pick is right on problem p with the share of its right rollouts, so that its accuracy on these problems has a
known law. U95 is the upper end of its central 95%: the paper's mean + 1.96 sd, and the exact quantile beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe.evaluation import stats
from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies import picks
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.evidence import Evidence, Floats, Panel
from radmoe_studies.fusions import fused
from radmoe_studies.lifts import wanted
from radmoe_studies.pooling import HOLM, adjusted, groups, shown, stack
from radmoe_studies.report.figures import Chart, Plot, Series


class EnvelopeShard(NamedTuple):
    """One configuration on one data set: the envelope of a random pick, and what RAD does there."""

    name: str
    dataset: str
    wald: stats.Envelope
    exact: stats.Envelope
    rad: float
    fused: float
    p: float


def columns(panel: Panel) -> Floats:
    """The rate of right rollouts, and hits of RAD and RAD+DC [P, 3]; an abstention is wrong."""
    both = np.nan_to_num(fused(panel), nan=0.0) if "cbw" in panel.scalars else np.full(len(panel), np.nan)
    return np.column_stack([picks.rate(panel), np.nan_to_num(picks.rad(panel), nan=0.0), both])


def shard(name: str, dataset: str, panels: list[Panel]) -> EnvelopeShard:
    rates, hits, both = stack(panels, columns).table.T
    rates = np.clip(rates, 0, 1)
    exact = stats.random_envelope(rates, "exact")
    test = stats.poisson_binomial_test(rates, hits)
    return EnvelopeShard(
        name, dataset, stats.random_envelope(rates), exact, float(hits.mean()), float(both.mean()), test.p
    )


@study(
    9,
    "How far above a random rollout is RAD on these very problems?",
    where="App. exact",
    requests=wanted,
)
def random_envelope(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if wanted(panel)]
    if not panels:
        return Findings(notes=("There is no math, choice or code problem.",))
    shards = [
        shard(name, dataset, own)
        for dataset, part in [*groups(panels, lambda panel: panel.dataset).items(), ("all data sets", panels)]
        for name, own in [*groups(part, lambda panel: panel.configuration).items(), ("all", part)]
    ]
    outside = sum(one.rad > one.wald.upper for one in shards if "all" not in (one.name, one.dataset.split()[0]))
    total = sum("all" not in (one.name, one.dataset.split()[0]) for one in shards)
    notes = (
        f"RAD is above U95 on {outside} of {total} pairs of a configuration and a data set.",
        "The envelope answers for these problems alone: it says nothing about others. An abstention is wrong.",
    )
    return Findings((_table(shards),), (_chart(shards),), (), notes)


def _table(shards: list[EnvelopeShard]) -> Table:
    rows = [
        Row(
            (
                Cell(one.name),
                Cell(one.wald.n, "count"),
                shown(one.wald.mean, "percent"),
                shown(one.wald.upper, "percent"),
                shown(one.exact.upper, "percent"),
                shown(one.rad, "percent"),
                shown(one.rad - one.wald.upper, "points"),
                Cell(one.p, "p"),
                shown(corrected, "p"),
                shown(one.fused, "percent", note="no confidences"),
                shown(one.fused - one.wald.upper, "points", note="no confidences"),
            ),
            one.dataset,
        )
        for one, corrected in zip(shards, adjusted([one.p for one in shards]), strict=True)
    ]
    heads = (
        "configuration",
        "problems",
        "random",
        "U95",
        "U95, exact",
        "RAD",
        "RAD - U95",
        "p",
        "Holm p",
        "RAD+DC",
        "RAD+DC - U95",
    )
    title = "Accuracy above the envelope of a random rollout"
    return Table("random-envelope", title, tuple(map(Column, heads)), tuple(rows), (HOLM,), "comparison")


def _chart(shards: list[EnvelopeShard]) -> Chart:
    own = [one for one in shards if one.dataset == "all data sets" and one.name != "all"] or shards
    names = [one.name for one in own]
    series = (
        Series("random", names, [100 * one.wald.mean for one in own]),
        Series("U95", names, [100 * one.wald.upper for one in own]),
        Series("RAD", names, [100 * one.rad for one in own]),
    )
    plot = Plot("dumbbells", x="right (%)", series=series)
    return Chart("random-envelope", "How far above a random rollout is RAD on these very problems?", (plot,))
