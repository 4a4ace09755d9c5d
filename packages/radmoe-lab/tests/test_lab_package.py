"""The lab's weights are a distribution of their own, so that a plain install stays small."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from radmoe.errors import EngineError, InputError
from radmoe_lab import models

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [*models.MODELS, *models.AGENTS])
def test_the_directory_of_every_model_is_found(name: str) -> None:
    path = models.weights(name)
    assert json.loads((path / "config.json").read_text())["vocab_size"] == (1024 if name in models.AGENTS else 896)
    assert (path / "model.safetensors").stat().st_size < 16 << 20


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PACKAGE", "radmoe_lab_that_is_not_there")
    with pytest.raises(EngineError, match=r"lab-oss is a model of the lab.*pip install radmoe-lab"):
        models.weights("lab-oss")
    with pytest.raises(InputError, match="unknown lab model 'lab-x'"):
        models.weights("lab-x")


def test_a_package_without_the_model_is_said_to_be_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_lab").mkdir()
    (tmp_path / "empty_lab" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(models, "PACKAGE", "empty_lab")
    assert importlib.util.find_spec("empty_lab") is not None
    with pytest.raises(EngineError, match=r"the weights of lab-qwen are not at .*: install radmoe-lab again"):
        models.weights("lab-qwen")


@pytest.mark.slow
def test_the_main_wheel_is_small_and_the_labs_holds_the_weights(tmp_path: Path) -> None:
    """Built from copies, because setuptools leaves a build directory beside what it builds."""
    ignore = shutil.ignore_patterns(
        "__pycache__", "*.egg-info", ".venv", ".git", ".engines", "tests", "docs", "benchmarks"
    )
    shutil.copytree(ROOT, tmp_path / "tree", ignore=ignore)
    for source in (tmp_path / "tree", tmp_path / "tree" / "packages" / "radmoe-lab"):
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(tmp_path),
            str(source),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    (main,), (lab,) = tmp_path.glob("radmoe-*.whl"), tmp_path.glob("radmoe_lab-*.whl")
    assert main.stat().st_size <= 2 << 20
    names, companion = (zipfile.ZipFile(wheel).namelist() for wheel in (main, lab))
    assert not any(name.endswith(".safetensors") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"radmoe"}
    assert "radmoe_lab/tokenizers/chatml.json" in companion
    weights = [name for name in companion if name.endswith("model.safetensors")]
    assert len(weights) == len(models.MODELS) + len(models.AGENTS)
