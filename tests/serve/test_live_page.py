"""The page at / in a real Chromium: what the gateway does, its requests as they come, and nothing that a model wrote as markup."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from selenium.webdriver import Chrome

import chromium
from chromium import Page
from hostile_clients import HEAD, MESSAGES
from hostile_text import ATTACKS, ORDINARY
from radmoe.serve.recent import question_of
from radmoe.system.printing import visible

pytestmark = pytest.mark.slow

MARKUP = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 2</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    driver = chromium.start()
    yield driver
    driver.quit()


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def rows(page: Page, count: int) -> None:
    page.wait(f"document.querySelectorAll('.requests tbody tr').length === {count}")


def type_into(page: Page, selector: str, text: str) -> None:
    page.browser.find_element("css selector", selector).send_keys(text)


def test_requests_appear_live_open_and_lead_back(browser: Chrome, gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(fault="script").url,))
    page = Page(browser, made.url)
    assert "No request yet" in page.text("main")
    assert "planted#rad-16" in page.text(".empty pre")
    first = made.ask(messages=said("How many legs has a spider?")).json()
    rows(page, 1)
    second = made.ask({"n": 16}, model="planted", messages=said("And an ant?")).json()
    rows(page, 2)
    assert page.text("h1") == "planted"
    newest, oldest = page.texts(".requests tbody tr")
    assert "And an ant?" in newest
    assert f"{len(second['radmoe']['basin'])} of {sum(second['radmoe']['located'])}" in newest
    assert f"{second['radmoe']['margin']:.4f}" in newest
    assert "<script>alert(1)</script>" in newest
    assert "How many legs" in oldest
    assert "2 answered" in page.text(".tiles")
    type_into(page, "input[type=search]", "spider")
    rows(page, 1)
    page.click(".requests tbody a")
    page.wait("document.querySelector('.problem .why')")
    assert first["id"] in page.browser.current_url
    assert page.text("h1") == f"Answered with rollout {first['radmoe']['pick']}"
    assert first["id"] in page.text(".kicker")
    page.click("a.back")
    page.wait("document.activeElement?.textContent.includes('spider')")  # where the visitor was, with the filter
    rows(page, 1)
    assert page.run("return document.querySelectorAll('script').length") == 1
    assert page.complaints() == []


def test_a_selection_that_is_not_kept_any_more_leads_back_too(shared: Any, browser: Chrome) -> None:
    page = Page(browser, shared.url)
    browser.get(f"{shared.url}/selections/nowhere")
    page.wait("document.querySelector('.note')?.textContent.includes('not among the last ones')")
    page.click("a.back")
    page.wait("document.querySelector('.tiles')")


def test_a_thousand_hostile_requests_are_text_and_accessible_in_both_themes(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any
) -> None:
    made = gateway(upstreams=(upstream(fault="script").url,), recent=1000)
    texts = [MARKUP, "a very long question " * 100, *ATTACKS.values(), *ORDINARY]
    texts += [f"question {i}" for i in range(1000 - len(texts))]
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(lambda text: made.ask({"n": 2}, model="planted", messages=said(text)), texts)
        assert {answer.status_code for answer in answers} == {200}
    page = Page(browser, made.url)
    rows(page, 100)
    for theme in ("light", "dark"):
        page.theme(theme)
        assert page.every_violation() == []
    for shown in range(200, 1001, 100):
        page.click(".scroller + button")
        rows(page, shown)
    shown = set(page.texts(".requests .text-line:not(.answer)"))
    assert len(shown) == 1000
    assert {
        visible(text.replace("\t", " ").replace("\n", " ")) for text in (MARKUP, *ATTACKS.values(), *ORDINARY)
    } <= shown
    assert page.run("return window.hacked === undefined && !document.querySelector('main img, main script')")
    type_into(page, "input[type=search]", "question 77")
    rows(page, 11)  # 77 and 770 to 779
    page.run(
        "const method = document.querySelector('.choices select'); if (method) throw Error('one method needs no choice')"
    )
    page.click(".requests tbody a")
    page.wait("document.querySelector('.problem .why')")
    assert page.every_violation() == []
    assert page.complaints() == []


def test_filters_sorting_and_a_pause(browser: Chrome, gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream().url,))
    for n in (4, 8, 16):
        made.ask({"n": n}, model="planted")
    made.ask({"n": 4}, model="planted", temperature=0)
    page = Page(browser, made.url)
    rows(page, 4)
    assert "75%" in page.text(".tiles")
    assert "at temperature 0 all rollouts are equal" in page.text(".requests .reason")
    choice = "document.querySelector('.choices select')"
    page.run(f"{choice}.value = 'first'; {choice}.dispatchEvent(new Event('change'))")
    rows(page, 1)
    assert page.texts(".requests tbody a") == []  # nothing was compared, so there is nothing to open
    type_into(page, "input[type=search]", "no such words")
    page.wait("document.querySelector('.requests').closest('.scroller').hidden")
    page.click("p.about:not([hidden]) button")
    rows(page, 4)
    page.click(".requests thead button", 6)
    tokens = [int(text.split()[0].replace(",", "")) for text in page.texts(".requests td:last-child .under-value")]
    assert len(tokens) == 4
    page.click("button[aria-pressed]")
    made.ask()
    page.wait("document.querySelector('button[aria-pressed=true]').textContent.includes('1 new')")
    rows(page, 4)
    page.click("button[aria-pressed]")
    rows(page, 5)


def test_where_there_are_keys_the_page_asks_for_one_and_this_tab_alone_keeps_it(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any
) -> None:
    made = gateway(upstreams=(upstream().url,), keys=("the-key",))
    made.client.headers["Authorization"] = "Bearer the-key"
    made.ask()
    page = Page.__new__(Page)
    page.browser, page.url = browser, made.url
    page.forget()
    browser.get(made.url)
    page.wait("document.querySelector('dialog[open] #key')")
    assert page.every_violation() == []
    type_into(page, "#key", "müller\n")
    page.wait("document.getElementById('key-note').textContent.includes('ASCII')")
    page.run("document.getElementById('key').value = ''")
    type_into(page, "#key", "wrong\n")
    page.wait("document.getElementById('key-note')?.textContent.includes('refused')")
    type_into(page, "#key", "the-key\n")
    rows(page, 1)
    page.click(".requests tbody a")
    page.wait("document.querySelector('.problem .why')")
    assert page.run("return [document.cookie, Object.values(localStorage).includes('the-key')]") == ["", False]
    assert "the-key" not in browser.current_url
    assert [message for message in page.complaints() if "401" not in message] == []


def test_servers_and_load_are_shown_and_a_gateway_that_is_gone(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any
) -> None:
    slow = upstream(delay=60)
    made = gateway(upstreams=(slow.url, "http://127.0.0.1:9"), running=1)
    page = Page(browser, made.url)
    assert page.texts(".servers li") == ["upstream-0 up", "upstream-1 down"]

    body = json.dumps({"model": "planted#rad-8", "messages": MESSAGES}).encode()
    with ExitStack() as clients:
        for _ in range(2):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", int(made.url.rpartition(":")[2]))))
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        page.wait("document.querySelector('.tiles').textContent.includes('1 of 1 under way')")
        page.wait("document.querySelector('.tiles').textContent.includes('1 of 128 wait')")
        assert "upstream-0 up · 1 under way" in page.texts(".servers li")
    made.__exit__()
    page.wait("document.querySelector('.note')?.textContent.startsWith('The gateway does not answer.')")
    for theme in ("light", "dark"):
        page.theme(theme)
        assert page.every_violation() == []


def test_a_gateway_that_was_started_again_begins_anew(
    browser: Chrome, gateway: Callable[..., Any], upstream: Any
) -> None:
    server = upstream()
    first = gateway(upstreams=(server.url,))
    first.ask(messages=said("before"))
    page = Page(browser, first.url)
    rows(page, 1)
    first.__exit__()
    page.wait("document.querySelector('.note')")
    second = gateway(upstreams=(server.url,), port=int(first.url.rpartition(":")[2]), recent=2)
    for text in ("one", "two", "three"):
        second.ask(messages=said(text))
    page.wait("document.querySelector('.requests tbody')?.textContent.includes('three')")
    rows(page, 2)
    assert "before" not in page.text(".requests")
    assert page.texts(".note") == []


@pytest.mark.parametrize(
    ("body", "question"),
    [
        ({"prompt": "tell me"}, "tell me"),
        ({"prompt": [5, 6]}, "5 6"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "a"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
            "a image_url",
        ),
        ({"messages": [{"role": "user"}, 3]}, ""),
        ({"messages": "none"}, ""),
    ],
)
def test_what_was_asked_is_what_the_user_said_last(body: dict[str, Any], question: str) -> None:
    assert question_of(body) == question
