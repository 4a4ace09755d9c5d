"""scripts/reproduce, from pools to tables. Its first step, which needs an hour, is replaced by pools that are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pools import graded_pool
from radmoe_lab.planted import PlantedGroup

ROOT = Path(__file__).parent.parent
STYLES = {
    "lab-qwen": ("thinking", "instruct"),
    "lab-oss": ("low", "medium", "high"),
    "lab-next": ("thinking", "instruct"),
}

TASKS = ("math-1", "math-2", "math-3", "math-4", "choice", "code", "code-wide", "explain")


def reproduce(python: Path | str, **settings: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON_BIN": str(python)} | {name: str(value) for name, value in settings.items()}
    return subprocess.run(
        [ROOT / "scripts" / "reproduce"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that notes how `radmoe lab pools` is called, and does everything else."""
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$3" = lab ]; then echo "$@" >> {tmp_path}/calls; exit 0; fi\n'
        f'PYTHONPATH="{ROOT}/src" exec "{sys.executable}" "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_pools_become_tables_that_say_their_scale(python: Path, made: list[PlantedGroup], tmp_path: Path) -> None:
    out = tmp_path / "out"
    for model, style, task in ((m, s, t) for m, styles in STYLES.items() for s in styles for t in TASKS):
        path = out / "pools-small" / f"{model}-{style}-{task}"
        graded_pool(path, made[:2], task=task, model=model, style=style)
    (out / "pools-small" / "lab-qwen-thinking-code.unchecked").mkdir()  # what a replay that failed its check leaves
    done = reproduce(python, SCALE="small", OUT=out, DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    assert (
        tmp_path / "calls"
    ).read_text() == f"-m radmoe lab pools --out {out}/pools-small --sampling paper -n 64 --limit 12 --device cpu\n"
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert first.startswith(
        "SCALE=small SAMPLING=paper: seven configurations of the lab, eight tasks, the first 12 problems of each task"
    )
    assert f"{out}/results-small.md" in last
    page = (out / "results-small.md").read_text()
    assert f"7 configurations, 16 problems ({', '.join(f'{task} 2' for task in TASKS)})" in page
    assert "`make reproduce SCALE=small` makes them again" in page
    headings = [line for line in page.splitlines() if line.startswith("## lab-")]
    assert headings == [f"## {model} {style}" for model, styles in STYLES.items() for style in styles]


@pytest.mark.slow
def test_a_failing_step_ends_it(python: Path, tmp_path: Path) -> None:
    done = reproduce(python, SCALE="full", SAMPLING="hot", OUT=tmp_path / "out")
    assert done.returncode == 2
    assert (
        tmp_path / "calls"
    ).read_text() == f"-m radmoe lab pools --out {tmp_path}/out/pools-full-hot --sampling hot -n 64\n"
    assert "Missing argument" in done.stderr  # nothing was made
    assert not (tmp_path / "out" / "results-full-hot.md").exists()


def test_an_unknown_scale_or_sampling_is_one_line() -> None:
    for setting, words in (
        ({"SCALE": "huge"}, "SCALE=small or SCALE=full"),
        ({"SAMPLING": "cold"}, "SAMPLING=paper or SAMPLING=hot"),
    ):
        done = reproduce(sys.executable, **setting)
        assert (done.returncode, done.stdout) == (2, "")
        ((name, value),) = setting.items()
        assert done.stderr == f"{name}={value} is not known: use {words}\n"
