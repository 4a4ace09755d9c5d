"""`radmoe replicate` as typed: the lab as if it were the paper's model, and the paper's configurations without weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from command_line import interrupted, radmoe, start
from fake_server import FakeServer
from radmoe.engines import open_engine
from radmoe.engines.models import resolve_model
from radmoe.errors import InputError, RadmoeError
from radmoe.pool import open_pool
from radmoe_studies.commands import replicate
from radmoe_studies.replicate.cell import ReplicatedTask, measured
from radmoe_studies.replicate.configs import CONFIGS
from radmoe_studies.replicate.document import read_document
from radmoe_studies.replicate.run import STATE
from replications import cell, replication
from weightless_engine import sums

Run = Callable[..., Result]
THINKING = "qwen3-30b-a3b-thinking"
TASKS = ("--task", "aime_2025,gpqa,livecodebench")
SLOW = ("--engine", "weightless_engine.SlowEngine", "--batch-size", 16)
WEIGHTLESS = ("--engine", "weightless_engine.WeightlessEngine", "--yes")


@pytest.fixture(scope="module")
def run() -> Run:
    app = typer.Typer()
    app.command("replicate")(replicate.command)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sums(tmp_path_factory.mktemp("rows"), 12)


@pytest.fixture(scope="module")
def whole(run: Run, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replication of three of the paper's cells by an engine that has all but its weights."""
    out = tmp_path_factory.mktemp("whole") / "one"
    done = run(THINKING, *TASKS, "--data", rows, "-n", 8, "--seed", 1, "--out", out, *WEIGHTLESS)
    assert done.exit_code == 0, done.output
    return out


def cells(out: Path) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = read_document(out / "replication.json")["runs"][0]["cells"]
    return own


@pytest.mark.slow
def test_the_lab_stands_for_the_papers_model_from_the_estimate_to_the_verdict(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    words = ("replicate", "lab-qwen-thinking", "--task", "math-2", "-n", 8, "--limit", 10, "--out", out)
    asked = radmoe(*words, "--json")
    estimate = json.loads(asked.stdout)
    assert "run the same command with --yes" in asked.stderr
    assert not (out / "pools").exists()
    assert estimate["rollouts"] == 80
    assert 50 < estimate["low"] < 400
    assert estimate["low"] <= estimate["tokens"] <= estimate["high"] <= 1_024  # a busy machine may see no rollout end
    assert estimate["hours"] > 0
    done = radmoe(*words, "--yes", "--choose-by-model")
    assert "A short run" not in done.stderr  # the estimate was kept
    assert "math-2, 10 problems; the paper: AIME25, math n = 118, Qwen3-30B-A3B" in done.stdout
    for line in (
        "likelihood",
        "text overlap",
        "DeepConf online, keeps 10%",
        "RAD at its tokens",
        "chosen by the model",
    ):
        assert f"\n{line}" in done.stdout
    assert "Read at the marker alone, RAD gains over a random rollout what the paper prints" in done.stdout
    assert "A rehearsal: lab-qwen and its tasks stand where" in done.stdout
    body = read_document(out / "replication.json")
    (own,) = body["runs"][0]["cells"]
    assert (body["sampling"]["n"], len(own["problems"]), body["runs"][0]["seed"]) == (8, 10, estimate["seed"])
    pool = open_pool(out / "pools" / "math-2")
    assert sum(own["tokens"]) == pool.tokens
    assert pool.meta["run"]["profile"]["readouts"] == ["delimiter@16", "delimiter@span"]
    sampled = pool.meta["run"]["sampling"]
    assert (sampled["temperature"], sampled["top_p"], sampled["max_tokens"]) == (0.7, 0.9, 1_024)
    assert pool.meta["run"]["style"] == "thinking"
    verdicts = {one["claim"]: one["verdict"] for one in body["results"]["decisions"]}
    assert {"replicate.strict-gain", "replicate.rad-above-choice", "main.above-average"} <= set(verdicts)


@pytest.mark.slow
def test_every_method_is_measured_on_every_cell_of_a_configuration(whole: Path) -> None:
    from radmoe.evaluation.methods import METHODS

    for own in cells(whole):
        assert own["hits"].keys() | own["missing"].keys() == set(METHODS)
        assert {"rad", "rad+dc", "strict", "likelihood", "text-overlap", "preset:best"} <= set(own["hits"])
        assert set(own["equal_tokens"]) == {"DeepConf online, keeps 90%", "DeepConf online, keeps 10%"}
        assert own["choice"] is None
        right = sum(own["counts"]["right"])
        assert 0.6 < right / (8 * 12) < 0.9  # planted: 0.75
        assert sum(own["hits"]["likelihood"]) == 12  # what is right was sampled as likely
        assert sum(own["hits"]["rad"]) > right / 8  # and agrees
    assert [own["task"] for own in cells(whole)] == ["aime_2025", "gpqa_diamond", "livecodebench_v5"]


@pytest.mark.slow
def test_a_replication_that_is_killed_anywhere_ends_as_one_that_was_not(
    whole: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once the estimate is there, in the first and in the last capture, and while the last pool is graded."""
    support = Path(__file__).parents[4] / "tests" / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "mine"
    words = ["replicate", THINKING, *TASKS, "--data", rows, "-n", 8, "--seed", 1, "--out", out, *SLOW, "--yes"]
    pools = [out / "pools" / name for name in ("aime_2025", "gpqa_diamond", "livecodebench_v5")]
    for there in (
        out / STATE,
        pools[0] / "token_data_00000",
        pools[2] / "token_data_00000",
        pools[1] / "labels.parquet",
    ):
        process = start(words)
        while not there.exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert process.returncode < 0, "it ended before it was killed"
        assert not (out / "replication.json").exists()
    code, _, said = interrupted(words, lambda: (pools[2] / "labels.parquet").exists())
    assert code in (0, 130), said
    assert radmoe(*words).returncode == 0
    assert cells(out) == cells(whole)


@pytest.mark.slow
def test_several_peoples_files_are_pooled(run: Run, whole: Path, rows: Path, tmp_path: Path) -> None:
    other, pooled = tmp_path / "two", tmp_path / "pooled.json"
    words = (THINKING, *TASKS, "--data", rows, "-n", 8, "--out", other, *WEIGHTLESS)
    assert run(*words).exit_code == 0
    files = [out / "replication.json" for out in (whole, other)]
    done = run("--merge", *files, "--out", pooled, "--json")
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    assert read_document(pooled) == body
    assert [len(one["cells"]) for one in body["runs"]] == [3, 3]
    assert {one["n"] for one in body["results"]["decisions"]} <= {12, 24, 36}
    before = files[0].read_bytes()
    bad = run("--merge", *files, "--out", files[0])
    assert "writes to one that it reads" in str(bad.exception)
    assert files[0].read_bytes() == before


@pytest.mark.slow
def test_gpt_oss_and_full_routing(run: Run, rows: Path, tmp_path: Path) -> None:
    words = ("gpt-oss-20b-low", "--task", "aime_2025", "--data", rows / "aime_2025.jsonl", "-n", 2, "--limit", 3)
    done = run(*words, "--full", "--out", tmp_path / "mine", *WEIGHTLESS)
    assert done.exit_code == 0, done.output
    pool = open_pool(tmp_path / "mine" / "pools" / "aime_2025")
    assert (pool.meta["run"]["style"], pool.meta["run"]["profile"]["readouts"]) == ("low", None)
    assert (str(pool.shape), len(pool)) == ("24x32 top-4", 6)


def test_the_list_has_the_papers_configurations_and_the_rehearsal(run: Run) -> None:
    lines = run("--list").stdout.splitlines()
    assert len(lines) == 12
    assert any(line.split()[:2] == [THINKING, "Qwen/Qwen3-30B-A3B-Thinking-2507"] for line in lines)
    (one,) = (row for row in json.loads(run("--list", "--json").stdout) if row["name"] == THINKING)
    assert (one["router"], one["temperature"], one["n"]) == ("48x128 top-8", 0.7, 64)


def bad(run: Run, *words: object) -> str:
    """The one line of a known error."""
    done = run(*words)
    assert isinstance(done.exception, RadmoeError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs one configuration, got 0: gpt-oss-20b-low, "),
        ((THINKING, "gpt-oss-20b-low"), "needs one configuration, got 2"),
        (("gpt-5",), "unknown configuration 'gpt-5': use one of"),
        ((THINKING, "--list"), "--list stands alone"),
        ((THINKING, "--task", "aime"), "has no task 'aime': use some of aime_2024"),
        ((THINKING, "--task", "gpqa,nothing"), "has no task 'nothing'"),
        ((THINKING, "-n", 1), "-n must be at least 2"),
        ((THINKING, *TASKS, "--data", "ROWS/aime_2025.jsonl"), "3 tasks need one with a TASK.jsonl each"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--limit", 0), "limit must be at least 1, got 0"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--batch-size", 0, *WEIGHTLESS), "--batch-size must be at least 1"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--seed", -1, *WEIGHTLESS), "seed must not be negative"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--model", "nowhere"), "no model 'nowhere'"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--model", "gpt-oss-20b", *WEIGHTLESS),
         "gpt-oss-20b has a router of 24x32 top-4 and qwen3-30b-a3b-thinking one of 48x128 top-8"),
        ((THINKING, "--task", "aime_2025", "--data", "ROWS", "--engine", "weightless_engine.ShortEngine"),
         "takes 8,192 tokens here and qwen3-30b-a3b-thinking is sampled up to 32,768: start the server"),
        ((THINKING, "--task", "gpqa", "--data", "ROWS/aime_2025.jsonl"), "aime_2025.jsonl line 1 has no Correct Answer"),
        (("--merge",), "two files or more, got none"),
        (("--merge", "ROWS/aime_2025.jsonl", "ROWS/gpqa_diamond.jsonl"), "is not JSON"),
        (("--merge", "ROWS/a", "ROWS/a"), "has a file twice"),
        (("--merge", "ROWS/a", "ROWS/b", "-n", 4), "leave out what says how to sample"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(
    words: tuple[object, ...], message: str, run: Run, rows: Path, tmp_path: Path
) -> None:
    given = [str(word).replace("ROWS", str(rows)) for word in words]
    assert message in bad(run, *given, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_directory_of_another_replication_is_left_as_it_is(run: Run, whole: Path, rows: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    words = ("--task", "aime_2025", "--data", rows, "--out", whole, *WEIGHTLESS)
    assert f"holds a replication of {THINKING}" in bad(run, "gpt-oss-20b-low", *words)
    assert "was begun with --seed 1, not 2" in bad(run, THINKING, *words, "--seed", 2)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    (tmp_path / "file").write_text("mine")
    assert "is there and holds no replication" in bad(run, THINKING, *words[:4], "--out", tmp_path, *WEIGHTLESS)
    (tmp_path / "broken").mkdir()
    for text in (
        "",
        "[]",
        '{"config": "x", "seed": "y", "estimates": {}}',
        '{"config": "x", "seed": 1, "estimates": {"k": {}}}',
    ):
        (tmp_path / "broken" / STATE).write_text(text)
        assert "cannot be read" in bad(run, THINKING, *words[:4], "--out", tmp_path / "broken", *WEIGHTLESS)


@pytest.mark.slow
def test_fewer_problems_than_the_pool_has_are_refused(run: Run, rows: Path, tmp_path: Path) -> None:
    words = (THINKING, "--task", "aime_2025", "--data", rows, "-n", 2, "--out", tmp_path / "mine", *WEIGHTLESS)
    assert run(*words, "--limit", 3).exit_code == 0
    estimates = (tmp_path / "mine" / STATE).read_bytes()
    assert "holds 3 problems x 2 rollouts, and 2 x 2 were asked for" in bad(run, *words, "--limit", 2)
    assert (tmp_path / "mine" / STATE).read_bytes() == estimates  # refused before it was measured what it takes
    config = replace(CONFIGS[THINKING], n=2)
    more = ReplicatedTask.load(config, "aime_2025", rows, 4, tmp_path / "mine")
    with pytest.raises(InputError, match="holds 3 problems x 2 rollouts, and 4 x 2 were asked for"):
        measured(more, config, None, 1)  # nor is a pool measured that has too few
    assert run(*words, "--limit", 4).exit_code == 0  # more may be added


def test_a_file_of_another_version_is_refused_when_pooled(run: Run, tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for version, file in enumerate(files, 1):
        body = replication(cell("aime_2025", "math", 12, {}), seed=version)
        file.write_text(json.dumps(body | {"version": version}))
    assert "two.json is of version 2, and 1 is read" in bad(run, "--merge", *files, "--out", tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.slow
def test_a_server_samples_as_any_engine_does(run: Run, tmp_path: Path) -> None:
    """The lab's model behind a server that speaks vLLM's protocol, with the plugin."""
    weights = resolve_model("lab-qwen")
    with FakeServer(open_engine("transformers", "lab-qwen"), plugin=True, context=1_024).running() as server:
        words = ("--engine", "vllm-http", "--url", server.url, "--model", weights, "--out", tmp_path / "mine", "--yes")
        done = run("lab-qwen-thinking", "--task", "math-1", "-n", 2, "--limit", 2, *words)
        assert done.exit_code == 0, done.output
    made = read_document(tmp_path / "mine" / "replication.json")["runs"][0]["made"]
    assert made["engine"] == "vllm-http"
    pool = open_pool(tmp_path / "mine" / "pools" / "math-1")
    assert (len(pool), pool.has_weights, pool.has_logprobs) == (4, True, True)
