"""`radmoe evaluate` as typed."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pools import graded_pool
from radmoe.cli import evaluate
from radmoe.errors import InputError, PoolNotFound, RadmoeError
from radmoe.selection.rule import PRESETS
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    app.command("evaluate", epilog=evaluate.EXAMPLES)(evaluate.command)
    return lambda *words, columns=120: CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": str(columns)})


@pytest.fixture
def pools(made: list[PlantedGroup], tmp_path: Path) -> list[Path]:
    code = list(planted.groups(Planted(problems=3, rollouts=8, tokens=60, kind="code", seed=5)))
    return [
        graded_pool(tmp_path / "one", made, task="math-1"),
        graded_pool(tmp_path / "two", code, task="code"),
    ]


def test_the_terminal_shows_every_table_and_ends_with_the_verdict(run: Run, pools: list[Path]) -> None:
    done = run(*pools, "--full")
    assert done.exit_code == 0, done.output
    for title in ("Accuracy", "Strict", "Anchor coverage", "lift comes from", "Paired", "random picks", "wrong basins", "Other methods"):  # fmt: skip
        assert title in done.stdout
    assert "math-1" in done.stdout
    assert done.stdout.strip().splitlines()[-1].endswith(".")


def test_one_screen_has_the_verdict_first_and_the_best_baseline_in_it(run: Run, pools: list[Path]) -> None:
    lines = run(*pools, columns=80).stdout.splitlines()
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("planted: 7 problems x 8-12 rollouts")
    text = " ".join(" ".join(lines).split())
    assert (
        text.index("RAD is right")
        < text.index("The best baseline that reads no routing is")
        < text.index("Percent right")
    )
    assert {"a random rollout", "likelihood", "RAD", "oracle (best of all)"} <= {line[:20].strip() for line in lines}
    assert "--full" in lines[-1]


def test_fewer_rollouts_belong_to_rivals(run: Run, pools: list[Path]) -> None:
    assert "--fewer adds rows to the tables of --rivals" in str(run(*pools, "--fewer", 4).exception)


def test_every_preset_and_rival_is_listed(run: Run, pools: list[Path]) -> None:
    tables = {table["key"]: table for table in json.loads(run(*pools, "--json", "--resamples", 50).stdout)["tables"]}
    names = {row["cells"][0]["value"] for row in tables["baselines"]["rows"]}
    assert {f"preset {name}" for name in PRESETS} <= names
    rivals = {
        "likelihood",
        "self-certainty",
        "text overlap",
        "edit distance",
        "behaviour clusters",
        "text overlap + likelihood",
    }
    assert rivals <= names
    assert {"RAD + text + likelihood", "best's routing + text", "best + text overlap"} <= names
    kinds = {row["cells"][0]["value"] for row in tables["kinds"]["rows"]}
    assert {"preset best", "preset best+text"} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("style", ["markdown", "csv", "latex", "json"])
def test_every_format_goes_to_a_file_by_its_suffix(run: Run, pools: list[Path], tmp_path: Path, style: str) -> None:
    suffix = {"markdown": ".md", "csv": ".csv", "latex": ".tex", "json": ".json"}[style]
    out = tmp_path / f"tables{suffix}"
    assert run(*pools, "--out", out).exit_code == 0
    assert run(*pools, "--format", style).stdout == out.read_text()


def test_a_pool_given_twice_is_refused(run: Run, pools: list[Path]) -> None:
    done = run(pools[0], pools[1], pools[0])
    assert "give every pool once, or its rollouts are counted twice" in str(done.exception)
    assert done.stdout == ""


@pytest.mark.slow
def test_json_is_for_programs(run: Run, pools: list[Path]) -> None:
    body = json.loads(run(*pools, "--json", "--k", 3, "--resamples", 50).stdout)
    assert [(p["dataset"], p["kind"], p["k"]) for p in body["pools"]] == [("math-1", "math", 3), ("code", "code", 3)]
    assert body["intervals"] == {"resamples": 50, "seed": 0, "level": 0.95}


@pytest.mark.slow
def test_names_and_kind_of_pools_that_do_not_say(run: Run, made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "plain", made, record_kind=False)
    done = run(path, "--name", "mine", "--kind", "choice", "--format", "csv")
    assert "mine" in {line["column"] for line in csv.DictReader(io.StringIO(done.stdout))}
    assert done.stderr == ""
    body = json.loads(run(path, "--json").stdout)
    assert (body["pools"][0]["dataset"], body["pools"][0]["kind"]) == ("plain", "math")


def test_code_whose_kind_nobody_said_is_read_at_its_fence_and_that_is_said(run: Run, tmp_path: Path) -> None:
    code = list(planted.groups(Planted(problems=3, rollouts=8, tokens=60, kind="code", seed=5)))
    path = graded_pool(tmp_path / "code", code, record_kind=False)
    for _ in range(2):  # the second answer comes from the cache
        done = run(path, "--json")
        assert re.search(
            r"kind code: inferred from ``` in \d+% of the rollouts; give --kind if it is another", done.stderr
        )
        (pool,) = json.loads(done.stdout)["pools"]
        assert pool["kind"] == "code"
        assert all("behaviour" in name.split("+") for name in pool["missing"])  # which is measured on request
    wrong = run(path, "--kind", "math")
    assert "the marker of kind math" in str(wrong.exception)
    assert "give --kind code" in str(wrong.exception)


@pytest.mark.slow
def test_families_pool_the_styles_of_a_model(run: Run, made: list[PlantedGroup], tmp_path: Path) -> None:
    pools = [graded_pool(tmp_path / s, made, task="math-1", model="lab-oss", style=s) for s in ("low", "high")]
    pools.append(graded_pool(tmp_path / "other", made, task="math-1", model="lab-qwen"))

    def sections(*words: str) -> dict[str, int]:
        table = json.loads(run(*pools, "--json", *words).stdout)["tables"][0]
        rad = [row for row in table["rows"] if row["cells"][0]["value"] == "RAD"]
        return {row["section"]: row["cells"][2]["n"] for row in rad} | {"": table["sections"]}

    assert sections() == {"lab-oss low": 4, "lab-oss high": 4, "lab-qwen": 4, "all": 12, "": "model"}
    assert sections("--by", "family") == {"lab-oss": 8, "lab-qwen": 4, "all": 12, "": "family"}


@pytest.mark.slow
def test_the_window_of_confidence_is_an_option(run: Run, pools: list[Path]) -> None:
    body = json.loads(run(pools[0], "--json", "--confidence-window", 32).stdout)
    assert body["pools"][0]["confidence_window"] == 32
    assert "confidence window 32" in run(pools[0], "--confidence-window", 32).stdout.splitlines()[0]


def test_a_text_file_gets_the_terminals_tables_and_an_unknown_suffix_is_refused(
    run: Run, pools: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "tables.txt"
    assert run(*pools, "--out", out).exit_code == 0
    assert out.read_text().splitlines()[2].startswith("Accuracy")
    refused = run(*pools, "--out", tmp_path / "tables.xyz")
    assert "does not say which format it shall have: end it in .md, .csv" in str(refused.exception)
    assert not (tmp_path / "tables.xyz").exists()
    assert run(*pools, "--out", tmp_path / "tables.xyz", "--format", "csv").exit_code == 0


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["nowhere"], PoolNotFound, "there is no pool at nowhere"),
        (["POOL", "--format", "yaml"], InputError, "unknown format 'yaml': use one of terminal"),
        (["POOL", "--json", "--format", "csv"], InputError, "--json contradicts --format csv"),
        (["POOL", "--name", "a", "--name", "b"], InputError, "2 --name for 1 pools"),
        (["POOL", "--jobs", "0"], InputError, "jobs must be at least 1, got 0"),
        (["POOL", "--resamples", "0"], InputError, "resamples must be at least 1, got 0"),
        (["POOL", "--readout", "nonsense"], InputError, "unknown readout 'nonsense'"),
        (["POOL", "--k", "0"], InputError, "k must be a whole number"),
        (["POOL", "--kind", "poetry"], InputError, "unknown kind 'poetry'"),
        (["POOL", "--kind", "code"], InputError, "--kind code contradicts it"),
        (["POOL", "--confidence-window", "0"], InputError, "window must be at least 1 token, got 0"),
        (["POOL", "--by", "size"], InputError, "unknown grouping 'size': use one of configuration, family"),
    ],
)
def test_what_cannot_be_evaluated_is_one_clear_line(
    run: Run, pools: list[Path], words: list[str], error: type[RadmoeError], message: str
) -> None:
    done = run(*[pools[0] if word == "POOL" else word for word in words])
    assert isinstance(done.exception, error)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.slow
def test_a_readout_the_pool_did_not_keep_is_one_clear_line(run: Run, made: list[PlantedGroup], tmp_path: Path) -> None:
    from radmoe.pool import Profile

    path = graded_pool(tmp_path / "small", made, profile=Profile(readouts=("delimiter@marker",)))
    assert "use a readout it was captured for" in str(run(path).exception)
    assert run(path, "--readout", "delimiter@marker").exit_code == 0


def test_without_scipy_it_says_what_to_install(run: Run, pools: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert "evaluate needs scipy: pip install 'radmoe[eval]'" in str(run(pools[0]).exception)


@pytest.mark.slow
def test_an_interrupt_stops_every_process_at_once(tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", list(planted.groups(Planted(problems=80, rollouts=6, tokens=20))))
    code = (  # a shell's background jobs ignore SIGINT, and their children inherit that
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from radmoe.evaluation import workers; workers.FEW = 0\n"
        "from radmoe.cli import main; main()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, "evaluate", str(path), "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"RADMOE_CACHE": str(path / "cache")},
    )
    wait_for_children(running, 2)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert (out, err) == (
        "",
        "radmoe: interrupted: evaluate has left nothing half written: run the same command again\n",
    )
    assert not (path / "cache").exists()


def wait_for_children(process: subprocess.Popen[str], count: int) -> None:
    """Until it has started workers: the resource tracker is a child too."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(children) > count:
            return
        time.sleep(0.02)
    process.kill()
    pytest.fail(f"no workers appeared: {process.communicate()}")
