"""The page: one HTML file with its script, its style and the blocks it shows, under a strict content security policy.

Scripts are the files in `web/`, in the order of SCRIPTS, put together in one scope; nothing has to be built. A page that
a server shows live has the same script and style, and fetches its blocks. A companion's page has more of both.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

SCRIPTS = (
    "dom.js", "visible.js", "blocks.js", "source.js", "diff.js", "matrix.js", "map.js", "text.js", "compare.js",
    "experts.js", "timeline.js", "rollouts.js", "problem.js", "tables.js", "overview.js", "help.js", "app.js",
)  # fmt: skip
STYLE = "style.css"
_BLOCK = "application/octet-stream;base64"


class Assets(NamedTuple):
    """The script and the style of a page."""

    script: str
    style: str


@cache
def assets(more: Assets | None = None) -> Assets:
    """Read the script and the style from the package. A script that is given as `more` may set PAGES, which is what is shown."""
    folder = files("radmoe.explorer") / "web"
    *parts, mount, style = [(folder / name).read_text(encoding="utf-8") for name in (*SCRIPTS, STYLE)]
    if more is not None:
        parts, style = [*parts, more.script], style + more.style
    return Assets('"use strict";\n(() => {\n' + "\n".join([*parts, mount]) + "})();\n", style)


def policy(made: Assets | None = None, *, live: bool = False) -> str:
    """The content security policy: it allows the page's own script and style, and for a live page requests to its own
    server.
    """
    script, style = map(_digest, made or assets())
    connect = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}';{connect} base-uri 'none'; form-action 'none'"
    )


def page(
    index: bytes, problems: Iterable[bytes], *, title: str = "radmoe report", more: Assets | None = None
) -> Iterator[str]:
    """Yield the page in pieces: the block of the index, then the block of each problem, which the page decodes when it
    is shown. `more` is a companion's script and style.
    """
    made = assets(more)
    yield _head(title, policy(made), made.style) + _block("index", index)
    for place, block in enumerate(problems):
        yield _block(f"problem-{place}", block)
    yield _foot(made.script)


def live_page(
    index_url: str, problem_url: str, *, refresh: float | None = None, back: str | None = None, title: str = "radmoe"
) -> str:
    """A page that fetches the index, and each problem at `problem_url` followed by its position, from its own server.

    The server sends blocks as bytes. With `refresh` the index is fetched again every that many seconds. A problem that
    was sent must not change at its position. With `back`, the address of a list, the page shows its first problem and
    leads there.
    """
    values = {"index": index_url, "problem": problem_url} | ({} if back is None else {"back": back})
    return server_page(title, values if refresh is None else values | {"refresh": f"{refresh:g}"})


def server_page(title: str, values: Mapping[str, str] | None = None, more: Assets | None = None) -> str:
    """A page that holds no block and may ask its own server. Its script finds `values` by their names; without an index
    among them it calls PAGES.start, which `more` has set.
    """
    metas = (f'<meta name="radmoe-{name}" content="{html.escape(value)}">\n' for name, value in (values or {}).items())
    made = assets(more)
    return _head(title, policy(made, live=True), made.style, "".join(metas)) + _foot(made.script)


def _head(title: str, rules: str, style: str, metas: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(rules, quote=False)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{metas}<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<div id="app"></div>\n<noscript>This page shows its data with JavaScript, which is switched off.</noscript>\n'
    )


def _block(name: str, block: bytes) -> str:
    return f'<script type="{_BLOCK}" id="{name}">{base64.b64encode(block).decode()}</script>\n'


def _foot(script: str) -> str:
    return f"<script>{script}</script>\n</body>\n</html>\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
