"""A real Chromium without a window, and what it says of a page."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import axe_core_python
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

AXE = next(Path(axe_core_python.__file__).parent.rglob("axe.min.js"))
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900")


def start() -> Chrome:
    options = Options()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))


class Page:
    """A page in the browser, read and used as a visitor does."""

    def __init__(self, browser: Chrome, place: Path | str) -> None:
        self.browser, self.url = browser, place if isinstance(place, str) else place.as_uri()
        self.forget()
        self.open("")

    def forget(self) -> None:
        """Leave what was open, which may still ask its server, and drop what it and earlier pages did."""
        self.browser.get("about:blank")
        for kind in ("browser", "performance"):
            self.browser.get_log(kind)

    def open(self, link: str) -> None:
        """Follow a link into the page, or open it."""
        self.browser.get(self.url + link)
        self.wait("document.documentElement.dataset.ready")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 20.0) -> Any:
        """Wait until an expression holds, and return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(f"return {condition}"):
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {condition}; the page says {self.text('body')[:500]!r}")

    def text(self, selector: str) -> str:
        """The text of the first such element, as it is in the document."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((x) => x.textContent)", selector))

    def click(self, selector: str, nth: int = 0) -> None:
        node = self.browser.find_elements("css selector", selector)[nth]
        self.run("arguments[0].scrollIntoView({block: 'center'})", node)
        node.click()

    def press(self, key: str) -> None:
        self.browser.switch_to.active_element.send_keys(key)

    def theme(self, name: str) -> None:
        while self.run("return document.documentElement.dataset.theme ?? 'system'") != name:
            self.click("button.theme")

    def complaints(self) -> list[str]:
        """Everything that the console said since the page was opened."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since then, other than the file itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if url.partition("#")[0] != self.url]

    def violations(self) -> list[str]:
        """What axe-core finds serious or critical."""
        return self._found({"serious", "critical"})

    def every_violation(self) -> list[str]:
        """All that axe-core finds."""
        return self._found({"minor", "moderate", "serious", "critical", None})

    def _found(self, impacts: set[str | None]) -> list[str]:
        self.run(AXE.read_text(encoding="utf-8"))
        report = self.browser.execute_async_script(
            "const done = arguments[0]; axe.run(document).then(done, (e) => done({error: String(e)}))"
        )
        return [
            f"{found['id']}: {found['help']}: {[node['html'] for node in found['nodes']][:3]}"
            for found in report["violations"]
            if found["impact"] in impacts
        ]
