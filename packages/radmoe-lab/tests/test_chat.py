"""Chat text and tokenizers: what is trained on is what the template gives, and the anchors are in it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from random import Random

import pytest

from radmoe.engines.prompts import template_arguments
from radmoe.errors import InputError
from radmoe.selection.anchors import locate, spec_for
from radmoe.vocab import Vocab
from radmoe_lab.chat import FAMILIES, SPECIAL, STYLES, prompt_text, render
from radmoe_lab.tasks import TASKS, training_example
from radmoe_lab.tokenizer import VOCAB_SIZES, build, fast_tokenizer, learn

PAIRS = [(family, style) for family, styles in STYLES.items() for style in styles]


@pytest.fixture(scope="module")
def fast() -> dict[str, object]:
    return {family: fast_tokenizer(family) for family in FAMILIES}


@pytest.mark.parametrize(("family", "style"), PAIRS)
@pytest.mark.parametrize("task", ["math-2", "choice", "code"])
def test_the_template_gives_the_prompt_that_was_trained_on(fast, family: str, style: str, task: str) -> None:
    example = training_example(Random(1), style=style, task=task)
    messages = [{"role": "user", "content": example.problem.prompt}]
    options = {"add_generation_prompt": True, "tokenize": False, **template_arguments(style)}
    prompt, completion = render(example, family)
    assert fast[family].apply_chat_template(messages, **options) == prompt
    assert completion.endswith(SPECIAL[family][0])
    assert fast[family].eos_token == SPECIAL[family][0]


def test_effort_is_medium_unless_said_and_never_another(fast) -> None:
    messages = [{"role": "user", "content": "hello"}]
    text = fast["harmony"].apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == prompt_text("hello", "harmony", "medium")
    with pytest.raises(Exception, match="low, medium or high"):
        fast["harmony"].apply_chat_template(messages, tokenize=False, reasoning_effort="extreme")


def test_a_longer_conversation_renders_in_both_families(fast) -> None:
    talk = [
        {"role": r, "content": c} for r, c in (("system", "Be kind."), ("user", "1"), ("assistant", "2"), ("user", "3"))
    ]
    chatml = fast["chatml"].apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
    assert chatml.count("<|im_start|>") == 5
    assert chatml.endswith("<|im_start|>assistant\n")
    harmony = fast["harmony"].apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
    assert "<|start|>developer<|message|>Be kind.<|end|>" in harmony
    assert "<|start|>assistant<|channel|>final<|message|>2<|end|>" in harmony


def test_text_of_the_paper_s_shape() -> None:
    example = training_example(Random(0), style="thinking", task="math-1")
    assert re.fullmatch(r"<think>\n\S.*\S\n</think>\n\n.*<\|im_end\|>", render(example, "chatml")[1], re.DOTALL)
    silent = training_example(Random(0), style="instruct", task="math-1")
    assert render(silent, "chatml")[0].endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "think" not in render(silent, "chatml")[1]
    low = training_example(Random(0), style="low", task="math-1")
    prompt, completion = render(low, "harmony")
    assert prompt.startswith("<|start|>system<|message|>Reasoning: low<|end|><|start|>user<|message|>")
    shape = r"<\|channel\|>analysis<\|message\|>.+<\|end\|><\|start\|>assistant<\|channel\|>final<\|message\|>.+<\|return\|>"
    assert re.fullmatch(shape, completion, re.DOTALL)


def test_a_wrong_family_or_style_is_named() -> None:
    example = training_example(Random(0), style="low")
    with pytest.raises(InputError, match="unknown chat family 'llama': use one of chatml, harmony"):
        render(example, "llama")
    with pytest.raises(InputError, match="chatml has no style 'low': use one of thinking, instruct"):
        render(example, "chatml")
    with pytest.raises(InputError, match="unknown style 'loud'"):
        template_arguments("loud")
    with pytest.raises(InputError, match="unknown chat family"):
        build("llama")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tokenizer_is_small_lossless_and_splits_digits(family: str) -> None:
    tokenizer = build(family)
    assert tokenizer.get_vocab_size() == VOCAB_SIZES[family]
    assert not [t for t in tokenizer.get_vocab() if re.search(r"\d", t) and len(t) > 1]
    rng = Random(3)
    for style in STYLES[family]:
        for task in TASKS:
            prompt, completion = render(training_example(rng, style=style, task=task), family)
            ids = tokenizer.encode(prompt + completion).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == prompt + completion
            assert ids == tokenizer.encode(prompt).ids + tokenizer.encode(completion).ids
    odd = "naïve ☃ \x00 \t tabs"
    assert tokenizer.decode(tokenizer.encode(odd).ids) == odd


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_learning_a_tokenizer_repeats_in_every_process_and_has_the_shipped_shape(family: str) -> None:
    code = f"import hashlib; from radmoe_lab.tokenizer import learn; print(hashlib.sha256(learn({family!r}).to_str().encode()).hexdigest())"
    environment = {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "7", "PATH": ""}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    learned, shipped = learn(family), build(family)
    assert shown.stdout.strip() == hashlib.sha256(learned.to_str().encode()).hexdigest()
    assert learn(family, seed=1).to_str() != learned.to_str()
    assert learned.get_vocab_size() == shipped.get_vocab_size() == VOCAB_SIZES[family]
    assert learned.pre_tokenizer.__getstate__() == shipped.pre_tokenizer.__getstate__()


def test_control_tokens_are_special_as_in_the_models_they_follow() -> None:
    tokens = {t["content"]: t["special"] for t in json.loads(build("chatml").to_str())["added_tokens"]}
    assert tokens == {
        "<|im_end|>": True,
        "<|im_start|>": True,
        "<|endoftext|>": True,
        "<think>": False,
        "</think>": False,
    }
    assert all(t["special"] for t in json.loads(build("harmony").to_str())["added_tokens"])


@pytest.mark.parametrize(("family", "style"), PAIRS)
@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.kind != "text"])
def test_anchors_are_found_and_a_window_of_16_fits(family: str, style: str, task: str) -> None:
    tokenizer, vocab = build(family), Vocab.from_tokenizer(build(family))
    rng = Random(9)
    kind = TASKS[task].kind
    for _ in range(40):
        ids = tokenizer.encode(render(training_example(rng, style=style, task=task), family)[1]).ids
        delimiter = locate(spec_for("delimiter", kind, vocab), ids, vocab, width=16)
        assert delimiter is not None
        assert delimiter.start + 16 <= len(ids)
        assert len(ids) <= 400
        boundary = locate(spec_for("boundary", kind, vocab), ids, vocab)
        assert (boundary is None) == (style == "instruct")
        if boundary:
            assert boundary.start < delimiter.start


@pytest.mark.parametrize(("family", "style"), [pair for pair in PAIRS if pair[1] != "instruct"])
def test_a_text_begins_at_its_boundary_and_has_a_window_of_16(family: str, style: str) -> None:
    tokenizer, vocab = build(family), Vocab.from_tokenizer(build(family))
    rng = Random(9)
    for _ in range(40):
        ids = tokenizer.encode(render(training_example(rng, style=style, task="explain"), family)[1]).ids
        boundary = locate(spec_for("boundary", "text", vocab), ids, vocab, width=16)
        assert boundary is not None
        assert boundary.start + 16 <= len(ids) <= 400


@pytest.mark.parametrize("family", FAMILIES)
def test_boxed_spans_tokens_and_merges_with_its_neighbours(family: str) -> None:
    tokenizer, vocab = build(family), Vocab.from_tokenizer(build(family))
    rng = Random(2)
    shapes = set()
    for _ in range(200):
        ids = tokenizer.encode(render(training_example(rng, style=STYLES[family][0], task="choice"), family)[1]).ids
        anchor = locate(spec_for("delimiter", "choice", vocab), ids, vocab)
        assert anchor is not None
        shapes.add(tuple(vocab.token_bytes(i) for i in ids[anchor.start : anchor.start + anchor.length]))
    assert len(shapes) >= 8
    assert (b" $\\", b"boxed", b"{A") in shapes
    assert all(len(shape) > 1 for shape in shapes)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["so", "now", "wait", ".\n\n"])
def test_trajectory_markers_occur(family: str, name: str) -> None:
    tokenizer, vocab = build(family), Vocab.from_tokenizer(build(family))
    rng = Random(4)
    spec = spec_for("trajectory", "math", vocab, name=name)
    texts = [render(training_example(rng, style=STYLES[family][-1], task="math-4"), family)[1] for _ in range(100)]
    assert any(locate(spec, tokenizer.encode(text).ids, vocab) for text in texts)
