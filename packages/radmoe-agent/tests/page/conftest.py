"""One browser for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    driver = chromium.start()
    yield driver
    driver.quit()
