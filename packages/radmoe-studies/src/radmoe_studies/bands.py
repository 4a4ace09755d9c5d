"""Bands of layers: one tenth alone, the shallowest tenths together, all but one, and how often RAD is right with each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import cochran_q, holm, mcnemar
from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Options
from radmoe_studies.decision import ALPHA
from radmoe_studies.evidence import Floats, Panel, Request
from radmoe_studies.gains import of_domains
from radmoe_studies.picks import rad
from radmoe_studies.pooling import problems_of, shown
from radmoe_studies.resample import Quantity, Resampled, resample

READOUTS = ("boundary@marker", "boundary@16", "delimiter@marker", "delimiter@16")
KERNELS = ("weighted", "binary")
FULL = "full"
SINGLE = tuple(f"s{i}" for i in range(10))
CUMULATIVE = tuple(f"c{i}" for i in range(9))
WITHOUT = tuple(f"x{i}" for i in range(10))
GROUPS = {"single": SINGLE, "cumulative": CUMULATIVE, "all but one": WITHOUT}
BANDS = (FULL, *SINGLE, *CUMULATIVE, *WITHOUT)
K = 10  # neighbours


def layers_of(band: str, total: int) -> str | None:
    """The layers of a band as a request names them; None where its tenths hold none of `total` layers.

    Below 10 layers the shallowest tenth holds none, and the first layer stands for it.
    """
    tenth = int(band[1])
    first, last = tenth * total // 10, (tenth + 1) * total // 10
    if band == "c0":
        return None if total < 1 else "s0" if last else "0"
    if band[0] == "c":
        return band if last else None
    return band if first < last and last - first < total else None


def request(panel: Panel, readout: str, kernel: str, band: str) -> Request | None:
    """The request that reads a band of layers; None where the panel has no such band."""
    layers = None if band == FULL else layers_of(band, panel.layers)
    return Request(readout, kernel, layers, k=K) if band == FULL or layers is not None else None


def wanted(panel: Panel) -> list[Request]:
    if not of_domains([panel]):
        return []
    every = (request(panel, readout, kernel, band) for readout in READOUTS for kernel in KERNELS for band in BANDS)
    return list(dict.fromkeys(one for one in every if one is not None))


class BandArms(NamedTuple):
    """Whether RAD is right with every band [rows, bands] at one readout with one kernel, NaN where it has no pick, and the means."""

    readout: str
    kernel: str
    hits: Floats
    means: Resampled

    @property
    def name(self) -> str:
        return f"{self.readout}, {self.kernel}"

    def bands(self, group: tuple[str, ...]) -> list[str]:
        """The bands of a group that hold layers in some panel, if picks were made at all."""
        return [band for band in group if np.isfinite(self.means.draws[:, BANDS.index(band)]).all()]

    def loss(self, band: str) -> Quantity:
        """Accuracy with all layers minus that of a band, over problems that have both."""
        return self.means.difference(len(BANDS) + BANDS.index(band), BANDS.index(band))

    def gap(self, near: tuple[str, ...], far: tuple[str, ...]) -> Quantity | None:
        """The mean accuracy of some bands minus that of others; None where there are none."""
        one, other = ([BANDS.index(band) for band in self.bands(group)] for group in (near, far))
        if not one or not other:
            return None
        estimates, draws = self.means[:2]
        return self.means.quantity(
            estimates[one].mean() - estimates[other].mean(),
            draws[:, one].mean(1) - draws[:, other].mean(1),
            (*one, *other),
        )


def arms_of(panels: list[Panel], readout: str, kernel: str, options: Options) -> BandArms:
    table = np.concatenate([_hits(panel, readout, kernel) for panel in panels])
    paired = np.where(np.isfinite(table), table[:, :1], np.nan)  # the full network, on the problems of each band
    both = np.concatenate([table, paired], axis=1)
    means = resample(both, problems_of(panels), resamples=options.draws, seed=options.seed)
    return BandArms(readout, kernel, table, means)


def _hits(panel: Panel, readout: str, kernel: str) -> Floats:
    requests = [request(panel, readout, kernel, band) for band in BANDS]
    nothing = np.full(len(panel), np.nan)
    return np.column_stack([nothing if one is None else rad(panel, one) for one in requests])


def loss_cells(arms: BandArms, band: str) -> tuple[Cell, Cell, float]:
    """The accuracy that a band loses against all layers, with its interval, and McNemar's p."""
    if not arms.bands((band,)):
        return missing("no layer"), missing("no layer"), 1.0
    loss = arms.loss(band)
    pair = arms.hits[:, [0, BANDS.index(band)]]
    pair = pair[np.isfinite(pair).all(1)]
    p = mcnemar(pair[:, 0], pair[:, 1]).p
    return shown(loss.estimate, "points", loss.interval), shown(p, "p"), p


def omnibus(arms: BandArms, group: tuple[str, ...]) -> Cell:
    """The p of Cochran's Q over a group of bands."""
    table = arms.hits[:, [BANDS.index(band) for band in arms.bands(group)]]
    table = table[np.isfinite(table).all(1)]
    return shown(cochran_q(table).p, "p") if table.size and table.shape[1] > 1 else missing("fewer than two bands")


def holm_of(arms: BandArms) -> dict[str, float]:
    """McNemar's p of every band against all layers, corrected by Holm within each group of bands."""
    out: dict[str, float] = {}
    for group in GROUPS.values():
        bands = arms.bands(group)
        out |= dict(zip(bands, holm([loss_cells(arms, band)[2] for band in bands]).tolist(), strict=True))
    return out


def bands_table(every: Mapping[tuple[str, str], BandArms]) -> Table:
    """A table of the accuracy that every band loses, at each readout with each kernel."""
    adjusted = {arms: holm_of(own) for arms, own in every.items()}
    rows = []
    for band in BANDS[1:]:
        if any(arms.bands((band,)) for arms in every.values()):
            stars = ["*" if adjusted[arms].get(band, 1.0) < ALPHA else "" for arms in every]
            losses = [loss_cells(arms, band)[0] for arms in every.values()]
            rows.append(
                Row((Cell(band), *(replace(loss, stars=star) for loss, star in zip(losses, stars, strict=True))))
            )
    columns = (Column("layers"), *(Column(arms.name) for arms in every.values()))
    note = "s: one tenth alone, c: the shallowest together, x: all but one; * where McNemar's p, by Holm within each, is below .05."
    return Table("layers-bands", "Accuracy with all layers minus that with some", columns, tuple(rows), (note,))
