"""Every form of chart becomes an SVG and a PNG; words of others are visible, and nothing is drawn twice differently."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from radmoe_studies.report.charts import draw
from radmoe_studies.report.figures import Chart, Grid, Line, Plot, Series

BAND = Series("RAD", [2, 4, 8], [0.5, 0.6, 0.7], [0.4, 0.5, 0.6], [0.6, 0.7, 0.8])
PLOTS = {
    "lines": Plot(
        "lines", "title", "m", "right", series=(BAND, Series("chance", [2, 4, 8], [0.5] * 3)), logarithmic=True
    ),
    "two axes": Plot("lines", y="left", right="purity", series=(BAND, Series("p", [2, 4], [1, 2], axis="right"))),
    "bars": Plot("bars", series=(Series("a", ["x", "y"], [1, 2], [0, 1], [2, 3]), Series("b", ["x"], [1]))),
    "points": Plot("points", series=(Series("a", [1.0], [2.0], labels=["here"]),), lines=(Line(1.0, "one", "x"),)),
    "rows": Plot("rows", series=(Series("a", ["x", "y"], [1, 2], [0, 1], [2, 3]), Series("b", ["x"], [1]))),
    "dumbbells": Plot("dumbbells", series=(Series("c0", ["math"], [0.5]), Series("full", ["math"], [0.6]))),
    "heat": Plot("heat", grid=Grid(["1"], ["a", "b", "c"], [[1.0, -2.0, None]], boxed=[(0, 0)], hatched=[(0, 2)])),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_chart_is_written_as_svg_and_png(name: str, tmp_path: Path) -> None:
    svg, png = draw(Chart("key", "A title", (PLOTS[name],), note="What to see."), tmp_path)
    assert "A title" in svg.read_text()
    with Image.open(png) as image:
        assert min(image.size) > 300
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20


@pytest.mark.slow
def test_the_same_chart_gives_the_same_svg(tmp_path: Path) -> None:
    chart = Chart("key", "A title", (PLOTS["lines"], PLOTS["bars"]))
    one, other = (draw(chart, tmp_path / place)[0].read_text() for place in "ab")
    assert one == other


def test_hostile_names_are_shown_and_not_run(tmp_path: Path) -> None:
    plot = Plot("bars", series=(Series("<script>alert(1)</script>", ["\x1b[31m$\\frac"], [1.0]),))
    text = draw(Chart("key", "<b>&", (plot,)), tmp_path)[0].read_text()
    assert "<script" not in text
    assert "\x1b" not in text


def test_the_second_line_of_a_group_is_broken(tmp_path: Path) -> None:
    one, other = (Series(name, [1, 2], [1, 2], group="RAD") for name in ("boundary", "delimiter"))
    apart, together = (
        draw(Chart(key, "A title", (Plot("lines", series=series),)), tmp_path)[0]
        .read_text()
        .count("stroke-dasharray: 5")
        for key, series in (("apart", (one,)), ("together", (one, other)))
    )
    assert (apart, together) == (0, 1)
