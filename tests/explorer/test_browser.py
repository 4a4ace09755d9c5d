"""The page in a real Chromium, opened from disk: every view, every switch, keys and links; quiet, offline, accessible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from explorer.chromium import Page
from radmoe.explorer import encode_index, encode_problem, live_page
from radmoe.lab.planted import PlantedGroup
from radmoe.selector import select

PICKED = "RAD picked rollout"


@pytest.fixture
def page(browser: Chrome, report_file: Path) -> Page:
    return Page(browser, report_file)


def numbers(page: Page) -> list[int]:
    """The rollouts as the list has them."""
    return [int(text) for text in page.texts("table.rollouts tbody button")]


def test_a_visitor_clicks_through_every_view_without_an_error_or_a_request(page: Page) -> None:
    assert "6 problems" in page.text("h1")
    page.click("table.problems thead button", 1)
    page.click("details.evaluation:not([open]) summary")
    page.wait("document.querySelectorAll('details.evaluation table').length === 2")
    page.click("table.problems tbody tr:nth-child(2) a")
    page.wait("document.querySelector('.problem .why')")
    assert page.text(".why").startswith(PICKED)
    page.click(".matrix")
    page.click(".map .point")
    page.click("table.rollouts tbody tr:nth-child(4)")
    for tab in ("compare", "experts", "text"):
        page.click(f"#tab-{tab}")
        assert page.text("#tab-content").strip()
    page.click(".prompt summary") if page.texts(".prompt") else None
    page.click(".methods summary")
    page.click(".chips button")
    page.click("header .steps button", 1)
    page.wait("document.querySelector('.kicker').textContent.startsWith('Problem ')")
    page.click("button[aria-label=Help]")
    assert page.run("return document.querySelector('dialog').open")
    page.click("dialog button")
    page.click("a.home")
    page.wait("document.querySelector('table.problems')")
    assert (page.complaints(), page.requests()) == ([], [])


def test_the_sentence_and_the_list_say_what_select_says(page: Page, made: list[PlantedGroup]) -> None:
    for place, planted in enumerate(made, 1):
        pick = select(planted.group)
        page.open(f"#problem/{place}")
        page.wait(f"document.querySelector('.kicker')?.textContent.startsWith('Problem {place} ')")
        assert page.text(".why").startswith(f"{PICKED} {pick.rollout_index}.")
        assert page.text("table.rollouts tbody tr:first-child button") == str(pick.rollout_index)
        assert set(numbers(page)[: len(pick.basin)]) == set(pick.basin)
        assert len(numbers(page)) == len(planted.group)
        shown = float(page.text("table.rollouts tbody tr:first-child td:nth-child(3)"))
        assert shown == pytest.approx(pick.density[pick.index] / pick.k, abs=6e-4)
        own = page.run("return [...document.querySelectorAll('.text .t')].map((x) => x.textContent).join('')")
        assert own == planted.group.vocab.decode_bytes(planted.group.rollouts[pick.index].token_ids).decode()


def test_windows_and_anchors_are_marked_where_they_are(page: Page, made: list[PlantedGroup]) -> None:
    page.open("#problem/1")
    pick = select(made[0].group)
    anchor = pick.anchors[pick.index]
    marked = page.run("return [...document.querySelectorAll('.text .window')].map((x) => Number(x.dataset.t))")
    assert marked == list(range(anchor.start, anchor.start + 16))
    framed = page.run("return [...document.querySelectorAll('.text .anchor')].map((x) => Number(x.dataset.t))")
    assert framed == list(range(anchor.start, anchor.start + anchor.length))
    assert "boxed" in "".join(page.texts(".text .anchor"))


def test_the_readout_switch_orders_everything_anew(page: Page, made: list[PlantedGroup]) -> None:
    page.open("#problem/1")
    before = numbers(page)
    page.run("document.activeElement.blur()")
    page.browser.find_element("css selector", "body").send_keys("r")
    page.wait("document.querySelector('.kicker').textContent.includes('delimiter@marker')")
    strict = select(made[0].group, readout="delimiter@marker")
    assert page.text(".why").startswith(f"{PICKED} {strict.rollout_index}.")
    assert numbers(page) != before
    assert set(numbers(page)[: len(strict.basin)]) == set(strict.basin)
    page.open("#")
    picks = page.texts("table.problems tbody tr:first-child td.number")
    assert str(strict.rollout_index) in picks[1]


def test_links_lead_to_a_problem_two_rollouts_and_a_readout(page: Page) -> None:
    page.open("#problem/3/rollout/7/with/2?readout=boundary@16")
    page.wait("document.querySelector('.kicker')?.textContent.includes('Problem 3 of 6')")
    assert "boundary@16" in page.text(".kicker")
    assert page.text("#tab-content .facts").startswith("Rollout 7")
    page.click("#tab-compare")
    assert [text.split()[1] for text in page.texts(".beside .line strong")] == ["7", "2"]
    page.click("table.rollouts tbody tr:nth-child(5)")
    assert "#problem/3/rollout/" in page.browser.current_url
    address = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(address)
    page.wait("document.documentElement.dataset.ready")
    assert f"Rollout {address.split('/rollout/')[1].split('/')[0]}" in page.text("#tab-content .facts")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("#problem/999", "no such problem"),
        ("#problem/x", "no such problem"),
        ("#problem/1/rollout/99", "no rollout 99"),
    ],
)
def test_a_link_to_nothing_says_so(page: Page, link: str, words: str) -> None:
    page.open(link)
    page.wait("document.querySelector('.note')")
    assert words in page.text(".note")
    assert page.complaints() == []


def test_keys_move_find_and_help(page: Page) -> None:
    body = page.browser.find_element("css selector", "body")
    page.open("#problem/1")
    body.send_keys(Keys.ARROW_RIGHT)
    page.wait("location.hash.startsWith('#problem/2')")
    first = page.text("#tab-content .facts strong")
    body.send_keys(Keys.ARROW_DOWN)
    assert page.text("#tab-content .facts strong") == f"Rollout {numbers(page)[1]}" != first
    body.send_keys("p")
    assert page.text("#tab-content .facts strong") == first
    body.send_keys("?")
    assert page.run("return document.querySelector('dialog').open")
    page.press(Keys.ESCAPE)
    page.wait("!document.querySelector('dialog').open")
    body.send_keys("/")
    page.wait("document.activeElement.id === 'search'")
    page.press("planted-0002")
    page.wait("document.querySelectorAll('table.problems tbody tr').length === 1")
    page.press(Keys.ESCAPE)
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    page.wait("location.hash.startsWith('#problem/3')")
    body.send_keys(Keys.ESCAPE)
    page.wait("document.querySelector('table.problems')")


def test_tables_sort_and_filter(page: Page) -> None:
    page.open("#")
    page.click("table.problems thead button", 0)
    assert page.texts("table.problems tbody td:first-child") == ["6", "5", "4", "3", "2", "1"]
    page.click("table.problems thead button", 0)
    assert page.texts("table.problems tbody td:first-child") == ["1", "2", "3", "4", "5", "6"]
    wrong = page.run("return [...document.querySelectorAll('select')].find((x) => x.ariaLabel === 'Outcome')")
    wrong.send_keys("RAD right")
    right = page.wait("document.querySelector('.filter .count').textContent.includes(' of ')")
    shown = len(page.texts("table.problems tbody tr"))
    assert right
    assert page.run("return document.querySelectorAll('table.problems tbody td:nth-child(3) .tick').length") == shown


def test_themes_change_every_drawing(page: Page) -> None:
    page.open("#problem/1")
    seen = []
    for theme in ("light", "dark"):
        page.theme(theme)
        seen.append(
            page.run(
                "return [getComputedStyle(document.documentElement).backgroundColor,"
                "[...document.querySelector('.matrix canvas').getContext('2d').getImageData(0, 1, 1, 1).data].join()]"
            )
        )
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    page.theme("system")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, theme: str) -> None:
    page.theme(theme)
    assert page.violations() == []
    page.open("#problem/2")
    for tab in ("text", "compare", "experts"):
        page.click(f"#tab-{tab}")
        assert page.violations() == []
    page.click("button[aria-label=Help]")
    assert page.violations() == []
    page.press(Keys.ESCAPE)
    page.theme("system")


@pytest.mark.parametrize("width", [390, 1024])
def test_a_narrow_window_scrolls_one_way(page: Page, width: int) -> None:
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        for link in ("#", "#problem/1"):
            page.open(link)
            for tab in ("compare", "experts") if link != "#" else ():
                page.click(f"#tab-{tab}")
                assert page.run("return document.documentElement.scrollWidth") <= width
            assert page.run("return document.documentElement.scrollWidth") <= width
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def served(answers: dict[str, bytes]) -> Iterator[str]:
    """A server that gives what stands under a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header(
                "Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/octet-stream"
            )
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *arguments: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def test_a_server_shows_the_same_page_live_and_it_grows(browser: Chrome, made: list[PlantedGroup]) -> None:
    encoded = [encode_problem(planted.group) for planted in made[:2]]
    answers = {
        "/": live_page("/index", "/problem/", refresh=0.2).encode(),
        "/index": encode_index([encoded[0].entry]),
        "/problem/0": encoded[0].block,
        "/problem/1": encoded[1].block,
        "/favicon.ico": b"",
    }
    with served(answers) as url:
        page = Page(browser, url)
        assert len(page.texts("table.problems tbody tr")) == 1
        answers["/index"] = encode_index([one.entry for one in encoded])
        page.wait("document.querySelectorAll('table.problems tbody tr').length === 2")
        page.click("table.problems tbody tr:nth-child(2) a")
        page.wait("document.querySelector('.why')")
        assert page.text(".why").startswith(f"{PICKED} {select(made[1].group).rollout_index}.")
        assert page.complaints() == []
        browser.get("about:blank")  # it asks no more
