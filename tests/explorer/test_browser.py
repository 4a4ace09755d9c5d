"""The page in a real Chromium, opened from disk: every view, every switch, keys and links; quiet, offline, accessible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.keys import Keys

from chromium import Page
from radmoe.explorer import encode_index, encode_problem, live_page
from radmoe.selection.selector import select
from radmoe_lab.planted import PlantedGroup

pytestmark = pytest.mark.slow

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
        assert shown == pytest.approx(pick.density[pick.index], abs=6e-4)
        own = page.run("return [...document.querySelectorAll('.text .t')].map((x) => x.textContent).join('')")
        assert own == planted.group.vocab.decode_bytes(planted.group.rollouts[pick.index].token_ids).decode()


def test_the_glossary_says_how_often_a_picked_basin_is_of_one_answer(page: Page, made: list[PlantedGroup]) -> None:
    same = pairs = 0
    for one in made:
        answers = [one.answers[i] for i in select(one.group).basin]
        same += sum(a == b for a, b in combinations(answers, 2))
        pairs += len(answers) * (len(answers) - 1) // 2
    assert f"{round(100 * same / pairs)}% of the pairs in picked basins give the same answer" in page.text(".legend")


def test_a_random_rollout_is_right_as_often_as_rollouts_are(page: Page, made: list[PlantedGroup]) -> None:
    for place, planted in enumerate(made, 1):
        page.open(f"#problem/{place}")
        page.wait(f"document.querySelector('.kicker')?.textContent.startsWith('Problem {place} ')")
        right = sum(answer == planted.truth for answer in planted.answers)
        assert f"a random rollout{round(100 * right / len(planted.answers))}%" in page.text("section.methods")
    assert page.run("return [0, 0.25, 0.999, 1].map(radmoe.percent)") == ["0%", "25%", "100%", "100%"]


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
    assert "they read it at delimiter@16" in page.text(".methods")
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


def test_bars_of_density_span_the_problem_and_say_so(page: Page) -> None:
    page.open("#problem/1")
    widths = page.run("return [...document.querySelectorAll('.rollouts .meter span')].map((x) => x.style.width)")
    shares = [float(width.rstrip("%")) for width in widths]
    densities = [float(text) for text in page.texts(".rollouts td:nth-child(3)")]
    assert (min(shares), max(shares)) == (6, 100)
    assert shares.index(min(shares)) == densities.index(min(densities))
    words = f"from the lowest, {min(densities):.3f}, to the highest, {max(densities):.3f}"
    assert words in page.texts(".panel .about")[2]


def test_large_cells_have_numbers_and_small_ones_none(page: Page) -> None:
    page.open("#problem/5")
    assert len(page.texts(".numbers text")) == len(page.texts(".map .point")) ** 2 >= 64
    page.wait("!document.querySelector('.numbers').hasAttribute('hidden')")
    first = page.text("table.rollouts tbody button")
    assert page.texts(".numbers text")[0] == first
    page.run("document.querySelector('.matrix').style.width = '120px'")
    page.wait("document.querySelector('.numbers').hasAttribute('hidden')")


@pytest.mark.parametrize("problem", [1, 2, 3, 5])
def test_words_on_the_map_cover_no_point_and_no_other_word(page: Page, problem: int) -> None:
    page.open(f"#problem/{problem}")
    boxes = """return ['.map .point', '.map text'].map((own) => [...document.querySelectorAll(own)].map((node) => {
        const box = node.getBoundingClientRect();
        return [box.left, box.top + (own.endsWith('text') ? 4 : 0), box.right, box.bottom - (own.endsWith('text') ? 4 : 0)];
    }))"""
    points, words = page.run(boxes)
    assert len(words) == 3

    def apart(one: list[float], other: list[float]) -> bool:
        return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]

    assert all(apart(word, point) for word in words for point in points)
    assert all(apart(one, other) for one, other in combinations(words, 2))


def test_the_pointer_brings_up_what_is_known(page: Page, made: list[PlantedGroup]) -> None:
    page.open("#problem/1")

    def told(selector: str) -> str:
        node = page.browser.find_element("css selector", selector)
        page.run("arguments[0].scrollIntoView({block: 'center'})", node)
        ActionChains(page.browser).move_to_element(node).perform()
        return page.text(".tip:not([hidden])")

    point = told(".map .point:last-of-type")
    for word in ("rollout ", " tokens", "density 0.", "likelihood -", "answer", "labelled "):
        assert word in point
    assert "similarity 0." in told(".matrix") or "rollout " in told(".matrix")
    token = told(".text .anchor")
    for word in ("token ", "log-probability ", "part of the marker", "its routing was compared"):
        assert word in token
    page.click("#tab-experts")
    assert "A (rollout" in told(".heat")


def test_a_difference_is_shortest_and_loses_nothing(page: Page) -> None:
    words = st.lists(st.sampled_from("abc"), max_size=14)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.tuples(words, words), min_size=20, max_size=20))
    def check(pairs: list[tuple[list[str], list[str]]]) -> None:
        for (left, right), pieces in zip(
            pairs,
            page.run("return arguments[0].map(([a, b]) => radmoe.diffWords(a, b).pieces)", pairs),
            strict=True,
        ):
            for side, whole in (("left", left), ("right", right)):
                assert [w for piece in pieces if piece["kind"] in ("same", side) for w in piece["words"]] == whole
            assert sum(len(piece["words"]) for piece in pieces if piece["kind"] == "same") == common(left, right)

    check()
    bounded = "return radmoe.diffWords(...[3, 5].map((s) => Array.from({length: 20000}, (_, i) => String((i * s) % 7919)))).aligned"
    assert page.run(bounded) is False


def common(left: list[str], right: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for k, other in enumerate(right):
            row.append(before[k] + 1 if one == other else max(before[k + 1], row[k]))
    return row[-1]


def test_bytes_are_decoded_as_python_decodes_them(page: Page) -> None:
    pieces = st.one_of(st.binary(max_size=4), st.text(max_size=3).map(str.encode))

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.lists(pieces, max_size=8), min_size=12, max_size=12))
    def check(texts: list[list[bytes]]) -> None:
        script = """return arguments[0].map((tokens) => {
            const begins = [0];
            for (const token of tokens) begins.push(begins.at(-1) + token.length);
            const parts = radmoe.decodeTokens(tokens.flat(), begins, tokens.map((_, i) => i));
            return Array.from(parts.join(""), (c) => c.codePointAt(0));
        })"""
        decoded = page.run(script, [[list(token) for token in tokens] for tokens in texts])
        for tokens, codes in zip(texts, decoded, strict=True):
            assert codes == [ord(c) for c in b"".join(tokens).decode("utf-8", "surrogateescape")]

    check()


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
    rows = len(page.texts("details.evaluation[open] tbody tr"))
    page.browser.find_element("css selector", "details.evaluation[open] input").send_keys("DeepConf")
    kept = page.texts("details.evaluation[open] tbody tr")
    assert 0 < len(kept) < rows
    assert all("DeepConf" in row for row in kept)


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
        page.wait("document.querySelector('.kicker')?.textContent.startsWith('Problem 2 ')")
        assert page.text(".why").startswith(f"{PICKED} {select(made[1].group).rollout_index}.")
        assert page.complaints() == []
        browser.get("about:blank")  # it asks no more
