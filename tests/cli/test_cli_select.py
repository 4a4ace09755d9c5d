"""`radmoe select` with presets, in this process: the options reach the selector, and what cannot run says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from planted_pools import write_pool
from radmoe.cli import inspect
from radmoe.cli import select as command
from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe.selection import selector
from radmoe.selection.rule import PRESETS, Rule
from radmoe.selection.selector import select
from radmoe.types import RolloutGroup, Selection
from radmoe_lab import planted
from radmoe_lab.planted import Planted

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    app.command("select")(command.command)
    app.command("inspect")(inspect.command)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "160"})


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_line_is_printed_as_soon_as_its_pick_is_made(
    run: Run, shared_pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was printed before a failure is there: a long run that stops has not been in vain."""

    def one_and_no_more(groups: Iterator[RolloutGroup], **options: Any) -> Iterator[Selection]:
        yield select(next(groups))
        raise InputError("the disk is gone")

    monkeypatch.setattr(selector, "select_many", one_and_no_more)
    done = run("select", shared_pool, "--json")
    assert isinstance(done.exception, InputError)
    assert [json.loads(line)["problem_id"] for line in done.stdout.splitlines()] == [open_pool(shared_pool).problems[0]]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_taken_by_its_name(run: Run, shared_pool: Path, preset: str) -> None:
    lines = rows(run("select", shared_pool, "--json", "--preset", preset))
    for row, group in zip(lines, open_pool(shared_pool).groups(), strict=True):
        expected = select(group, preset=preset)
        assert (row["index"], row["readout"], row["k"]) == (expected.index, expected.readout, expected.k)
        assert (row["preset"], row["compare"]) == (preset, expected.compare)
        assert (row["fusion"], row["confidence"]) == (expected.fusion, expected.confidence)


def test_an_option_replaces_its_part_of_a_preset(run: Run, shared_pool: Path) -> None:
    options = (
        "--preset",
        "best",
        "--readout",
        "closing@-8",
        "--confidence",
        "tail",
        "--compare",
        "routing+text",
        "--k",
        2,
    )
    for row, group in zip(
        rows(run("select", shared_pool, "--json", *options)), open_pool(shared_pool).groups(), strict=True
    ):
        rule = Rule(readout="closing@-8", k=2, fusion="ranksum", confidence="tail", compare="routing+text")
        assert (row["index"], row["k"]) == (select(group, rule=rule).index, 2)
    plain = rows(run("select", shared_pool, "--json", "--preset", "paper+dc", "--fusion", "none"))
    assert [row["index"] for row in plain] == [select(group).index for group in open_pool(shared_pool).groups()]


@pytest.mark.parametrize("readout", ["closing@16", "closing@-16", "delimiter@span", "all"])
def test_the_new_readouts_are_taken_by_their_names(run: Run, shared_pool: Path, readout: str) -> None:
    lines = rows(run("select", shared_pool, "--json", "--readout", readout))
    picks = [select(group, readout=readout).index for group in open_pool(shared_pool).groups()]
    assert [row["index"] for row in lines] == picks
    assert {row["readout"] for row in lines} == {readout}


@pytest.mark.parametrize(
    ("options", "title"),
    [
        (["--preset", "best"], "math: delimiter@span, weighted kernel, k=3, ranksum by likelihood"),
        (["--preset", "best+text"], "math: delimiter@16 and text of the answers, weighted kernel, k=3, ranksum by"),
        (["--compare", "text", "--k", "2"], "math: text of the answers, k=2"),
        (["--preset", "paper+dc"], "math: delimiter@16, weighted kernel, k=10, conf50 by cbw"),
    ],
)
def test_the_table_says_by_which_rule(run: Run, shared_pool: Path, options: list[str], title: str) -> None:
    assert title in " ".join(run("select", shared_pool, *options).stdout.split())


def test_a_preset_that_cannot_run_says_which_column_is_missing(run: Run, tmp_path: Path) -> None:
    groups = list(planted.groups(Planted(problems=1, rollouts=4, tokens=40, logprobs=False)))
    path = write_pool(tmp_path / "bare", groups)
    for preset, column in (
        ("best", "sampled_logprobs"),
        ("best+text", "sampled_logprobs"),
        ("paper+dc", "topk_logprobs"),
    ):
        done = run("select", path, "--preset", preset)
        assert isinstance(done.exception, InputError)
        assert f"(the column {column}), which preset {preset} with fusion" in str(done.exception)
    assert run("select", path, "--preset", "paper").exit_code == 0


def test_an_unknown_preset_is_answered_with_the_known_ones(run: Run, shared_pool: Path) -> None:
    done = run("select", shared_pool, "--preset", "bets")
    assert str(done.exception) == "unknown preset 'bets': use one of paper, paper+dc, strict, best, best+text"


def test_inspect_counts_the_answers_that_close(run: Run, shared_pool: Path) -> None:
    facts = json.loads(run("inspect", shared_pool, "--json").stdout)
    coverage = {(row["readout"], row["kind"]): row["located"] for row in facts["coverage"]}
    closed = sum(int(select(group, readout="closing@-16").located.sum()) for group in open_pool(shared_pool).groups())
    assert coverage["closing@-16", "math"] == closed > 0
    assert coverage["closing@-16", "code"] == 0


def test_picks_within_numeric_noise_are_marked(run: Run, shared_pool: Path) -> None:
    said = run("select", shared_pool, "--noise", 1)
    assert said.exit_code == 0
    assert "~: within numeric noise: another rollout's density is less than 1 away" in said.stdout
    assert {row["within_noise"] for row in rows(run("select", shared_pool, "--noise", 1, "--json"))} == {True}
    assert {row["within_noise"] for row in rows(run("select", shared_pool, "--json"))} == {None}
    assert "~" not in run("select", shared_pool, "--noise", 0).stdout
    assert "got 2" in str(run("select", shared_pool, "--noise", 2).exception)
