"""The explorer's file and its page in Chromium, and the gateway's page.

    for task in math-3 code choice; do radmoe capture --model lab-qwen --task $task -n 64 --limit 3 --out lab64/$task; done
    python -m benchmarks.explorer lab64/* [--problems 500]
    python -m benchmarks.explorer --selections 1000

The page of the pools is written; with --problems, its problems are repeated up to that number. Prints the file's size, how
long writing it took, the first view and the switch from problem to problem. With --selections instead of pools it is the page of
a gateway that has so many, of planted rollouts. Needs chromium and chromedriver
(scripts/system-packages) and selenium.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from radmoe.explorer import encode_index, page
from radmoe.report.explorer import write_report

_READY = "return document.documentElement.dataset.ready"
_SWITCH = """
const done = arguments[1];
const started = performance.now();
const wanted = `Problem ${arguments[0]} `;
const look = () => {
  if (document.querySelector(".kicker")?.textContent.startsWith(wanted)) requestAnimationFrame(() => setTimeout(() => done(performance.now() - started)));
  else setTimeout(look, 1);
};
location.hash = `#problem/${arguments[0]}`;
look();
"""
_SCROLL = """
const done = arguments[0];
const frames = [];
let last = performance.now();
const step = (now) => {
  frames.push(now - last);
  last = now;
  scrollBy(0, 40);
  if (frames.length < 60) requestAnimationFrame(step);
  else done(frames.sort((a, b) => a - b)[57]);
};
requestAnimationFrame(step);
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="The explorer's file, and its page in Chromium.")
    parser.add_argument("pools", nargs="*", type=Path)
    parser.add_argument("--problems", type=int, help="repeat the problems of the pools up to this number")
    parser.add_argument("--selections", type=int, help="measure the gateway's page with this number of selections")
    options = parser.parse_args()
    if options.selections:
        _gateway(options.selections)
        return
    if not options.pools:
        parser.error("give pools, or --selections 1000")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "report.html"
        started = time.perf_counter()
        write_report(options.pools, file)
        print(f"writing      {time.perf_counter() - started:8.1f} s")
        if options.problems:
            _repeat(file, options.problems)
        print(f"size         {file.stat().st_size / 1e6:8.2f} MB")
        _measure(file)


def _repeat(file: Path, problems: int) -> None:
    """Write the page again with its problems repeated, each with a name of its own."""
    from unpacked import unpack

    stored = dict(re.findall(r'id="(index|problem-\d+)">([^<]*)<', file.read_text(encoding="utf-8")))
    index, _ = unpack(base64.b64decode(stored.pop("index")))
    entries = islice(cycle(index["problems"]), problems)
    named = [entry | {"id": f"{entry['id']}-{number}"} for number, entry in enumerate(entries)]
    parts = {name: index[name] for name in ("pools", "methods", "tables", "verdict", "notes")}
    blocks = islice(cycle([base64.b64decode(block) for block in stored.values()]), problems)
    file.write_text("".join(page(encode_index(named, **parts), blocks)), encoding="utf-8")


def _measure(file: Path) -> None:
    from chromium import start  # the tests' own browser

    browser = start()
    try:
        views = _views(browser, file.as_uri(), 3)
        problems = browser.execute_script("return document.querySelectorAll('script[id^=problem-]').length")
        print(f"problems     {problems:8,d}")
        print(f"first view   {_seconds(views)}")
        step = max(1, problems // 24)
        switches = [browser.execute_async_script(_SWITCH, place) for place in range(1, problems + 1, step)]
        print(
            f"switch       {median(switches):8.0f} ms median, {max(switches):.0f} ms at most, to a problem not read before"
        )
        print(f"scrolling    {browser.execute_async_script(_SCROLL):8.0f} ms between frames, 95th percentile")
    finally:
        browser.quit()


def _views(browser: Any, url: str, times: int) -> list[float]:
    """Seconds from telling the browser to go until the page is there."""
    views = []
    for _ in range(times):
        browser.get("about:blank")
        started = time.perf_counter()
        browser.get(url)
        while not browser.execute_script(_READY):
            time.sleep(0.005)
        views.append(time.perf_counter() - started)
    return views


def _seconds(views: list[float]) -> str:
    return f"{median(views):8.2f} s, {max(views):.2f} s at most of {len(views)} (browser told to go, until the overview is there)"


def _gateway(selections: int) -> None:
    from chromium import start
    from planted_upstream import PlantedUpstream, save_checkpoint
    from running_gateway import MESSAGES, RunningGateway

    question = [MESSAGES[0] | {"content": "What is the sum of the first hundred primes? " * 10}]
    with (
        tempfile.TemporaryDirectory() as scratch,
        PlantedUpstream(save_checkpoint(Path(scratch) / "planted")).running() as server,
        RunningGateway(upstreams=(server.url,), recent=selections) as gateway,
    ):
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda seed: gateway.ask(messages=question, seed=seed), range(selections)))
        browser = start()
        try:
            views = _views(browser, gateway.url, 9)
            print(f"selections   {len(gateway.client.get('/live').json()['selections']):8,d}")
            print(f"data         {len(gateway.client.get('/live').content) / 1e6:8.2f} MB")
            print(f"first view   {_seconds(views)}")
        finally:
            browser.quit()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    main()
