"""Ctrl-C in any command: one line, exit code 130, nothing half written. A full disk: one line, exit code 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import interrupted, start
from radmoe.cli import app
from radmoe.pool import Pool, open_pool, schema

PROGRESS = re.compile(r"radmoe: capturing: [\d,]+ of [\d,]+ rollouts")  # which a slow machine says every few seconds
LAB = ["capture", "--model", "lab-qwen", "--task", "math-2", "-n", 64, "--limit", 4]


def journal_bytes(pool: Path) -> int:
    return sum(file.stat().st_size for file in pool.glob(f"token_data_*/{schema.JOURNAL}"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [5_000, 20_000])
@pytest.mark.parametrize("threads", [[], ["--threads", 2]], ids=["default", "two"])
def test_an_interrupted_capture_ends_its_threads(threads: list[object], size: int, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    code, stdout, stderr = interrupted([*LAB, *threads, "--out", out], lambda: journal_bytes(out) > size)
    assert (code, stdout) == (130, ""), stderr
    *told, line = stderr.splitlines()
    assert all(PROGRESS.match(one) for one in told), stderr
    safe = re.fullmatch(r"radmoe: interrupted: ([\d,]+) rollouts are safe in .*", line)
    assert safe is not None, line
    assert len(Pool.recover(out)) == int(safe[1].replace(",", "")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("threads", [[], ["--threads", 2]], ids=["default", "two"])
def test_a_capture_on_a_full_disk_ends_its_threads(threads: list[object], tmp_path: Path) -> None:
    """The kernel lets no file grow beyond 40 kB, which the tokenizer's files stay below."""
    out, limit = tmp_path / "pool", 40_000
    process = start(
        [*LAB, *threads, "--out", out],
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))",
        PYTHONDONTWRITEBYTECODE="1",
    )
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stdout) == (2, ""), stderr
    *told, line = stderr.splitlines()
    assert all(PROGRESS.match(one) for one in told), stderr
    assert line.startswith(f"radmoe: error: cannot write {out}"), line
    assert len(Pool.recover(out)) > 0


@pytest.mark.slow
def test_a_benchmark_leaves_one_line_and_no_scratch(tmp_path: Path) -> None:
    found = interrupted(["bench"], lambda: any(tmp_path.glob("*/pool/token_data_*/*")), TMPDIR=str(tmp_path))
    assert found == (130, "", "radmoe: interrupted: bench has left nothing half written: run the same command again\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["select", "inspect", "grade", "bench", "verify"])
def test_commands_that_read_a_pool_say_that_nothing_is_half_written(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.pool.open_pool", interrupt)
    done = CliRunner().invoke(app, [command, "pool"])
    wanted = f"radmoe: interrupted: {command} has left nothing half written: run the same command again\n"
    assert (done.exit_code, done.stderr) == (130, wanted)


def test_an_interrupted_deletion_says_how_it_is_finished(monkeypatch: pytest.MonkeyPatch, pool_path: Path) -> None:
    monkeypatch.setattr("radmoe.pool.completion._rewrite", interrupt)
    done = CliRunner().invoke(app, ["delete", str(pool_path), "planted-0001"])
    wanted = f"radmoe: interrupted: finish it with: radmoe verify --recover {pool_path}\n"
    assert (done.exit_code, done.stderr) == (130, wanted)
    monkeypatch.undo()
    assert CliRunner().invoke(app, ["verify", str(pool_path), "--recover"]).exit_code == 0
    assert "planted-0001" not in open_pool(pool_path).problems


@pytest.mark.slow
def test_the_demo_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radmoe.capture.capture_pool", interrupt)
    done = CliRunner().invoke(app, ["demo"])
    kept = "radmoe: interrupted: what is finished is kept: run the same command to go on\n"
    assert (done.exit_code, done.stderr) == (130, kept)


def interrupt(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt
