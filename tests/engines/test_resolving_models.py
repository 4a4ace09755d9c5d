"""Models by name: shipped ones, paths, and the local Hugging Face cache."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_moe
from radmoe.engines import EngineOptions, open_engine
from radmoe.engines.models import recorded_name, resolve_model, shipped_models
from radmoe.errors import EngineError
from radmoe_lab.models import AGENTS, MODELS, weights


def test_the_labs_models_are_those_that_ship() -> None:
    assert list(shipped_models()) == [*MODELS, *AGENTS]
    for name in shipped_models():
        assert resolve_model(name) == weights(name)
        assert recorded_name(name) == name


def test_a_path_is_taken_as_it_is_and_recorded_by_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("./mine") == Path("mine")
    assert recorded_name("./mine") == recorded_name(tmp_path / "mine") == "mine"
    assert recorded_name("/a/server/has/Qwen3") == "Qwen3"  # a path of another machine
    assert recorded_name("Qwen/Qwen3-30B-A3B") == "Qwen/Qwen3-30B-A3B"


def test_a_model_of_the_cache_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, file_download

    snapshot = tmp_path / "models--some--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = tmp_path / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(file_download, "HF_HUB_CACHE", str(tmp_path), raising=False)
    assert resolve_model("some/model").name == "abc"
    with pytest.raises(EngineError, match=r"no model 'some/other': use lab-qwen, .* of the local cache \(some/model\)"):
        resolve_model("some/other")


@pytest.mark.slow
def test_a_shipped_model_computes_in_float32_unless_told_otherwise(tmp_path: Path) -> None:
    assert open_engine("transformers", "lab-qwen").dtype == "float32"
    engine = open_engine("transformers", "lab-qwen", EngineOptions(dtype="bfloat16"))
    assert (engine.dtype, engine.model_name, engine.checkpoint) == ("bfloat16", "lab-qwen", weights("lab-qwen"))
    saved = tiny_moe.save(tmp_path / "tiny", dtype="float16")
    other = open_engine("transformers", str(saved))
    assert (other.model_name, other.checkpoint, other.context) == ("tiny", saved, 256)
