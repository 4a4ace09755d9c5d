"""`radmoe agent run --harness harmony`, `import` and `select` as they are typed, with a checkpoint of gpt-oss's architecture on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import scripted_harmony
from available import needs_namespaces
from radmoe.cli import app
from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe_agent.candidates import read_candidates

pytestmark = [needs_namespaces, pytest.mark.slow]


def radmoe(*words: object) -> Result:
    done = CliRunner(env={"COLUMNS": "120", "RADMOE_CACHE": os.devnull}).invoke(app, ["agent", *map(str, words)])
    assert done.exit_code == 0, (done.exception, done.output)
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny-oss"
    scripted_harmony.save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("issues")
    rows = [{"instance_id": f"i{k}", "problem_statement": "mend", "files": scripted_harmony.BUG} for k in range(2)]
    (path / "instances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("prompts", ["rebuilt", "kept"])
def test_a_sampled_run_is_selected_from_and_goes_on(prompts: str, model: Path, folder: Path, tmp_path: Path) -> None:
    """What a random model writes is no step: every trajectory breaks off, and is recorded all the same."""
    out = tmp_path / "runs"
    run = ["run", "--harness", "harmony", "--prompts", prompts, "--model", model, "--data", folder, "--out", out]
    small = ["--max-tokens", 8, "--threads", 1, "--batch-size", 4]
    done = json.loads(radmoe(*run, *small, "-n", 1, "--json").stdout)
    assert (done["trajectories"], done["ran"], done["lost"], done["failure"]) == (2, 2, 0, None)
    assert "2 issues x 2 trajectories, 2 of them run now" in radmoe(*run, *small, "-n", 2).stdout
    pool = open_pool(out / "pool")
    assert pool.verify() == []
    assert pool.sampling["agent"]["harness"] == "harmony"
    assert (pool.sampling["temperature"], pool.sampling["top_p"]) == (1.0, 1.0)
    members = [one for members in read_candidates(out).values() for one in members]
    assert {one.status for one in members} == {"RepeatedFormatError"}
    assert {one.notes for one in members} == {("10 malformed steps were sampled again",)}
    radmoe("select", out)
    assert [row["model_patch"] for row in json.loads((out / "preds.json").read_text()).values()] == ["", ""]


def test_transcripts_are_imported(model: Path, tmp_path: Path) -> None:
    script = [[scripted_harmony.mend(by), scripted_harmony.FINAL] for by in ("", " + 0")]
    scripted_harmony.run_script(tmp_path / "ours", {"i0": script})
    runs = sorted((tmp_path / "ours").glob("run_*"))
    done = radmoe("import", *runs, "--model", model, "--out", tmp_path / "in", "--threads", 1)
    assert "1 issues, 2 trajectories, 4 steps; 2 replayed now, 0 cannot be used\n" in done.stdout
    row = json.loads(radmoe("select", tmp_path / "in", "--method", "rad", "--json").stdout)
    assert row["run"] in (0, 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--harness", "none"], "harness must be one of mini-swe-agent, harmony, got 'none'"),
        (["--harness", "harmony", "--prompts", "none"], "prompts must be one of rebuilt, kept, got 'none'"),
        (
            ["--harness", "harmony", "--style", "thinking"],
            "the Harmony harness knows the styles low, medium, high alone",
        ),
        (["--prompts", "kept"], "--prompts kept is of the Harmony harness: add --harness harmony"),
    ],
)
def test_a_wrong_call_is_one_line(words: list[str], line: str, model: Path, folder: Path, tmp_path: Path) -> None:
    call = ["agent", "run", "--model", str(model), "--data", str(folder), "--out", str(tmp_path / "x"), *words]
    error = CliRunner().invoke(app, call).exception
    assert isinstance(error, InputError)
    assert str(error) == line


def test_a_model_without_harmony_s_tokens_is_refused(folder: Path, tmp_path: Path) -> None:
    call = ["--model", "lab-qwen", "--data", str(folder), "--out", str(tmp_path / "x"), "--harness", "harmony"]
    error = CliRunner().invoke(app, ["agent", "run", *call]).exception
    assert isinstance(error, InputError)
    assert "this vocabulary has no <|start|>, so it is none of Harmony's: use a gpt-oss model" in str(error)
