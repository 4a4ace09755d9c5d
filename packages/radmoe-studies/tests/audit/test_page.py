"""The report: counted per table, up to date, and honest about what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from radmoe_studies.audit import audit, load
from radmoe_studies.audit.check import Check
from radmoe_studies.audit.notes import NOTES
from radmoe_studies.audit.summary import markdown, note, summarise, total

PAGE = Path(__file__).parents[4] / "packages/radmoe-studies/docs/audit.md"


@pytest.fixture(scope="module")
def found() -> list[Check]:
    return audit()


def test_the_committed_page_is_what_the_command_writes(found: list[Check]) -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(found, dict(load().about)), (
        "run: radmoe audit --out packages/radmoe-studies/docs/audit.md"
    )


def test_a_changed_figure_changes_the_page() -> None:
    wrong = load().with_figure("wjja-main", "p", "0.300", mode="Pooled")
    page = markdown(audit(wrong), dict(wrong.about))
    assert "**tab:wjja-main, Pooled, p**: printed 0.300; min(1, 2 P(X <= 391)) = 0.24798" in page
    assert page != PAGE.read_text(encoding="utf-8")


def test_tables_add_up(found: list[Check]) -> None:
    tables, whole = summarise(found, dict(load().about)), total(found)
    assert whole.checks == len(found) == whole.agrees + whole.rounding + whole.differs
    for column in ("figures", "checks", "agrees", "rounding", "differs"):
        assert sum(getattr(t, column) for t in tables) == getattr(whole, column)


def test_every_note_explains_a_difference_that_is_there(found: list[Check]) -> None:
    explained = {c.key for c in found if note(c)}
    assert explained == set(NOTES)
    assert not any(note(c) for c in found if c.verdict != "differs")
