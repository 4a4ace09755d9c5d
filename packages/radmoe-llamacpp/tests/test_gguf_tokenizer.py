"""The tokenizer out of a GGUF file is the one that was put in."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from radmoe.engines.prompts import encode, template_arguments
from radmoe.errors import InputError
from radmoe.vocab import Vocab
from radmoe_lab.gguf import write_gguf
from radmoe_lab.models import MODELS
from radmoe_lab.tasks import TASKS, problems
from radmoe_lab.tokenizer import fast_tokenizer
from radmoe_llamacpp.api import LlamaModel
from radmoe_llamacpp.tokenizer import GgufTokenizer

STYLES = [("lab-qwen", "thinking"), ("lab-qwen", "instruct"), ("lab-oss", "low"), ("lab-oss", "high")]
TEXTS = ["", "a", " \n\n  b\t", "It's 12,345.67 != \\boxed{-3} $x^2$", "naïve café 日本 🙂", "```python\nx = [1]\n```\n", "<think>x</think>"]  # fmt: skip


HOME = Path(mkdtemp())
atexit.register(shutil.rmtree, HOME, ignore_errors=True)  # a worker may come back to this module after its teardown


@cache
def pair(name: str) -> tuple[GgufTokenizer, Any]:
    lab, fast = MODELS[name], fast_tokenizer(MODELS[name].family)
    model = AutoModelForCausalLM.from_config(lab.config(tiny=True))
    return GgufTokenizer(LlamaModel(write_gguf(model, fast, HOME / f"{name}.gguf"), 0)), fast


@pytest.mark.parametrize(("name", "style"), STYLES)
def test_prompts_are_rendered_and_encoded_alike(name: str, style: str) -> None:
    mine, fast = pair(name)
    said = template_arguments(style)
    for task in TASKS:
        for problem in problems(task, seed=0, limit=3):
            assert encode(mine, problem.prompt, **said) == encode(fast, problem.prompt, **said)
    messages = [{"role": r, "content": f"{r} {i}\n"} for i, r in enumerate(("system", "user", "assistant", "user"))]
    assert encode(mine, messages, **said) == encode(fast, messages, **said)
    ids = fast.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **said)
    assert mine.apply_chat_template(messages, add_generation_prompt=True, **said) == ids


@pytest.mark.parametrize("name", ["lab-qwen", "lab-oss"])
def test_text_comes_back(name: str) -> None:
    mine, fast = pair(name)
    assert mine.vocab.fingerprint == Vocab.from_tokenizer(fast).fingerprint
    for text in TEXTS:
        ids = mine(text)["input_ids"]
        assert ids == fast(text)["input_ids"]
        assert mine.decode(ids) == fast.decode(ids) == text
    end = [*mine("done")["input_ids"], fast.eos_token_id]
    assert mine.decode(end) == f"done{fast.eos_token}"
    assert mine.decode(end, skip_special_tokens=True) == "done"


def test_what_a_template_refuses_is_one_line() -> None:
    mine, _ = pair("lab-oss")
    with pytest.raises(InputError, match=r"the chat template refuses .*: reasoning_effort must be low, medium or high"):
        encode(mine, "hi", reasoning_effort="none")


def test_a_file_without_a_template_takes_texts(tmp_path: Path) -> None:
    fast = fast_tokenizer("chatml")
    fast.chat_template = None
    model = AutoModelForCausalLM.from_config(MODELS["lab-qwen"].config(tiny=True))
    mine = GgufTokenizer(LlamaModel(write_gguf(model, fast, tmp_path / "m.gguf"), 0))
    assert encode(mine, "hi") == ("hi", fast("hi")["input_ids"])
    with pytest.raises(InputError, match="no chat template"):
        encode(mine, [{"role": "user", "content": "hi"}])
    with pytest.raises(InputError, match="carries no chat template"):
        mine.apply_chat_template([])
