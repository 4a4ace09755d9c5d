"""Texts: what counts as the same name, date or sentence."""

from __future__ import annotations

import pytest

from radmoe.grading.answers import extract
from radmoe.grading.texts import TextClasses, text_key


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Ada Lovelace", "ada  lovelace\n"),
        ("Ada Lovelace", "\u201cAda Lovelace.\u201d"),
        ("Ada Lovelace", "**Ada Lovelace**"),
        ("Erd\u0151s", "Erdo\u030bs"),
        ("STRASSE", "Stra\u00dfe"),
        ("Jean-Luc", "Jean\u2013Luc"),
        ("O'Neill", "O\u2019Neill"),
        ("\uff21\uff22\uff23", "abc"),
        ("(yes)", "Yes!"),
        (r"\text{Mount Fuji}", "Mount Fuji"),
        ("May 9, 1950", "9 May 1950"),
        ("May 9th, 1950", "1950-05-09"),
        ("9:05 PM", "9:05 p.m."),
    ],
)
def test_case_blanks_unicode_forms_and_punctuation_around_do_not_count(a: str, b: str) -> None:
    assert text_key(a) == text_key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Erdos", "Erd\u0151s"),
        ("C++", "C"),
        ("f(x)", "f(x"),
        ("-5", "5"),
        ("May 9, 1950", "May 9, 1951"),
        ("9/5/1950", "5/9/1950"),
        ("New York", "New Jersey"),
        ("well-known", "well known"),
        ("1.5", "15"),
        ("Rome, Paris", "Paris, Rome"),
        ("...", "!"),
    ],
)
def test_everything_else_counts(a: str, b: str) -> None:
    assert text_key(a) != text_key(b)


def test_the_gold_answer_or_the_first_seen_stands_for_its_class() -> None:
    classes = TextClasses("Paris")
    answers = ["paris.", "Rome", "ROME", "\u201cParis\u201d", "Oslo"]
    assert [classes.add(answer) for answer in answers] == ["Paris", "Rome", "Rome", "Paris", "Oslo"]


def test_a_box_in_the_response_is_the_answer() -> None:
    assert extract("text", r"It was \boxed{\text{Ada Lovelace}}.") == "Ada Lovelace"
    assert extract("text", r"<think>\boxed{Babbage}</think>Ada Lovelace") == "Ada Lovelace"
