"""Progress on stderr: lines where there is no terminal, and a bar that leaves nothing behind where there is one."""

from __future__ import annotations

import pytest

from radmoe.system import printing
from radmoe.system.printing import bar


def test_without_a_terminal_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "PERIOD", 0.0)
    with bar("evaluating pool", total=2_000) as update:
        update(advance=500)
        update(1_500, note="3 of 4 problems")
        update(1_600, 1_600)
    assert capsys.readouterr() == (
        "",
        "radmoe: evaluating pool: 500 of 2,000 rollouts\n"
        "radmoe: evaluating pool: 1,500 of 2,000 rollouts, 3 of 4 problems\n"
        "radmoe: evaluating pool: 1,600 of 1,600 rollouts\n",
    )


def test_what_is_done_within_the_period_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("verifying", "MB") as update:
        for _ in range(100):
            update(advance=1)
    assert capsys.readouterr() == ("", "")


def test_a_name_cannot_move_the_cursor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(printing, "PERIOD", 0.0)
    with bar("\x1b[2Jpool") as update:
        update(1)
    assert capsys.readouterr().err == "radmoe: \\x1b[2Jpool: 1 rollouts\n"
