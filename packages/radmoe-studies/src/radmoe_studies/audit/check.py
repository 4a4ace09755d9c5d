"""The check of one published figure against its value from other published figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from radmoe_studies.audit.spans import SLACK, Span, read, unit

Verdict = Literal["agrees", "within rounding", "differs"]

# Columns of the data files that the report shows under another heading.
HEADINGS = {
    "ja": "JA",
    "wj": "WJ",
    "rad": "RAD",
    "dc": "DC",
    "rad_dc": "RAD+DC",
    "rad_only": "rad only",
    "dc_only": "dc only",
    "c50_only": "c50 only",
    "rf_only": "rf only",
    "avg64": "avg@64",
    "cons64": "Cons@64",
    "avg_full": "avg@full",
    "avg_coh": "avg@coh",
    "delta": "difference",
    "d_anchor": "anchor part",
    "d_sel": "selector part",
    "d_full": "full lift",
    "sel_math": "selector part, math",
    "sel_gpqa": "selector part, gpqa",
    "sel_wp": "selector part, well-posed",
    "boundary_full": "full lift, boundary",
    "headroom": "share of headroom",
    "holm": "Holm p",
    "n_disc": "discordant",
    "mde": "MDE at 80%",
    "boundary": "least significant gap",
    "power_1pp": "power at 1 pp",
    "power_05pp": "power at 0.5 pp",
    "mix_rad": "RAD, mixed",
    "mix_delta": "lift, mixed",
    "all_avg": "Avg@16, all",
    "all_rad": "RAD, all",
    "all_delta": "lift, all",
    "rad_lift": "RAD lift",
}


@dataclass(frozen=True, slots=True)
class Check:
    """How one figure compares with others.

    `published` is the figure as printed, `recomputed` its value from the inputs as printed, and [low, high] what the
    rounding of those inputs allows.
    """

    table: str
    row: str
    figure: str
    published: str
    recomputed: float
    low: float
    high: float
    verdict: Verdict
    arithmetic: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The figure that was checked. A figure that follows in more than one way has several checks."""
        return self.table, self.row, self.figure

    @property
    def printed(self) -> str:
        return self.published.replace("..", " to ")


def compare(
    table: str, row: str, figure: str, published: str, recomputed: Span | float, how: str, source: str = ""
) -> Check:
    """Check one figure. `how` is the arithmetic up to the equals sign, `source` says where its inputs are printed."""
    span = recomputed if isinstance(recomputed, Span) else Span.exact(recomputed)
    value = show(span.value, published)
    arithmetic = value if how in ("", value) else f"{how} = {value}"
    return Check(
        table,
        row,
        HEADINGS.get(figure, figure),
        published,
        span.value,
        span.low,
        span.high,
        _verdict(read(published), span, published),
        f"{arithmetic}, {source}" if source else arithmetic,
    )


def term(text: str) -> str:
    """A printed figure as it stands inside a sum: without a leading plus, and in brackets if negative."""
    return f"({text})" if text.startswith("-") else text.removeprefix("+")


def terms(weights: Sequence[int], figures: Sequence[str]) -> str:
    """A weighted sum of printed figures, written out."""
    return " + ".join(f"{n} x {term(figure)}" for n, figure in zip(weights, figures, strict=True))


def _verdict(published: Span, recomputed: Span, text: str) -> Verdict:
    slack = SLACK * unit(text) / 2
    if published.low - slack <= recomputed.value <= published.high + slack:
        return "agrees"
    if recomputed.high >= published.low - slack and recomputed.low <= published.high + slack:
        return "within rounding"
    return "differs"


def show(value: float, like: str) -> str:
    """A recomputed value with two more places than are printed, and without trailing zeros among those two."""
    if value and abs(value) < 1e-4:
        return f"{value:.3g}"
    places = len(like.partition("..")[0].partition(".")[2])
    whole, _, rest = f"{value:.{places + 2}f}".partition(".")
    return f"{whole}.{rest[:places]}{rest[places:].rstrip('0')}".rstrip(".")
