"""Which models are taken, and what is said about the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import tiny_moe
from radmoe.engines.base import Sampling
from radmoe.engines.torch.engine import TransformersEngine, check_version
from radmoe.engines.torch.routers import find_routers
from radmoe.errors import EngineError, InputError


def take(model: object) -> TransformersEngine:
    return TransformersEngine(model, tokenizer=tiny_moe.tokenizer())


def test_a_saved_checkpoint_samples_like_the_model_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tiny_moe.save(tmp_path / "m")
    capfd.readouterr()
    loaded = TransformersEngine(path, threads=1)
    assert capfd.readouterr() == ("", "")  # no progress bars, no load report
    sampling = Sampling(max_tokens=10)
    mine, other = (list(e.generate([[1, 2, 3]], 1, sampling=sampling)) for e in (loaded, tiny_moe.engine("qwen3-moe")))
    assert mine[0].rollout.token_ids.tolist() == other[0].rollout.token_ids.tolist()
    assert loaded.dtype == "float32"
    assert TransformersEngine(path, dtype="bfloat16", threads=1).dtype == "bfloat16"


@pytest.mark.parametrize("version", ["4.57.1", "5.21.4"])
def test_older_versions_are_refused(version: str) -> None:
    with pytest.raises(EngineError, match=rf"transformers {version} is installed.*from 5\.22 on"):
        check_version(version)


@pytest.mark.parametrize("version", ["5.22.0", "5.22.2", "5.23.0.dev0"])
def test_versions_that_were_tried_are_taken_in_silence(version: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert not check_version(version)
    assert capfd.readouterr().err == ""


def test_a_newer_version_is_one_warning_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_version("6.7.0")
    assert check_version("6.7.0")
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "transformers 6.7.0 is newer than 5.23" in said


@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-oss", "qwen3-next", "qwen3.5-moe", "mixtral", "olmoe"])
def test_known_routers_choose_the_largest_logits_and_weigh_them_by_softmax(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.engines.torch.engine._NEWEST", (5, 0))
    assert take(tiny_moe.model(family)).shape.layers


def test_a_newer_version_whose_router_chooses_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radmoe.engines.torch.engine._NEWEST", (5, 0))
    model = tiny_moe.model("qwen3-moe")
    for router in find_routers(model):
        router.register_forward_hook(lambda module, inputs, output: (-output[0], output[1], output[2]))
    with pytest.raises(EngineError, match="does not choose the largest logits"):
        TransformersEngine(model, tokenizer=tiny_moe.tokenizer())


def test_a_dense_model_is_refused() -> None:
    config = transformers.Qwen3Config(
        vocab_size=515, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, head_dim=16
    )
    with pytest.raises(EngineError, match="qwen3 is not a mixture-of-experts model"):
        take(AutoModelForCausalLM.from_config(config))


def test_a_router_that_answers_otherwise_is_refused() -> None:
    config = transformers.Llama4TextConfig(
        vocab_size=515,
        hidden_size=32,
        intermediate_size=32,
        intermediate_size_mlp=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        pad_token_id=0,
    )
    with pytest.raises(EngineError, match=r"Llama4Router does not answer \(logits, weights, ids\)"):
        take(AutoModelForCausalLM.from_config(config))


def test_a_router_whose_weights_are_not_weights_is_refused() -> None:
    model = tiny_moe.model("mixtral")
    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(lambda module, inputs, output: (output[0], output[1] - 1, output[2]))
    with pytest.raises(EngineError, match=r"MixtralTopKRouter answers \[3, 8\] \[3, 2\] \[3, 2\], not logits"):
        take(model)


def test_a_layer_that_routes_around_its_router_is_noticed() -> None:
    model = tiny_moe.model("qwen3-moe")
    model.model.layers[1].mlp.forward = lambda hidden: hidden
    with pytest.raises(EngineError, match="2 of 3 routers ran in a pass: a kernel or a compiled graph"):
        take(model)


def test_a_bypass_that_begins_later_is_noticed() -> None:
    engine = take(tiny_moe.model("qwen3-moe"))
    engine.model.model.layers[1].mlp.forward = lambda hidden: hidden
    with pytest.raises(EngineError, match="2 of 3 routers ran"):
        list(engine.generate([[1, 2]], 1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, on importing its compiler
def test_compiled_models_and_kernels_are_refused() -> None:
    with pytest.raises(EngineError, match="compiled"):
        take(torch.compile(tiny_moe.model("mixtral")))
    model = tiny_moe.model("mixtral")
    model._use_kernels = True
    with pytest.raises(EngineError, match="use_kernels=False"):
        take(model)


def test_layers_of_different_routers_are_refused() -> None:
    model = tiny_moe.model("mixtral")
    model.model.layers[2].mlp.gate.top_k = 1
    with pytest.raises(EngineError, match=r"differ in \(experts, top-k\): \[\(8, 1\), \(8, 2\)\]"):
        take(model)


def test_a_path_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"is no checkpoint: it has no config\.json"):
        TransformersEngine(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "nonesuch"}')
    with pytest.raises(EngineError, match="cannot load") as error:
        TransformersEngine(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_truncated_checkpoint_is_one_line(tmp_path: Path, file: str, share: float) -> None:
    path = tiny_moe.save(tmp_path) / file
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(EngineError, match=r"cannot load|broken copy|cannot read") as error:
        TransformersEngine(tmp_path)
    assert "\n" not in str(error.value)


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    """transformers would fill them with random numbers, and the routing with noise."""
    file = tiny_moe.save(tmp_path) / "model.safetensors"
    tensors = load_file(file)
    (gone,) = [name for name in tensors if name.endswith("layers.1.mlp.gate.weight")]
    tensors.pop(gone)
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(EngineError, match=r"lacks 1 weights of its model, model\.layers\.1\.mlp\.gate\.weight"):
        TransformersEngine(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dtype": "int8"}, "dtype must be one of auto"), ({"threads": 0}, "threads must")],
)
def test_options_are_checked(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TransformersEngine(tmp_path, **options)


def test_a_loaded_model_needs_its_tokenizer() -> None:
    with pytest.raises(InputError, match="needs its tokenizer"):
        TransformersEngine(tiny_moe.model("mixtral"))
