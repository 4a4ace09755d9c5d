"""A calibration on paper: every number of its tables stands on the page, and the figure is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from planted_pools import graded_pool
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.calibration.fit import calibrate
from radmoe_studies.calibration.page import chart, write_calibration
from radmoe_studies.calibration.tables import tables


@pytest.mark.slow
def test_a_calibration_is_a_page_csv_json_and_a_figure(tmp_path: Path) -> None:
    recipe = Planted(problems=40, rollouts=8, tokens=20, shape=RouterShape(4, 16, 2))
    pool = graded_pool(tmp_path / "pool", list(planted.groups(recipe)), model="a|b\x1b[31m<script>")
    made = calibrate([pool])
    own = tables(made, resamples=100)
    files = write_calibration(made, own, tmp_path / "out", "radmoe calibrate pool")
    assert {file.name for file in files} == {f"calibration.{end}" for end in ("md", "csv", "json", "svg", "png")}
    page = (tmp_path / "out" / "calibration.md").read_text()
    assert "\x1b" not in page
    assert "a\\|b" in page
    for row in own[2].rows:
        assert isinstance(row.cells[3].value, float)
        assert f"{100 * row.cells[3].value:.1f}" in page
    body = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert [table["key"] for table in body["tables"]] == ["verdicts", "calibration", "risk-coverage", "curves"]
    drawn = chart(made, own).plots[1].series[0]
    assert list(drawn.x) == [10 * i for i in range(1, 11)]
    assert drawn.y[-1] == 100 * (own[2].rows[0].cells[3].value or 0)
    with Image.open(tmp_path / "out" / "calibration.png") as image:
        assert min(image.size) > 300
