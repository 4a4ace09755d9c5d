"""The page at / in a real Chromium: selections appear as they are made, and nothing that a model wrote is markup."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.slow

AXE = next(Path(axe_core_python.__file__).parent.rglob("axe.min.js"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = Options()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))
    yield made
    made.quit()


def wait(browser: Chrome, condition: str) -> Any:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if value := browser.execute_script(f"return {condition}"):
            return value
        time.sleep(0.05)
    raise AssertionError(
        f"never true: {condition}; the page says {browser.find_element(By.TAG_NAME, 'body').text[:300]!r}"
    )


def visit(browser: Chrome, url: str) -> None:
    """Open a page; what an earlier one complained about, whose gateway has ended, is forgotten."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(url)


def rows(count: int) -> str:
    return f"document.querySelectorAll('#list tr').length === {count}"


def complaints(browser: Chrome) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def test_selections_appear_live_and_open(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any, tmp_path: Path
) -> None:
    made = gateway(upstreams=(upstream(fault="script").url,))
    made.ask()
    visit(browser, made.url)
    wait(browser, rows(1))
    second = made.ask({"n": 16}, model="planted").json()
    wait(browser, rows(2))
    first = browser.find_element(By.CSS_SELECTOR, "#list tr")
    assert "16" in first.text
    assert "<script>alert(1)</script>" in first.text
    first.find_element(By.TAG_NAME, "a").click()
    wait(browser, "document.documentElement.dataset.ready")
    assert second["id"] in browser.current_url
    shown = browser.find_element(By.ID, "content").text
    assert f"answered with rollout {second['radmoe']['pick']}" in shown
    assert browser.execute_script("return document.querySelectorAll('script').length") == 1
    assert complaints(browser) == []
    browser.save_screenshot(str(tmp_path / "selection.png"))
    browser.back()
    wait(browser, rows(2))
    browser.execute_script(AXE.read_text())
    found = browser.execute_async_script("axe.run().then((found) => arguments[0](found.violations.map((v) => v.id)))")
    assert found == []
    browser.save_screenshot(str(tmp_path / "live.png"))


def test_where_there_are_keys_the_page_asks_for_one(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any
) -> None:
    made = gateway(upstreams=(upstream().url,), keys=("the-key",))
    made.client.headers["Authorization"] = "Bearer the-key"
    made.ask()
    visit(browser, made.url)
    wait(browser, "!document.getElementById('unlock').hidden")
    assert browser.execute_script("return " + rows(0))
    browser.find_element(By.ID, "key").send_keys("the-key")
    browser.find_element(By.CSS_SELECTOR, "#unlock button").click()
    wait(browser, rows(1))
    browser.find_element(By.CSS_SELECTOR, "#list a").click()
    wait(browser, "document.documentElement.dataset.ready")
    assert [message for message in complaints(browser) if "401" not in message] == []


def test_a_gateway_that_is_gone_is_said(browser: Chrome, gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream().url,))
    visit(browser, made.url)
    wait(browser, "document.getElementById('status').textContent.startsWith('0 selections')")
    made.__exit__()
    wait(browser, "document.getElementById('status').textContent === 'The gateway does not answer.'")
