"""`radmoe calibrate`, `select --calibration` and `advise` as typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import radmoe
from planted_pools import graded_pool, write_pool
from radmoe import find_calibration
from radmoe.cli import advise, select
from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe.selection import calibration
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.commands import calibrate

Run = Callable[..., Result]
CHECKPOINT = "c0ffee" * 10 + "abcd"
SHAPE = RouterShape(4, 16, 2)
SAMPLING = {"temperature": 0.8, "top_p": 1.0}


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    for module in (calibrate, select, advise):
        app.command(module.__name__.rpartition(".")[2])(module.command)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "150"})


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = Planted(problems=40, rollouts=10, tokens=20, shape=SHAPE)
    return graded_pool(
        tmp_path_factory.mktemp("sure") / "pool",
        list(planted.groups(recipe)),
        task="sums",
        style="thinking",
        sampling=SAMPLING,
        provenance={"checkpoint": CHECKPOINT},
    )


@pytest.fixture(scope="module")
def fitted(pool: Path) -> Path:
    app = typer.Typer()
    app.command()(calibrate.command)
    out = pool.parent / "sure.json"
    done = CliRunner().invoke(app, [str(pool), "--out", str(out), "--resamples", "100"])
    assert done.exit_code == 0, done.output
    return out


def lines(done: Result) -> list[dict[str, object]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_calibrate_shows_error_brier_scores_and_risk_and_writes_what_select_takes(
    run: Run, pool: Path, tmp_path: Path
) -> None:
    done = run("calibrate", pool, "--out", tmp_path / "c.json", "--report", tmp_path / "r", "--resamples", 100)
    assert done.exit_code == 0, done.output
    for word in ("Is it calibrated", "verdict", "by chance", "Brier", "base rate's", "Risk by coverage", "dense from"):
        assert word in done.stdout
    body = json.loads((tmp_path / "c.json").read_text())
    assert body["origin"]["checkpoint"] == CHECKPOINT
    assert (tmp_path / "r" / "calibration.png").is_file()
    again = run("calibrate", pool, "--json", "--resamples", 100)
    assert json.loads(again.stdout)["calibration"] == body


def test_select_gives_probabilities_and_names_dense_picks(run: Run, pool: Path, fitted: Path) -> None:
    rows = lines(run("select", pool, "--calibration", fitted, "--json"))
    plain = lines(run("select", pool, "--json"))
    assert [row["index"] for row in rows] == [row["index"] for row in plain]
    inside = [row for row in rows if row["probability"] is not None]
    assert len(inside) > 30
    assert all(0 < row["probability"] < 1 for row in inside)  # type: ignore[operator]
    assert all(row["probability_reason"] for row in rows if row["probability"] is None)
    dense = json.loads(fitted.read_text())["kinds"]["math"]["curves"][-1]["dense"]
    assert 0 < sum(bool(row["dense"]) for row in rows) <= dense["picks"]
    shown = run("select", pool, "--calibration", fitted).stdout
    assert f"of the {dense['picks']} graded picks" in shown
    assert "routing cannot tell them apart" in shown
    assert "Careful" not in shown


def test_below_a_probability_there_is_no_pick(run: Run, pool: Path, fitted: Path) -> None:
    rows = lines(run("select", pool, "--calibration", fitted, "--json"))
    named = [str(row["problem_id"]) for row in rows if row["probability"] is not None]
    only = [word for name in named for word in ("--problem", name)]
    rows = [row for row in rows if row["problem_id"] in named]
    middle = sorted(float(row["probability"]) for row in rows)[len(rows) // 2]  # type: ignore[arg-type]
    cautious = lines(run("select", pool, "--calibration", fitted, *only, "--abstain-below", middle, "--json"))
    for row, other in zip(rows, cautious, strict=True):
        assert other["abstained"] == (float(row["probability"]) < middle)  # type: ignore[arg-type]
        assert other["index"] == (None if other["abstained"] else row["index"])
    assert 0 < sum(bool(other["abstained"]) for other in cautious) < len(rows)
    assert "abstains" in run("select", pool, "--calibration", fitted, *only, "--abstain-below", middle).stdout


def part(pool: Path, path: Path, rollouts: int, **options: object) -> Path:
    """A pool of the first rollouts of each problem of another one."""
    recipe = Planted(problems=40, rollouts=10, tokens=20, shape=SHAPE)
    made = list(planted.groups(recipe))
    cut = [
        replace(one, group=replace(one.group, rollouts=one.group.rollouts[:rollouts], rollout_indices=None))
        for one in made
    ]
    cut = [replace(one, texts=one.texts[:rollouts], answers=one.answers[:rollouts]) for one in cut]
    record = {"task": "sums", "style": "thinking", "sampling": SAMPLING, "provenance": {"checkpoint": CHECKPOINT}}
    return write_pool(path, cut, **(record | options))


def test_fewer_rollouts_than_were_fitted_have_dashes_and_a_reason_and_nobody_abstains_by_them(
    run: Run, pool: Path, fitted: Path, tmp_path: Path
) -> None:
    few = part(pool, tmp_path / "few", 5)
    rows = lines(run("select", few, "--calibration", fitted, "--json"))
    picked = [row for row in rows if row["index"] is not None]
    assert picked
    for row in picked:
        assert row["probability"] is None
        assert "there are 5 rollouts, and it was fitted for 8 to 10" in str(row["probability_reason"])
    shown = run("select", few, "--calibration", fitted).stdout
    assert " sure" in shown
    assert re.search(r" -- *\n", shown)
    assert "no probability for" in shown
    refused = run("select", few, "--calibration", fitted, "--abstain-below", 0.3)
    assert isinstance(refused.exception, InputError)
    assert "there are 5 rollouts, and it was fitted for 8 to 10" in str(refused.exception)
    assert "\n" not in str(refused.exception)


def test_nine_of_ten_rollouts_have_about_the_probability_of_all(
    run: Run, pool: Path, fitted: Path, tmp_path: Path
) -> None:
    whole = lines(run("select", pool, "--calibration", fitted, "--json"))
    fewer = lines(run("select", part(pool, tmp_path / "nine", 9), "--calibration", fitted, "--json"))
    pairs = [(a["probability"], b["probability"]) for a, b in zip(whole, fewer, strict=True)]
    known = [(float(a), float(b)) for a, b in pairs if a is not None and b is not None]  # type: ignore[arg-type]
    assert len(known) > 25
    assert abs(sum(a - b for a, b in known) / len(known)) < 0.1
    assert min(b for _, b in known) > 0.01


def test_without_a_calibration_there_is_a_rank_that_nobody_reads_as_a_probability(run: Run, pool: Path) -> None:
    row = lines(run("select", pool, "--json"))[0]
    assert row["probability"] is None
    assert row["dense"] is None
    assert "no calibration ships" in str(row["probability_reason"])
    shown = run("select", pool).stdout
    assert re.search(r"margin +rank", shown)
    assert "sure" not in shown
    assert sorted(map(int, re.findall(r" (\d+)(?:st|nd|rd|th) *\n", shown))) == list(range(1, 41))
    assert {"11th", "21st", "22nd", "33rd"} <= set(shown.split())
    assert " of 40" not in shown
    assert "It is no probability: no calibration ships for the weights of planted" in shown


@pytest.mark.slow
def test_a_shipped_calibration_is_used_for_its_weights_and_its_way_to_select(
    run: Run, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SHELF", tmp_path)
    done = run("calibrate", pool, "--ship", "--resamples", 100)
    assert done.exit_code == 0, done.output
    assert [file.name for file in tmp_path.iterdir()] == [f"{CHECKPOINT[:16]}-thinking-t0.8-p1.json"]
    rows = lines(run("select", pool, "--json"))
    python = find_calibration(open_pool(pool))
    assert python.calibration is not None
    for row, group in zip(rows, open_pool(pool).groups(), strict=True):
        assert row["probability"] == python.judge(radmoe.select(group), group).probability
    assert any(row["probability"] is not None for row in rows)
    assert lines(run("select", pool, "--preset", "paper", "--json")) == rows
    for words in (("--k", 3), ("--preset", "best"), ("--layers", "0-1")):
        assert {row["probability"] for row in lines(run("select", pool, *words, "--json"))} == {None}
    assert "that ships for planted, style thinking, temperature 0.8, top-p 1" in run("select", pool).stdout
    cooler = part(
        pool, tmp_path / "cooler", 10, style="thinking", task="sums", sampling=SAMPLING | {"temperature": 0.7}
    )
    shown = run("select", cooler).stdout
    assert "these rollouts are of planted, style thinking, temperature 0.7, top-p 1" in shown
    assert "rank" in shown
    assert "--abstain-below needs probabilities" in str(run("select", cooler, "--abstain-below", 0.3).exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--abstain-below", 0.5), "--abstain-below needs probabilities"),
        (("--calibration", "FITTED", "--k", 3), "was fitted for --preset paper, --k is another way to select"),
        (("--calibration", "FITTED", "--layers", "0-1"), "--layers is another way to select"),
        (("--calibration", "FITTED", "--abstain-below", 2), "a probability from 0 to 1, got 2"),
        (("--calibration", "nowhere.json"), "cannot read nowhere.json (No such file or directory): pass a calibration"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: tuple[object, ...], message: str, run: Run, pool: Path, fitted: Path
) -> None:
    words = [fitted if word == "FITTED" else word for word in options]
    done = run("select", pool, *words)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"provenance": {"checkpoint": "0" * 64}},
            "for planted (c0ffeec0ffee), these rollouts are of planted (000000000000)",
        ),
        ({"provenance": {}}, "these rollouts are of planted (weights not recorded)"),
        ({"style": "instruct"}, "for style thinking, these rollouts have style instruct"),
        ({"sampling": SAMPLING | {"top_p": 0.9}}, "for top-p 1, these rollouts have top-p 0.9"),
    ],
)
def test_rollouts_of_other_weights_style_or_sampling_have_dashes_and_a_reason(
    change: dict[str, object], reason: str, run: Run, pool: Path, fitted: Path, tmp_path: Path
) -> None:
    other = part(pool, tmp_path / "other", 10, **change)
    rows = lines(run("select", other, "--calibration", fitted, "--json"))
    assert {row["probability"] for row in rows} == {None}
    assert all(reason in str(row["probability_reason"]) for row in rows)
    shown = run("select", other, "--calibration", fitted).stdout
    assert reason in shown
    assert re.search(r"margin +sure", shown)
    refused = run("select", other, "--calibration", fitted, "--abstain-below", 0.3)
    assert isinstance(refused.exception, InputError)
    assert reason in str(refused.exception)


def test_probabilities_that_tell_nothing_more_than_the_base_rate_are_called_so(
    run: Run, pool: Path, fitted: Path, tmp_path: Path
) -> None:
    body = json.loads(fitted.read_text())
    for brier, told in ((0.1, True), (0.25, False)):
        body["kinds"]["math"]["measured"] |= {"brier": brier, "brier_base": 0.25}
        (tmp_path / "sure.json").write_text(json.dumps(body))
        shown = run("select", pool, "--calibration", tmp_path / "sure.json").stdout
        assert ("no better than the share of right picks" in shown) == (not told)


def test_another_task_is_warned_of(run: Run, pool: Path, fitted: Path, tmp_path: Path) -> None:
    shown = run("select", part(pool, tmp_path / "other", 10, task="harder"), "--calibration", fitted).stdout
    assert "Careful: it was fitted on sums, and probabilities are too high on harder problems" in shown


def test_shipping_needs_the_fingerprint_of_the_weights(run: Run, tmp_path: Path) -> None:
    recipe = Planted(problems=30, rollouts=8, tokens=20, shape=SHAPE)
    done = run("calibrate", graded_pool(tmp_path / "p", list(planted.groups(recipe))), "--ship", "--resamples", 100)
    assert isinstance(done.exception, InputError)
    assert "--ship needs the fingerprint of the weights" in str(done.exception)


def test_deleting_the_labels_changes_no_probability(run: Run, fitted: Path, tmp_path: Path) -> None:
    made = list(planted.groups(Planted(problems=3, rollouts=10, tokens=20, shape=SHAPE, seed=4)))
    record = {"task": "sums", "style": "thinking", "sampling": SAMPLING, "provenance": {"checkpoint": CHECKPOINT}}
    path = graded_pool(tmp_path / "p", made, **record)
    before = run("select", path, "--calibration", fitted, "--json").stdout
    (path / "labels.parquet").unlink()
    assert run("select", path, "--calibration", fitted, "--json").stdout == before


def test_advise_says_a_regime_a_preset_and_a_command(run: Run, pool: Path) -> None:
    done = run("advise", pool, "--limit", 12)
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    regime = first.split(".")[0].removeprefix("math: ")
    assert regime in ("settled", "contested", "scattered")
    assert "of all pairs" in first
    assert second.startswith(f"  radmoe select {pool}")
    body = json.loads(run("advise", pool, "--limit", 12, "--json").stdout)
    assert body["math"]["regime"] == regime
    assert run("select", *second.split()[2:], "--limit", 3).exit_code == 0
