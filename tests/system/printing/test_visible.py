"""What others wrote is seen and not obeyed, and what people write stays as it is."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.padding import Padding
from rich.text import Text

from hostile_text import ATTACKS, ORDINARY, unseen
from radmoe.system.printing import (
    block,
    console,
    json_text,
    prepare_process,
    say,
    say_block,
    shortened,
    styled,
    visible,
)
from radmoe.system.screen import ScreenLabel, ScreenTable

ANY = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\x07\b\r\n\t\u202e\u200d\ufe0f[]\\{}"))


@settings(deadline=None)
@given(ANY)
def test_nothing_unseen_is_left_and_twice_is_once(text: str) -> None:
    assert unseen(visible(text)) == []
    assert "\n" not in visible(text)
    assert visible(visible(text)) == visible(text)
    assert set(unseen(visible(text, block=True))) <= {"\t"}


@settings(deadline=None)
@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="\u115f\u1160\u3164\uffa0")))
def test_what_is_printable_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text
    assert visible(f"{text}\n\t{text}", block=True) == f"{text}\n\t{text}"


@pytest.mark.slow
def test_every_invisible_character_of_unicode_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and unseen(character):
            assert (
                visible(f"a{character}b") == f"a{character}b".encode("ascii", "backslashreplace").decode()
                or code < 0x80
            )
            assert unseen(visible(f"a{character}b")) == []


def test_escapes_say_which_character_it_was() -> None:
    assert visible("\x1b[2J\x9b\u202e\U000e0041\ud800\r\n\t") == r"\x1b[2J\x9b\u202e\U000e0041\ud800\r\n\t"
    assert visible("one\r\ntwo\rthree\n", block=True) == "one\ntwo\\rthree\n"
    assert visible("a\u200db \u200cc") == r"a\u200db \u200cc"  # joiners where nothing joins
    assert visible("a\ufe0f\ufe0f\ufe0f") == "a\ufe0f\\ufe0f\\ufe0f"


@settings(deadline=None)
@given(st.dictionaries(ANY, ANY))
def test_json_is_printable_and_reads_back(value: dict[str, str]) -> None:
    text = json_text(value)
    assert text.isascii()
    assert unseen(text) == []
    assert json.loads(text) == json.loads(json.dumps(value))


@settings(deadline=None)
@given(ANY)
def test_a_line_is_one_line(text: str) -> None:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        say(text)
        say_block(text)
    first, rest = out.getvalue().split("\n", 1)
    assert first == visible(text)
    assert rest == visible(text, block=True) + "\n"


@pytest.mark.slow
@settings(deadline=None)
@given(ANY)
def test_whatever_goes_to_a_console_is_visible(text: str) -> None:
    out = io.StringIO()
    screen = console(file=out, width=60)
    table = ScreenTable(text, title=text)
    table.add_row(text)
    table.add_row(styled((text, "bold"), text))
    for one in (text, styled((text, "red")), block(text), Text(text), Padding(text, 2), table, text.split(), [text]):
        screen.print(one)
        screen.print(one, soft_wrap=True, markup=True, emoji=True, highlight=True)
    screen.log(text)
    screen.out(text)
    assert unseen(out.getvalue()) == []


@pytest.mark.parametrize("text", [*ATTACKS.values(), *ORDINARY])
def test_a_string_on_a_console_is_one_line_and_no_markup(text: str) -> None:
    out = io.StringIO()
    screen = console(file=out, width=400)
    screen.print(text)
    screen.print(styled("a", (text, "bold")))
    table = ScreenTable(box=None, show_header=False, padding=0)
    table.add_row(text)
    screen.print(table)
    assert out.getvalue() == f"{visible(text)}\na{visible(text)}\n{visible(text)}\n"


def test_a_long_cell_keeps_its_ends() -> None:
    assert shortened("short") == "short"
    assert shortened("a" * 300 + "\x1b" + "b" * 300, 11) == "aaaaa…bbbbb"
    out = io.StringIO()
    table = ScreenTable(box=None, show_header=False)
    table.add_row("x" * 100_000)
    console(file=out, width=80).print(table)
    assert len(out.getvalue()) < 1000
    assert len(shortened("y" * 1000)) <= 500


@pytest.mark.parametrize("text", ATTACKS.values())
def test_a_bar_shows_its_name_as_it_is(text: str) -> None:
    out = io.StringIO()
    console(file=out, width=400).print(ScreenLabel(text).render(None))  # type: ignore[arg-type]
    assert out.getvalue() == shortened(text, 60) + "\n"


def test_warnings_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    prepare_process()
    text = warnings.formatwarning(UserWarning(ATTACKS["title"]), UserWarning, "file.py", 1)
    assert text.startswith("file.py:1: UserWarning: \\x1b]0;owned\\x07\n")
