"""The page's frame: a strict policy, nothing inline but the one script and style, every part of the script once."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from importlib.resources import files

from radmoe.explorer import assets, encode_index, live_page, page, policy
from radmoe.explorer.page import SCRIPTS, STYLE
from unpacked import unpack


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_the_script_and_the_style_of_the_page_alone() -> None:
    html = "".join(page(encode_index([]), [b"block"]))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (content,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert content == (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    )
    assert content == policy()
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert not re.search(r"<[^>]+\son\w+\s*=", html.replace(script, ""))
    assert not re.search(r"(src|href)\s*=", html.replace(script, ""))


def test_blocks_stand_in_the_page_as_they_were_packed() -> None:
    index = encode_index([{"id": "</script>"}], title="t")
    html = "".join(page(index, [b"first", b"second"], title="<b>"))
    stored = dict(re.findall(r'<script type="application/octet-stream;base64" id="([\w-]+)">([^<]*)</script>', html))
    assert {name: base64.b64decode(text) for name, text in stored.items()} == {
        "index": index,
        "problem-0": b"first",
        "problem-1": b"second",
    }
    assert unpack(index)[0]["problems"] == [{"id": "</script>"}]
    assert "<title>&lt;b&gt;</title>" in html


def test_a_live_page_may_ask_its_own_server_and_nobody_else() -> None:
    html = live_page("/explorer/index", '/explorer/problem/"', title="live")
    assert "connect-src 'self';" in html
    assert "connect-src" not in policy()
    assert '<meta name="radmoe-index" content="/explorer/index">' in html
    assert 'content="/explorer/problem/&quot;"' in html


def test_the_scripts_are_all_parts_in_the_package_and_name_nothing_twice() -> None:
    folder = files("radmoe.explorer") / "web"
    assert sorted(path.name for path in folder.iterdir()) == sorted((*SCRIPTS, STYLE))
    names = re.findall(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", assets().script, re.MULTILINE)
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert "</script" not in assets().script
    assert "</style" not in assets().style


def test_no_part_parses_markup_or_reaches_out() -> None:
    script = assets().script
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http:",
        "https:",
    ):
        assert word not in script.replace('"http://www.w3.org/2000/svg"', "")
    assert "url(" not in assets().style
    assert "@import" not in assets().style
