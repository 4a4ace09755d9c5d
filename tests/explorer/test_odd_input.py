"""Pools as they should not be, in a real Chromium: shown for what they are, nothing executed, nothing hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import Chrome

from chromium import Page
from hostile_text import ATTACKS, ORDINARY
from odd_pools import BROKEN, HOSTILE, LINE, MARKUP, SCRIPT, SHAPE, agent_rollout, pool_of, rollout_of
from radmoe.pool.profile import Profile
from radmoe.report.explorer import PageOptions, write_report
from radmoe.system.printing import visible
from radmoe.types import Rollout
from radmoe_lab import planted

pytestmark = pytest.mark.slow


def shown(browser: Chrome, pool: Path, tmp_path: Path, **options: object) -> Page:
    write_report([pool], tmp_path / "report.html", PageOptions(**options))  # type: ignore[arg-type]
    return Page(browser, tmp_path / "report.html")


def token_text(page: Page) -> str:
    page.wait("document.querySelector('.text .t')")
    return str(page.run("return [...document.querySelectorAll('.text .t')].map((x) => x.textContent).join('')"))


def test_hostile_text_is_inert_and_seen(browser: Chrome, tmp_path: Path) -> None:
    rollouts = [rollout_of(text, seed=i) for i, text in enumerate(HOSTILE.values())]
    pool = pool_of(
        tmp_path / "pool", {MARKUP: rollouts}, answer=MARKUP, prompt=MARKUP, model=f"m {SCRIPT}", task=f"t {SCRIPT}"
    )
    page = shown(browser, pool, tmp_path)
    assert SCRIPT[:25] in page.text("table.problems tbody")
    for i, text in enumerate(HOSTILE.values()):
        page.open(f"#problem/1/rollout/{i}")
        page.wait(f"document.querySelector('#tab-content .facts strong')?.textContent === 'Rollout {i}'")
        page.wait("document.querySelector('#tab-content .text').textContent.includes('boxed')")
        assert token_text(page).startswith(visible(text, block=True))
        page.click("#tab-compare")
        assert visible(text, block=True) in page.text(".beside .text")
        page.click("#tab-text")
    assert MARKUP in page.text(".prompt[open] .text")
    assert page.run("return window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert page.run("return document.querySelectorAll('script:not([type])').length") == 1
    assert (page.complaints(), page.requests()) == ([], [])


def test_a_script_that_gets_in_is_refused_by_the_policy(browser: Chrome, report_file: Path) -> None:
    page = Page(browser, report_file)
    page.run(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s);"
        "const d = document.createElement('div'); d.innerHTML = '<img src=x onerror=\"window.hacked = 2\">';"
        "document.body.append(d); fetch('http://127.0.0.1:9/').catch(() => {})"
    )
    assert page.run("return window.hacked === undefined")
    assert sum("Content Security Policy" in line for line in page.complaints()) >= 3


@pytest.mark.parametrize("block", [False, True])
def test_the_page_shows_what_the_printing_room_shows(browser: Chrome, report_file: Path, block: bool) -> None:
    page = Page(browser, report_file)
    for text in (*ATTACKS.values(), *ORDINARY):
        assert page.run("return radmoe.visible(arguments[0], arguments[1])", text, block) == visible(text, block=block)


def test_bytes_that_are_no_text_are_shown_by_their_values(browser: Chrome, tmp_path: Path) -> None:
    pool = pool_of(tmp_path / "pool", {"p": [rollout_of(BROKEN, seed=i) for i in range(3)]})
    page = shown(browser, pool, tmp_path)
    page.open("#problem/1/rollout/0")
    expected = r"caf\xc3 \xff\xfe \xed\xa0\x80 \xf0\x9f\x98 end € \xc0\xaf"
    assert token_text(page).startswith(expected)
    assert page.run("return document.querySelectorAll('.text .escape').length") >= 8


def test_a_line_of_100_000_characters_is_cut_and_says_so_or_is_kept(browser: Chrome, tmp_path: Path) -> None:
    pool = pool_of(tmp_path / "pool", {"p": [rollout_of(LINE, seed=i) for i in range(2)]})
    page = shown(browser, pool, tmp_path)
    page.open("#problem/1")
    page.wait("document.querySelector('.text .gap')")
    kept = len(page.texts(".text .t"))
    left_out = int(page.text(".text .gap").split()[0].replace(",", ""))
    assert kept + left_out == int(
        page.text("#tab-content .facts").split(" tokens")[0].split("pick")[1].replace(",", "")
    )
    assert "boxed" in "".join(page.texts(".text .window"))
    assert "--full-text" in page.text(".text .gap")
    page = shown(browser, pool, tmp_path, full_text=True)
    page.open("#problem/1")
    page.wait("document.querySelectorAll('.text .t').length > 100000")
    assert token_text(page).startswith(LINE)
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_a_pool_without_labels_logprobs_and_weights_says_what_is_missing(browser: Chrome, tmp_path: Path) -> None:
    rollouts = [rollout_of("fine", seed=i, logprobs=False, weights=False) for i in range(4)]
    page = shown(browser, pool_of(tmp_path / "pool", {"p": rollouts}, prompt=None), tmp_path)
    notes = " ".join(page.texts(".note"))
    for words in ("no labels", "no log-probabilities", "expert ids only"):
        assert words in notes
    page.open("#problem/1")
    assert page.text(".why").startswith("RAD picked rollout")
    assert "labels" not in page.text(".why")
    assert page.run("return document.querySelector('.text-keys input').disabled")
    assert page.texts("table.rollouts thead th") == ["rollout", "basin", "density", "tokens"]
    assert page.complaints() == []


def test_a_pool_of_windows_only_shows_the_readouts_it_has(browser: Chrome, tmp_path: Path) -> None:
    rollouts = [rollout_of("some thoughts", seed=i) for i in range(4)]
    pool = pool_of(tmp_path / "pool", {"p": rollouts}, profile=Profile(readouts=("delimiter@16",)))
    page = shown(browser, pool, tmp_path)
    assert "kept at delimiter@16 alone" in " ".join(page.texts(".note"))
    page.open("#problem/1")
    assert page.text(".why").startswith("RAD picked rollout")
    assert page.texts("header select") == []  # there is nothing to switch to


def test_rollouts_that_cannot_be_compared_are_shown_all_the_same(browser: Chrome, tmp_path: Path) -> None:
    long = rollout_of("never", seed=1)
    bare = Rollout(long.token_ids[:5], long.expert_ids[:5], long.weights[:5], long.sampled_logprobs[:5])
    problems = {"one": [rollout_of("alone")], "none": [bare, bare], "some": [rollout_of("a"), bare]}
    page = shown(browser, pool_of(tmp_path / "pool", problems, answer="7"), tmp_path)
    for place, words in enumerate(("There is one rollout", "No rollout reaches", "1 of 2 rollouts reaches"), 1):
        page.open(f"#problem/{place}")
        page.wait(f"document.querySelector('.kicker')?.textContent.startsWith('Problem {place} ')")
        assert page.text(".why").startswith("RAD abstains.")
        assert words in page.text(".why")
        assert token_text(page)
        page.click("#tab-compare")
        page.click("#tab-experts")
        page.click("#tab-text")
    assert page.complaints() == []


def test_a_pool_whose_kind_nobody_knows_is_shown_without_a_pick(browser: Chrome, tmp_path: Path) -> None:
    whole = rollout_of("plain")
    cut = Rollout(whole.token_ids[:5], whole.expert_ids[:5], whole.weights[:5])
    page = shown(browser, pool_of(tmp_path / "pool", {"p": [cut, cut]}, kind=None), tmp_path)
    assert "nothing is selected" in " ".join(page.texts(".note"))
    page.open("#problem/1")
    assert page.text(".why").startswith("Nothing was selected.")
    assert token_text(page) == "plain"
    assert page.complaints() == []


def test_a_thousand_rollouts_are_drawn(browser: Chrome, tmp_path: Path) -> None:
    one = rollout_of("x")
    rng = np.random.default_rng(0)
    shape = (len(one), SHAPE.layers, SHAPE.experts)
    many = [
        Rollout(one.token_ids, rng.random(shape).argsort(-1)[:, :, :2].astype(np.int16), one.weights)
        for _ in range(1000)
    ]
    page = shown(browser, pool_of(tmp_path / "pool", {"p": many}), tmp_path)
    page.open("#problem/1")
    page.wait("document.querySelector('.matrix canvas')?.width === 1000")
    assert len(page.texts(".map .point")) == 1000
    assert len(page.texts("table.rollouts tbody tr")) == 1000
    assert page.complaints() == []


@pytest.mark.parametrize("steps", [True, False])
def test_an_agents_turns_are_a_timeline(browser: Chrome, tmp_path: Path, steps: bool) -> None:
    rollouts = [agent_rollout(seed, steps=steps) for seed in range(4)]
    page = shown(browser, pool_of(tmp_path / "pool", {"p": rollouts}, kind="agent"), tmp_path)
    assert page.text("h1") == "1 issue, 4 trajectories"
    assert "rollout" not in page.run("return document.querySelector('article').innerText").lower()
    page.open("#problem/1")
    page.wait("document.querySelector('.why')")
    assert page.text(".why").startswith("RAD picked trajectory ")
    assert "rollout" not in page.run("return document.querySelector('article').innerText").lower()
    page.click("#tab-turns")
    turns = 3 if steps else 4  # without steps, what stands before the first action is a part too
    assert len(page.texts(".turns li")) == turns
    assert len(page.texts(".bar-row")) == 4
    whole = planted.vocab().decode_bytes(rollouts[0].token_ids).decode()
    page.click(".bar-row button", [text.split()[0] for text in page.texts(".bar-row button")].index("0"))
    assert "".join(page.texts(".turns li > .text")) == whole
    assert (SCRIPT in page.text(".turns details .text")) is steps
    assert (page.complaints(), page.violations()) == ([], [])
