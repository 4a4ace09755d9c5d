"""`radmoe doctor`, from a running server to an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import radmoe.cli as cli
import tiny_moe
from fake_server import FakeServer

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_moe.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["radmoe", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        return int(exit_.value.code or 0), said.out, said.err

    return call


def test_a_local_model_that_is_well(run: Run, checkpoint: Path) -> None:
    code, out, _ = run("transformers", "--model", checkpoint)
    assert code == 0
    assert out.endswith("nothing is wrong with this engine\n")
    assert "100.0% of expert sets equal a replay's" in out


def test_a_server_that_is_well_is_replayed_with_its_small_checkpoint(run: Run, checkpoint: Path) -> None:
    with FakeServer(tiny_moe.engine("qwen3-moe"), "sglang", root=str(checkpoint)).running() as server:
        code, out, _ = run("sglang-http", "--url", server.url, "--json")
    said = json.loads(out)
    assert (code, said["ok"], said["engine"]) == (0, True, "sglang-http")
    assert [f["status"] for f in said["findings"] if f["check"] == "reference"] == ["ok"]


def test_a_fault_is_an_exit_code_and_a_flag(run: Run, checkpoint: Path) -> None:
    with FakeServer(tiny_moe.engine("qwen3-moe"), "vllm", faults={"zeros"}).running() as server:
        code, out, _ = run("vllm-http", "--url", server.url, "--model", checkpoint, "--reference", "none")
        assert code == 1
        assert "failed    zeros" in out
        assert "--moe-backend marlin for 4-bit weights (gpt-oss in MXFP4)" in " ".join(out.split())
        code, out, _ = run("vllm-http", "--url", server.url, "--model", checkpoint, "--reference", "none", "--json")
        assert code == 1
        assert json.loads(out)["ok"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["llm"], "unknown engine 'llm': use one of transformers, vllm, vllm-http, sglang-http, lab, llamacpp"),
        (["vllm-http"], "vllm-http needs --url, the address of a server"),
        (["transformers", "--url", "x"], "--url is of vllm-http and sglang-http: transformers runs the model itself"),
        (["transformers"], "transformers needs --model"),
    ],
)
def test_what_is_missing_is_one_line(run: Run, arguments: list[str], said: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    (line,) = err.splitlines()
    assert said in line


def test_a_model_that_cannot_be_loaded_is_a_finding(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("transformers", "--model", tmp_path)
    assert code == 1
    assert "failed    engine" in out
