"""The lab's weights are a distribution of their own, so that a plain install stays small."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from radmoe.errors import EngineError, InputError
from radmoe_lab import models


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
