"""The page in a real Chromium: which patch was picked and why, every control, hostile text, no axe-core violation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from chromium import AXE, Page
from hostile_text import ATTACKS
from planted_trajectories import Verdicts, write_runs
from radmoe.system.printing import visible
from radmoe_agent.candidates import read_candidates, write_candidates
from radmoe_agent.page import write_page
from radmoe_agent.patches import PatchDecision, decide_all, record

pytestmark = pytest.mark.slow
MARKUP = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=2</script>"
DIFF = "diff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n def f(x):\n-    return x\n+    return {}\n"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Verdicts]:
    runs = tmp_path_factory.mktemp("page")
    known = write_runs(runs, issues=3, n=6)
    listed = [one for members in read_candidates(runs).values() for one in members]
    changed = [
        replace(one, patch="", status="ContextExceeded", problem="its patch is empty (it ended with ContextExceeded)")
        if one.run == 5
        else replace(one, patch=DIFF.format(f"x + {0 if one.run < 3 else one.run}"))
        for one in listed
    ]
    write_candidates(runs, changed)
    return runs, {key: right for key, right in known.items() if key[1] < 5}


def shown(browser: Chrome, runs: Path, out: Path, **options: object) -> tuple[Page, list[PatchDecision]]:
    made = list(decide_all(runs))
    write_page(runs, list(map(record, made)), out, **options)  # type: ignore[arg-type]
    return Page(browser, out), made


def violations(page: Page) -> list[str]:
    """What axe-core finds, of any impact."""
    page.run(AXE.read_text(encoding="utf-8"))
    report = page.browser.execute_async_script("const done = arguments[0]; axe.run(document).then(done)")
    return [f"{found['id']}: {found['nodes'][0]['html']}" for found in report["violations"]]


def test_it_says_which_patch_was_picked_and_why(
    browser: Chrome, verdicts: tuple[Path, Verdicts], tmp_path: Path
) -> None:
    runs, known = verdicts
    page, made = shown(browser, runs, tmp_path / "p.html", verdicts=known)
    assert (page.text(".home"), page.text("h1")) == ("radmoe agent select", "3 issues, 18 trajectories")
    assert "15 of 18 trajectories can be submitted" in page.text(".note")
    assert page.text(".note").endswith("ruled out before anything was chosen: its patch is empty.")
    for place, one in enumerate(made, 1):
        page.open(f"#problem/{place}")
        page.wait(f"document.querySelector('.kicker')?.textContent.startsWith('Issue {place} of 3')")
        said = page.text(".why")
        assert said.startswith(f"Patch A is submitted, that of trajectory {one.run}. I{one.why[1:]}.")
        right = sum(known[one.instance_id, run] for run in range(5))
        word = "resolves" if known[one.instance_id, one.run or 0] else "does not resolve"
        assert word in said
        assert f"{right} of 5 trajectories do" in said
        assert page.texts("table.patches tbody tr:first-child td")[:2] == ["3", "0, 1, 2"]
        own, other = page.texts(".sides .patch")
        assert "+    return x + 0" in own
        assert "+    return x + 3" in other
        assert page.texts(".sides .only") == ["+    return x + 0", "+    return x + 3"]
        steps = sum(c.steps or 0 for c in one.candidates)
        assert len(page.texts(".bar-row rect")) == steps
        assert page.run("return document.querySelectorAll('.bar-row rect').length") == steps
        assert page.run("return document.querySelectorAll('.bar-row line.boundary').length") == sum(
            c.boundaries or 0 for c in one.candidates
        )
        faint = page.run("return document.querySelectorAll('.bar-row line.unread').length")
        assert faint == one.candidates[5].boundaries  # it was ruled out
    assert (page.complaints(), page.requests()) == ([], [])


def test_a_visitor_compares_patches_and_reads_steps(
    browser: Chrome, verdicts: tuple[Path, Verdicts], tmp_path: Path
) -> None:
    page, made = shown(browser, verdicts[0], tmp_path / "p.html")
    assert "No verdict of hidden tests is on this page" in page.text(".why")
    page.click("table.problems tbody tr:nth-child(2) a")
    page.wait("document.querySelector('.issue')")
    assert "hidden tests" not in page.text(".why")
    page.click("table.patches tbody tr:nth-child(3) button")
    assert page.text(".sides > div:nth-child(2) strong") == "Patch C"
    assert "/rollout/4" in page.browser.current_url
    assert len(page.texts("ol.turns li")) == made[1].candidates[4].steps
    assert page.texts("ol.turns .text")[0].startswith("</think>")
    assert page.text("ol.turns .line").endswith("boundary compared")
    page.click(".bar-row button", 5)
    assert "its patch is empty" in page.text(".panel:nth-of-type(2) > .line")
    assert page.text("ol.turns .line").endswith("boundary not compared")
    assert page.text(".panel h2") == "Patches: 3 different ones, all of them can be submitted"
    body = page.browser.find_element("css selector", "body")
    body.send_keys("p")
    assert page.text(".panel:nth-of-type(2) > .line strong") == f"Trajectory {made[1].run}"
    body.send_keys(Keys.ARROW_RIGHT)
    page.wait("document.querySelector('.kicker').textContent.startsWith('Issue 3 of 3')")
    body.send_keys("?")
    assert "Trajectory" in page.text("dialog")
    page.press(Keys.ESCAPE)
    body.send_keys("/")
    page.wait("document.activeElement.id === 'search'")
    page.press("issue-001")
    page.wait("document.querySelectorAll('table.problems tbody tr').length === 1")
    assert (page.complaints(), page.requests()) == ([], [])


def test_hostile_patches_issues_and_steps_are_inert_and_seen(browser: Chrome, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", issues=1, n=len(ATTACKS) + 2)
    texts = [MARKUP, "\ud800 half", *ATTACKS.values()]
    listed = read_candidates(tmp_path / "runs")["issue-000"]
    write_candidates(
        tmp_path / "runs",
        [replace(one, patch=f"+{text}", status=text) for one, text in zip(listed, texts, strict=True)],
    )
    (decision,) = decide_all(tmp_path / "runs")
    row = record(replace(decision, issue=f"{MARKUP}\u202eevil"))
    write_page(tmp_path / "runs", [row | {"model": MARKUP}], tmp_path / "p.html")
    page = Page(browser, tmp_path / "p.html")
    page.open("#problem/1")
    page.wait("document.querySelector('.issue')")
    assert page.text(".prompt .text") == f"{MARKUP}\\u202eevil"
    for run, text in enumerate(texts):
        page.open(f"#problem/1/rollout/{run}")
        page.wait(f"document.querySelector('.panel:nth-of-type(2) > .line strong')?.textContent === 'Trajectory {run}'")
        lines = "".join(page.texts(".sides .patch .code")).replace("\u00a0", "")
        assert visible(f"+{text}".strip(), block=True).replace("\n", "") in lines
    assert page.run("return window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert page.run("return document.querySelectorAll('script:not([type])').length") == 1
    assert (page.complaints(), page.requests()) == ([], [])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_axe_finds_nothing_and_a_narrow_window_scrolls_one_way(
    browser: Chrome, verdicts: tuple[Path, Verdicts], tmp_path: Path, theme: str, width: int
) -> None:
    page, _ = shown(browser, verdicts[0], tmp_path / "p.html", verdicts=verdicts[1])
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.theme(theme)
        for link in ("#", "#problem/1"):
            page.open(link)
            page.wait("document.querySelector('article')")
            assert violations(page) == []
            assert page.run("return document.documentElement.scrollWidth") <= width
        page.click("button[aria-label=Help]")
        assert violations(page) == []
        page.press(Keys.ESCAPE)
        page.theme("system")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
