"""Checkpoints written as GGUF, and those that cannot be; that they compute the same is test_llamacpp's matter."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM

import tiny_moe
from radmoe.errors import InputError
from radmoe_lab.gguf import main, write_gguf
from radmoe_lab.models import MODELS
from radmoe_lab.tokenizer import fast_tokenizer


@pytest.mark.parametrize(("name", "architecture"), [("lab-qwen", "qwen3moe"), ("lab-oss", "gpt-oss")])
def test_a_checkpoint_directory_becomes_a_file(
    name: str, architecture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = AutoModelForCausalLM.from_config(MODELS[name].config(tiny=True))
    model.save_pretrained(tmp_path / name)
    fast_tokenizer(MODELS[name].family).save_pretrained(tmp_path / name)
    capsys.readouterr()
    assert main([str(tmp_path / name), str(tmp_path / "out.gguf")]) == 0
    assert f"out.gguf: {(tmp_path / 'out.gguf').stat().st_size:,} bytes, router 4x32" in capsys.readouterr().out
    read = gguf.GGUFReader(tmp_path / "out.gguf")
    assert read.get_field("general.architecture").contents() == architecture
    assert sum(int(tensor.n_elements) for tensor in read.tensors) == sum(p.numel() for p in model.parameters())


def test_q8_0_quantises_matrices_but_not_the_routers(tmp_path: Path) -> None:
    model, tokenizer = tiny_moe.model("qwen3-moe"), tiny_moe.tokenizer()
    files = {kind: write_gguf(model, tokenizer, tmp_path / kind, kind=kind) for kind in ("F32", "Q8_0")}
    exact, rough = ({t.name: t for t in gguf.GGUFReader(path).tensors} for path in files.values())
    assert {t.tensor_type.name for t in exact.values()} == {"F32"}
    assert {name for name, t in rough.items() if t.tensor_type.name == "F32"} == {
        name for name in exact if "norm" in name or "ffn_gate_inp" in name
    }
    for name, tensor in rough.items():
        wanted, found = exact[name].data, gguf.dequantize(tensor.data, tensor.tensor_type)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= np.abs(wanted).max() / 127
    with pytest.raises(InputError, match="a GGUF file is written as F32 or Q8_0, not 'Q4_K'"):
        write_gguf(model, tokenizer, tmp_path / "no", kind="Q4_K")


def test_other_architectures_and_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write mixtral as GGUF: only qwen3_moe, gpt_oss"):
        write_gguf(tiny_moe.model("mixtral"), tiny_moe.tokenizer(), tmp_path / "m.gguf")
    other = fast_tokenizer("chatml")
    with pytest.raises(InputError, match="this tokenizer has 896 tokens and the model 515: it is another model's"):
        write_gguf(tiny_moe.model("qwen3-moe"), other, tmp_path / "m.gguf")
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    with pytest.raises(InputError, match="neither as GPT-2 nor as Qwen2"):
        write_gguf(tiny_moe.model("qwen3-moe", vocab_size=896), other, tmp_path / "m.gguf")
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    with pytest.raises(InputError, match="cannot write rope_type linear"):
        write_gguf(tiny_moe.model("qwen3-moe", rope_parameters=rope), tiny_moe.tokenizer(), tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: python -m radmoe_lab.gguf MODEL OUT.gguf" in capsys.readouterr().err
    assert main([str(tmp_path), str(tmp_path / "out.gguf")]) == 2
    assert capsys.readouterr().err.startswith("radmoe: error: ")
