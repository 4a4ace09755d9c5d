"""Bands of layers: one tenth alone, the shallowest tenths together, all but one, and how often RAD is right with each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import cochran_q
from radmoe.evaluation.table import SURE, Cell, Column, Row, Table, missing
from radmoe_studies.base import Options
from radmoe_studies.evidence import Bools, Floats, Panel, Request
from radmoe_studies.gains import of_domains
from radmoe_studies.picks import rad
from radmoe_studies.pooling import PAIRED, adjusted, paired, problems_of, shown
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
    """Whether RAD is right with every band [rows, bands] at one readout with one kernel, NaN where it has no pick, the problem of each row, and the means."""

    readout: str
    kernel: str
    hits: Floats
    problems: list[Hashable]
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
    full = np.where(np.isfinite(table), table[:, :1], np.nan)  # the full network, on the problems of each band
    both, problems = np.concatenate([table, full], axis=1), problems_of(panels)
    means = resample(both, problems, resamples=options.draws, seed=options.seed)
    return BandArms(readout, kernel, table, problems, means)


def _hits(panel: Panel, readout: str, kernel: str) -> Floats:
    requests = [request(panel, readout, kernel, band) for band in BANDS]
    nothing = np.full(len(panel), np.nan)
    return np.column_stack([nothing if one is None else rad(panel, one) for one in requests])


def loss_cell(arms: BandArms, band: str) -> Cell:
    """The accuracy that a band loses against all layers, with its interval."""
    if not arms.bands((band,)):
        return missing("no layer")
    loss = arms.loss(band)
    return shown(loss.estimate, "points", loss.interval)


def loss_p(arms: BandArms, band: str) -> float | None:
    """The exact p of a band against all layers; None where the band holds no layer."""
    if not arms.bands((band,)):
        return None
    pair, problems = _known(arms, (FULL, band))
    return paired(pair[:, 0], pair[:, 1], problems).p


def omnibus(arms: BandArms, group: tuple[str, ...]) -> float | None:
    """The p of Cochran's Q over a group of bands; None where fewer than two hold layers."""
    table, problems = _known(arms, arms.bands(group))
    if not table.size or table.shape[1] < 2:
        return None
    numbers = {problem: i for i, problem in enumerate(dict.fromkeys(problems))}
    return cochran_q(table, [numbers[problem] for problem in problems]).p


def _known(arms: BandArms, bands: Sequence[str]) -> tuple[Floats, list[Hashable]]:
    """The hits of some bands in the rows where all of them have a pick, and the problem of each row."""
    table = arms.hits[:, [BANDS.index(band) for band in bands]]
    known: Bools = np.asarray(np.isfinite(table).all(1))
    return table[known], [problem for problem, here in zip(arms.problems, known, strict=True) if here]


def bands_table(every: Mapping[tuple[str, str], BandArms]) -> Table:
    """A table of the accuracy that every band loses, at each readout with each kernel."""
    names = [band for band in BANDS[1:] if any(arms.bands((band,)) for arms in every.values())]
    tests = [loss_p(arms, band) for band in names for arms in every.values()]
    stars = iter(["*" if p is not None and p < SURE else "" for p in adjusted(tests)])
    rows = [
        Row((Cell(band), *(replace(loss_cell(arms, band), stars=next(stars)) for arms in every.values())))
        for band in names
    ]
    columns = (Column("layers"), *(Column(arms.name) for arms in every.values()))
    note = "s: one tenth alone, c: the shallowest together, x: all but one; * where p, corrected by Holm over all cells of the table, is below .05."
    return Table("layers-bands", "Accuracy with all layers minus that with some", columns, tuple(rows), (note, PAIRED))
