"""Engines by name or by dotted path; whatever leads to none is one line that lists the names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from radmoe.engines import ENGINES, EngineOptions, engine_class, open_engine
from radmoe.engines.base import Engine
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.system.plugins import added

NAMES = "use one of transformers, vllm, vllm-http, sglang-http, lab, llamacpp, or the dotted path of a class"


@pytest.mark.parametrize("name", [*ENGINES, "llamacpp"])
def test_every_name_leads_to_an_engine_of_that_name(name: str) -> None:
    engine = engine_class(name)
    assert Engine in engine.__mro__
    assert engine.name == name
    assert engine_class((added("engines") | ENGINES)[name]) is engine


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ollama", "unknown engine 'ollama': "),
        ("", "unknown engine '': "),
        (".Engine", "unknown engine '.Engine': "),
        ("no_such_package.module.Engine", "cannot import the engine 'no_such_package.module.Engine' (No module named"),
        ("radmoe.engines.base.Nothing", "radmoe.engines.base has no class 'Nothing': "),
        ("radmoe.engines.base.uniforms", "radmoe.engines.base has no class 'uniforms': "),
        ("radmoe.engines.base.Sampling", "radmoe.engines.base.Sampling does not inherit from"),
    ],
)
def test_what_is_no_engine_is_one_line_that_lists_the_names(name: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        open_engine(name, None)
    (said,) = str(caught.value).splitlines()
    assert said.startswith(line)
    assert NAMES in said


def test_a_module_that_breaks_while_it_is_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_engine.py").write_text("raise RuntimeError('out of order\\nsince Monday')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot import the engine 'broken_engine.Mine' \(out of order\): use one of"):
        engine_class("broken_engine.Mine")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for library, module, name, hint in (
        (
            "torch",
            "radmoe.engines.torch.engine",
            "transformers",
            "this needs torch: pip install 'radmoe[transformers]'",
        ),
        ("transformers", "radmoe.engines.torch.engine", "transformers", "this needs transformers: pip install"),
        ("torch", "radmoe.engines.vllm.engine", "vllm", "this needs torch: pip install 'radmoe[vllm]'"),
    ):
        with monkeypatch.context() as patch:
            for loaded in [part for part in sys.modules if part.startswith("radmoe.engines.vllm")] + [module]:
                patch.delitem(sys.modules, loaded, raising=False)
            patch.setitem(sys.modules, library, None)
            with pytest.raises(EngineError) as caught:
                engine_class(name)
        assert str(caught.value).startswith(hint)


def test_an_engine_of_another_environment_says_what_to_install() -> None:
    """vLLM is not installed here; its engine imports without it and says so when it is opened."""
    with pytest.raises(EngineError, match=r"this engine needs vLLM \(.*\): pip install 'radmoe\[vllm\]'"):
        open_engine("vllm", "lab-qwen")


URL = "http://localhost:9"


@pytest.mark.parametrize(
    ("name", "model", "options", "line"),
    [
        ("transformers", None, {}, "transformers needs --model: a checkpoint directory, or lab-qwen"),
        ("vllm", None, {}, "vllm needs --model: a checkpoint directory"),
        ("llamacpp", None, {}, "llamacpp needs --model: a GGUF file"),
        ("vllm-http", "lab-qwen", {}, "vllm-http needs --url, the address of a server"),
        ("sglang-http", None, {}, "sglang-http needs --url"),
        (
            "transformers",
            "lab-qwen",
            {"url": URL},
            "--url is of vllm-http and sglang-http: transformers runs the model itself",
        ),
        ("vllm", "lab-qwen", {"served": "m"}, "--served is of vllm-http and sglang-http: vllm runs"),
        ("vllm", "lab-qwen", {"threads": 2}, "--threads is not of vllm"),
        ("vllm", "lab-qwen", {"device": "cuda"}, "--device is not of vllm"),
        ("llamacpp", "m.gguf", {"dtype": "float32"}, "--dtype is not of llamacpp: the GGUF file has its own"),
        ("llamacpp", "m.gguf", {"device": "cuda"}, "--device is not of llamacpp"),
        (
            "vllm-http",
            None,
            {"url": URL, "dtype": "float32"},
            "--dtype is not of vllm-http: it was settled when the server",
        ),
        ("sglang-http", None, {"url": URL, "threads": 2}, "--threads is not of sglang-http"),
        (
            "transformers",
            "lab-none",
            {},
            "no model 'lab-none': use lab-qwen, lab-oss, lab-next, lab-agent-qwen, a checkpoint directory",
        ),
        ("vllm-http", "lab-none", {"url": URL}, "no model 'lab-none'"),
    ],
)
def test_options_that_lack_or_cannot_be_used_are_one_line(
    name: str, model: str | None, options: dict[str, object], line: str
) -> None:
    with pytest.raises(RadmoeError) as caught:
        open_engine(name, model, EngineOptions(**options))
    (said,) = str(caught.value).splitlines()
    assert line in said


def test_the_table_is_read_without_loading_anything_heavy() -> None:
    code = (
        "import sys, radmoe.engines; print([m for m in ('numpy', 'torch', 'transformers', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
