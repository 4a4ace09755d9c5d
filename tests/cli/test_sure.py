"""`radmoe calibrate`, `select --calibration` and `advise` as typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from planted_pools import graded_pool
from radmoe import certainty
from radmoe.cli import advise, calibrate, select
from radmoe.errors import InputError
from radmoe.lab import planted
from radmoe.lab.planted import Planted
from radmoe.types import RouterShape

Run = Callable[..., Result]
CHECKPOINT = "c0ffee" * 10 + "abcd"
SHAPE = RouterShape(4, 16, 2)


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
        tmp_path_factory.mktemp("sure") / "pool", list(planted.groups(recipe)), provenance={"checkpoint": CHECKPOINT}
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


def test_calibrate_shows_error_brier_scores_and_risk_and_writes_what_select_takes(
    run: Run, pool: Path, tmp_path: Path
) -> None:
    done = run("calibrate", pool, "--out", tmp_path / "c.json", "--report", tmp_path / "r", "--resamples", 100)
    assert done.exit_code == 0, done.output
    for word in ("error", "by chance", "Brier", "base rate's", "share's", "Risk by coverage", "dense from"):
        assert word in done.stdout
    body = json.loads((tmp_path / "c.json").read_text())
    assert body["checkpoint"] == CHECKPOINT
    assert (tmp_path / "r" / "calibration.png").is_file()
    again = run("calibrate", pool, "--json", "--resamples", 100)
    assert json.loads(again.stdout)["calibration"] == body


def test_select_gives_probabilities_and_names_dense_picks(run: Run, pool: Path, fitted: Path) -> None:
    rows = lines(run("select", pool, "--calibration", fitted, "--json"))
    plain = lines(run("select", pool, "--json"))
    assert [row["index"] for row in rows] == [row["index"] for row in plain]
    assert all(0 < row["probability"] < 1 for row in rows)  # type: ignore[operator]
    dense = json.loads(fitted.read_text())["kinds"]["math"]["dense"]
    assert sum(bool(row["dense"]) for row in rows) == dense["picks"]
    shown = run("select", pool, "--calibration", fitted).stdout
    assert f"of the {dense['picks']} graded picks" in shown
    assert "routing cannot tell them apart" in shown
    assert "Careful" not in shown


def test_below_a_probability_there_is_no_pick(run: Run, pool: Path, fitted: Path) -> None:
    rows = lines(run("select", pool, "--calibration", fitted, "--json"))
    middle = sorted(float(row["probability"]) for row in rows)[len(rows) // 2]  # type: ignore[arg-type]
    cautious = lines(run("select", pool, "--calibration", fitted, "--abstain-below", middle, "--json"))
    for row, other in zip(rows, cautious, strict=True):
        assert other["abstained"] == (float(row["probability"]) < middle)  # type: ignore[arg-type]
        assert other["index"] == (None if other["abstained"] else row["index"])
    assert run("select", pool, "--calibration", fitted, "--abstain-below", 1).exit_code == 0
    assert "abstains" in run("select", pool, "--calibration", fitted, "--abstain-below", middle).stdout


def test_without_a_calibration_there_is_a_rank_and_it_says_so(run: Run, pool: Path) -> None:
    assert "probability" not in lines(run("select", pool, "--json"))[0]
    shown = run("select", pool).stdout
    assert sorted(map(int, re.findall(r"(\d+) of 40\b", shown))) == list(range(1, 41))
    assert "It is no probability" in shown


def test_a_shipped_calibration_is_used_for_its_weights_and_its_way_to_select(
    run: Run, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certainty, "SHELF", tmp_path)
    done = run("calibrate", pool, "--ship", "--resamples", 100)
    assert done.exit_code == 0, done.output
    assert [file.name for file in tmp_path.iterdir()] == [f"{CHECKPOINT}.json"]
    assert "probability" in lines(run("select", pool, "--json"))[0]
    assert "probability" not in lines(run("select", pool, "--k", 3, "--json"))[0]
    assert "that ships for planted" in run("select", pool).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--abstain-below", 0.5), "--abstain-below needs probabilities"),
        (("--calibration", "FITTED", "--k", 3), "was fitted for the defaults, --k is another way to select"),
        (("--calibration", "FITTED", "--layers", "0-1"), "--layers or --budget is another way"),
        (("--calibration", "FITTED", "--abstain-below", 2), "a probability from 0 to 1, got 2"),
        (("--calibration", "nowhere.json"), "cannot read the calibration nowhere.json"),
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


def test_other_weights_and_unknown_weights_are_told_apart(run: Run, fitted: Path, tmp_path: Path) -> None:
    made = list(planted.groups(Planted(problems=2, rollouts=6, tokens=20, shape=SHAPE, seed=9)))
    other = graded_pool(tmp_path / "other", made, provenance={"checkpoint": "0" * 64})
    done = run("select", other, "--calibration", fitted)
    assert isinstance(done.exception, InputError)
    assert "was fitted for planted (c0ffeec0ffee), the rollouts are of planted (000000000000)" in str(done.exception)
    unknown = graded_pool(tmp_path / "unknown", made)
    shown = run("select", unknown, "--calibration", fitted).stdout
    assert "Careful: nobody recorded" in shown
    assert "Careful: math was fitted on" in shown  # six rollouts here, ten there


def test_shipping_needs_the_fingerprint_of_the_weights(run: Run, tmp_path: Path) -> None:
    recipe = Planted(problems=30, rollouts=6, tokens=20, shape=SHAPE)
    done = run("calibrate", graded_pool(tmp_path / "p", list(planted.groups(recipe))), "--ship", "--resamples", 100)
    assert isinstance(done.exception, InputError)
    assert "--ship needs the fingerprint of the weights" in str(done.exception)


def test_deleting_the_labels_changes_no_probability(run: Run, fitted: Path, tmp_path: Path) -> None:
    made = list(planted.groups(Planted(problems=3, rollouts=10, tokens=20, shape=SHAPE, seed=4)))
    path = graded_pool(tmp_path / "p", made)
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
