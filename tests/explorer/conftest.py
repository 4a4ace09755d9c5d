"""One browser and one page of planted pools for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

import chromium
from planted_pools import graded_pool
from radmoe.report.explorer import write_report
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    driver = chromium.start()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def report_file(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two graded pools, of math and of code."""
    home = tmp_path_factory.mktemp("explorer")
    code = list(planted.groups(planted.Planted(problems=2, rollouts=9, tokens=80, kind="code", seed=3)))
    pools = [graded_pool(home / "math", made), graded_pool(home / "code", code, model="coder")]
    write_report(pools, home / "report.html")
    return home / "report.html"
