"""One published figure against what other published figures say it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from radmoe.audit.spans import SLACK, Span, read, unit

Verdict = Literal["agrees", "within rounding", "differs"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "within rounding", "differs")

# columns of the data files whose printed heading is another
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
    """`published` as printed; `recomputed` from the inputs as printed; [low, high] what their rounding allows."""

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
        """The figure that was checked; it may follow in more than one way."""
        return self.table, self.row, self.figure

    @property
    def printed(self) -> str:
        return self.published.replace("..", " to ")


def compare(table: str, row: str, figure: str, published: str, got: Span | float, how: str, source: str = "") -> Check:
    """The check of one figure: `how` is the arithmetic up to the equals sign, `source` where its inputs stand."""
    span = got if isinstance(got, Span) else Span.exact(got)
    value = show(span.value, published)
    said = value if how in ("", value) else f"{how} = {value}"
    return Check(
        table,
        row,
        HEADINGS.get(figure, figure),
        published,
        span.value,
        span.low,
        span.high,
        _verdict(read(published), span, published),
        f"{said}, {source}" if source else said,
    )


def term(text: str) -> str:
    """A printed figure inside a sum: no leading plus, negatives in brackets."""
    return f"({text})" if text.startswith("-") else text.removeprefix("+")


def terms(weights: Sequence[int], figures: Sequence[str]) -> str:
    """A weighted sum of printed figures."""
    return " + ".join(f"{n} x {term(figure)}" for n, figure in zip(weights, figures, strict=True))


def _verdict(published: Span, got: Span, text: str) -> Verdict:
    slack = SLACK * unit(text) / 2
    if published.low - slack <= got.value <= published.high + slack:
        return "agrees"
    if got.high >= published.low - slack and got.low <= published.high + slack:
        return "within rounding"
    return "differs"


def show(value: float, like: str) -> str:
    """A recomputed value with two more places than printed, and without idle zeros."""
    if value and abs(value) < 1e-4:
        return f"{value:.3g}"
    places = len(like.partition("..")[0].partition(".")[2])
    whole, _, rest = f"{value:.{places + 2}f}".partition(".")
    return f"{whole}.{rest[:places]}{rest[places:].rstrip('0')}".rstrip(".")
