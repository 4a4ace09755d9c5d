"""`radmoe lab` as a stranger types it: what is packed, pools of it, and every bad input in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import error, interrupted, radmoe
from radmoe.cli import app
from radmoe.pool import open_pool
from radmoe_lab.archive.files import MANIFEST
from radmoe_lab.archive.pack import pack
from radmoe_lab.commands import lab
from radmoe_lab.models import MODELS
from radmoe_lab.sample import sample

pytestmark = pytest.mark.slow

NAME = "lab-qwen-thinking"


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive that no test may change."""
    out = tmp_path_factory.mktemp("lab")
    file = sample("lab-qwen", "thinking", out, tasks=("math-1", "code"), n=4, limit=3, batch_size=16, max_tokens=160)
    pack([file], out / "rollouts")
    return out / "rollouts"


@pytest.fixture(scope="module")
def pools(rollouts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pools of two problems each, which no test may change."""
    out = tmp_path_factory.mktemp("pools") / "out"
    done = radmoe("lab", "pools", "--rollouts", rollouts, "--out", out, "--limit", 2, "-n", 3)
    assert len(done.stdout.splitlines()) == 2
    assert re.fullmatch(
        r"radmoe: \d+ rollouts \([\d,]+ tokens\) are to be replayed into 2 pools: about \d+ seconds and [\d.]+ [kM]?B\n",
        done.stderr,
    )
    return out


def test_pools_are_named_graded_and_evaluated(pools: Path) -> None:
    assert sorted(path.name for path in pools.iterdir()) == [f"{NAME}-code", f"{NAME}-math-1"]
    assert open_pool(pools / f"{NAME}-code").problems == ["code-000", "code-001"]
    table = radmoe("evaluate", *sorted(pools.iterdir())).stdout
    assert "lab-qwen thinking: 4 problems x 3 rollouts" in table
    assert "likelihood" in table  # a replayed pool has log-probabilities


def test_the_same_command_goes_on_and_json_says_the_same(pools: Path, rollouts: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(pools, tmp_path / "out"))
    arguments = ("lab", "pools", "--rollouts", rollouts, "--out", out, "--task", "math-1", "--config", NAME)
    (again,) = json.loads(radmoe(*arguments, "--limit", 2, "-n", 3, "--json").stdout)
    assert (again["rollouts"], again["replayed"], again["differences"]) == (6, 0, None)
    (larger,) = json.loads(radmoe(*arguments, "--json").stdout)
    assert (larger["path"], larger["rollouts"], larger["replayed"]) == (str(out / f"{NAME}-math-1"), 12, 6)
    assert larger["differences"]["median"] < 1e-3
    assert larger["agreement"] > 0.999


def test_list_says_what_is_packed(rollouts: Path) -> None:
    table = radmoe("lab", "list", "--rollouts", rollouts).stdout
    facts = json.loads(radmoe("lab", "list", "--rollouts", rollouts, "--json").stdout)
    counts = facts[NAME]["tasks"]["math-1"]
    assert re.search(
        rf"{NAME} +math-1 +{MODELS['lab-qwen'].temperature} +{MODELS['lab-qwen'].top_p} +3 +4 +{counts['tokens']:,} +{counts['right'] / counts['rollouts']:.1%}",
        table,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "lab-oss-high"), f"no configuration 'lab-oss-high' is packed: use one of {NAME}"),
        (("--task", "choice"), "no rollouts of task 'choice' are packed: use one of math-1, code"),
        (("-n", 65), "-n must lie between 1 and 4, the rollouts that were sampled of a problem, got 65"),
        (("--limit", 0), "--limit must be at least 1, got 0"),
        (("--device", "toaster"), "device 'toaster' cannot be used here"),
        (("--threads", 0), "threads must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: tuple[object, ...], message: str, rollouts: Path, tmp_path: Path
) -> None:
    done = radmoe("lab", "pools", "--rollouts", rollouts, "--out", tmp_path / "out", *arguments, expect=2)
    assert message in error(done)
    assert not (tmp_path / "out").exists()


def test_no_rollouts_damaged_ones_and_those_of_other_weights_are_one_line(rollouts: Path, tmp_path: Path) -> None:
    def refusal(directory: Path) -> str:
        done = radmoe("lab", "pools", "--rollouts", directory, "--out", tmp_path / "out", expect=2)
        assert not (tmp_path / "out").exists()
        return error(done)

    assert "there are no rollouts at" in refusal(tmp_path / "nowhere")
    copy = Path(shutil.copytree(rollouts, tmp_path / "copy"))
    whole = (copy / MANIFEST).read_text()
    body = json.loads(whole)
    body["configurations"][NAME]["checkpoint"]["model.safetensors"] = "0" * 64
    (copy / MANIFEST).write_text(json.dumps(body))
    assert f"model.safetensors of lab-qwen is not the one that sampled {NAME}" in refusal(copy)
    (copy / MANIFEST).write_text(whole[:100])
    assert "manifest.json is damaged" in refusal(copy)
    (copy / MANIFEST).write_text(whole)
    packed = copy / f"{NAME}.npz.xz"
    packed.write_bytes(packed.read_bytes()[:-1])
    assert f"{NAME}.npz.xz is damaged: its sha256 is not that of manifest.json" in refusal(copy)


def test_something_else_in_the_way_is_one_line(pools: Path, rollouts: Path, tmp_path: Path) -> None:
    arguments = ("lab", "pools", "--rollouts", rollouts, "--out", tmp_path, "--task", "math-1")
    out = tmp_path / f"{NAME}-math-1"
    out.write_text("a file")
    assert str(out) in error(radmoe(*arguments, expect=2))
    assert out.read_text() == "a file"
    out.unlink()
    radmoe("capture", "--model", "lab-qwen", "--task", "math-1", "-n", 1, "--limit", 1, "--out", out)
    assert "was not made from these rollouts" in error(radmoe(*arguments, expect=2))
    assert len(open_pool(out)) == 1


def test_an_interrupt_says_how_to_go_on(rollouts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["lab", "pools", "--rollouts", rollouts, "--out", out]
    code, _, stderr = interrupted(arguments, lambda: any(out.glob("*/*")))
    assert code == 130
    assert stderr.splitlines()[-1] == ("radmoe: interrupted: what is finished is kept: run the same command to go on")
    radmoe(*arguments)
    assert [len(open_pool(path)) for path in sorted(out.iterdir())] == [12, 12]


@pytest.mark.parametrize("command", [["lab"], ["lab", "list"], ["lab", "pools"]])
def test_help_shows_examples_that_eighty_columns_do_not_break(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    lines = [" ".join(line.split()) for line in CliRunner().invoke(app, [*command, "--help"]).stdout.splitlines()]
    assert [line for line in lines if line in lab.EXAMPLES] == list(lab.EXAMPLES)
