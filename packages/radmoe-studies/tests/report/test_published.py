"""README.md's block and packages/radmoe-studies/docs/results.md are written from the committed result."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from published_results import TEXT, checkout, evaluation
from radmoe.errors import InputError
from radmoe.evaluation.cache import checksum
from radmoe.evaluation.kinds import NAMES
from radmoe_studies.report import published
from radmoe_studies.report.published import BEGIN, COMMITTED, END, SHOWN, stale_pages, with_block
from radmoe_studies.report.results import LEFT_OUT

ROOT = Path(__file__).parents[4]


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """`python -m radmoe_studies.report.published` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["published", *map(str, words)])
    try:
        published.main()
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


@pytest.fixture
def adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which an evaluation was made the committed result."""
    root = checkout(tmp_path / "checkout")
    assert run(monkeypatch, "--adopt", evaluation(tmp_path / "all.json"), "--root", root) == 0
    return root


def test_the_pages_of_this_repository_are_current() -> None:
    assert stale_pages(ROOT) == []


def test_the_readme_gets_a_block_below_its_heading(adopted: Path) -> None:
    text = (adopted / "README.md").read_text()
    before, _, rest = text.partition(BEGIN)
    block, _, after = rest.partition(END)
    assert before == "# radmoe\n\nAbove.\n\n## Did it help?\n\n"
    assert after == "\n\nBelow.\n"
    rows = [line for line in block.splitlines() if line.startswith("|")]
    assert [re.split(r" ?\| ?", row)[1] for row in rows[2:]] == [
        "n",
        *(name for name in NAMES.values() if name not in LEFT_OUT),
    ]
    assert rows[0] == "| method | math | choice | all code | text |"
    assert rows[2] == "| n | 12 | 12 | 24 | 12 |"
    for words in (
        "3 configurations, 20 problems",
        "`make reproduce SCALE=full`",
        "RAD",
        "Percent right (gain",
        "packages/radmoe-studies/docs/results.md",
    ):
        assert words in block


def test_the_page_has_every_section_the_tests_and_the_pools(adopted: Path) -> None:
    page = (adopted / SHOWN.page).read_text()
    headings = re.findall(r"^## (.*)", page, re.MULTILINE)
    sections = ["lab-oss low", "lab-oss high", "lab-qwen thinking", "all lab-oss"]
    assert headings == ["All configurations", *sections, "What was evaluated"]
    assert page.count("| majority of answers |") == 2 * 5
    assert "only RAD : only the baseline" in page
    assert page.count(f"{checksum(Path('made/'))[:16]} |") == 15
    assert "3 configurations, 20 problems" in page


def test_writing_again_changes_nothing_and_an_edit_is_noticed(
    adopted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = adopted / "README.md"
    text = readme.read_text()
    assert run(monkeypatch, "--root", adopted) == 0
    assert readme.read_text() == text
    assert run(monkeypatch, "--check", "--root", adopted) == 0
    readme.write_text(text.replace("Below.", "Still below."))
    assert run(monkeypatch, "--check", "--root", adopted) == 0
    readme.write_text(text.replace("| n | 12 |", "| n | 13 |"))
    capsys.readouterr()
    assert run(monkeypatch, "--check", "--root", adopted) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"README.md does not show what {SHOWN.file} holds: run python -m radmoe_studies.report.published"
    assert run(monkeypatch, "--root", adopted) == 0
    assert readme.read_text() == text


def test_without_a_committed_result_no_page_may_show_one(adopted: Path, tmp_path: Path) -> None:
    (adopted / SHOWN.file).unlink()
    assert [line.split()[0] for line in stale_pages(adopted)] == [
        "packages/radmoe-studies/docs/results.md",
        "README.md",
    ]
    assert stale_pages(checkout(tmp_path / "new")) == []


def test_a_second_result_has_a_page_of_its_own_and_leaves_the_readme(
    adopted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme, source = (adopted / "README.md").read_text(), evaluation(tmp_path / "hot.json", "lab-oss low")
    assert run(monkeypatch, "--adopt", source, "--sampling", "hot", "--root", adopted) == 0
    page = (adopted / COMMITTED["hot"].page).read_text()
    assert "1 configuration, 20 problems" in page
    assert "`make reproduce SCALE=full SAMPLING=hot` makes them again" in page
    assert (adopted / "README.md").read_text() == readme
    assert stale_pages(adopted) == []
    (adopted / COMMITTED["hot"].page).write_text(page.replace("20 problems", "21 problems"))
    assert [line.split()[0] for line in stale_pages(adopted)] == [str(COMMITTED["hot"].page)]
    assert run(monkeypatch, "--root", adopted) == 0
    assert (adopted / COMMITTED["hot"].page).read_text() == page


def test_a_page_of_any_evaluation_says_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, page = evaluation(tmp_path / "one.json", "lab-oss low"), tmp_path / "one.md"
    command = "make reproduce SCALE=small"
    assert run(monkeypatch, "--page", source, "--out", page, "--command", command) == 0
    text = page.read_text()
    assert "1 configuration, 20 problems" in text
    assert f"`{command}` makes them again" in text
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["lab-oss low", "What was evaluated"]
    assert run(monkeypatch, "--page", source, "--out", page) == 0
    assert "`radmoe evaluate POOL... --out one.json` makes them again" in page.read_text()


def test_what_cannot_be_done_is_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "checkout")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    for words in (["--adopt", wrong], ["--page", wrong, "--out", root / "page.md"], ["--page", wrong], []):
        assert run(monkeypatch, *words, "--root", root) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("radmoe: error: ")
    assert sorted(path.name for path in root.rglob("*")) == ["README.md", "docs", "packages", "radmoe-studies"]
    assert (root / "README.md").read_text() == TEXT


def test_a_readme_with_half_a_block_or_no_place_for_one_is_refused() -> None:
    with pytest.raises(InputError, match="no line <!-- end of results --> after it"):
        with_block(f"# a\n\n{BEGIN}\n", "block")
    with pytest.raises(InputError, match=r"neither a line .* nor a heading '## Did it help"):
        with_block("# a\n", "block")
