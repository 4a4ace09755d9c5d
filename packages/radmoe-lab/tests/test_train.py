"""Training on a CPU in seconds: the recipe runs, and what it changes in a model changes no function."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from radmoe.errors import InputError
from radmoe_lab.corpus import IGNORE, batches, draw
from radmoe_lab.dense import make_trainable
from radmoe_lab.models import LONG, MODELS, Model, model_named
from radmoe_lab.tasks import TASKS
from radmoe_lab.tokenizer import build
from radmoe_lab.train import parse_shares, train

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def tiny(model: Model) -> torch.nn.Module:
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(model.config(tiny=True)).float()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return network


@pytest.mark.parametrize("name", MODELS)
def test_dense_experts_and_balanced_routers_are_the_same_function(name: str) -> None:
    network = tiny(model_named(name))
    inputs = torch.randint(0, network.config.vocab_size, (2, 20))
    outputs, gradients = [], []
    for patched in (False, True):
        if patched:
            make_trainable(network, balance=0.0)
        logits = network(input_ids=inputs, use_cache=False).logits
        logits.logsumexp(-1).sum().backward()
        outputs.append(logits.detach())
        gradients.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})
        network.zero_grad()
    assert torch.allclose(*outputs, atol=1e-5)
    for parameter, plain in gradients[0].items():
        assert torch.allclose(plain, gradients[1][parameter], rtol=1e-3, atol=1e-4 * float(plain.abs().max() + 1e-6))


def test_attention_with_sinks_is_the_same_function_beyond_its_window() -> None:
    network = tiny(LONG["lab-long-oss"])
    inputs = torch.randint(0, network.config.vocab_size, (2, 200))  # windows have 128
    outputs, gradients = [], []
    for patched in (False, True):
        if patched:
            make_trainable(network, balance=0.0)
        logits = network(input_ids=inputs, use_cache=False).logits
        logits.logsumexp(-1).sum().backward()
        outputs.append(logits.detach())
        gradients.append([layer.self_attn.sinks.grad.clone() for layer in network.model.layers])
        network.zero_grad()
    assert torch.allclose(*outputs, atol=1e-5)
    for plain, own in zip(*gradients, strict=True):
        assert torch.allclose(plain, own, rtol=1e-3, atol=1e-4)


def test_the_balance_loss_reaches_the_router_only_through_its_gradient() -> None:
    plain, balanced = tiny(MODELS["lab-qwen"]), tiny(MODELS["lab-qwen"])
    make_trainable(plain, balance=0.0)
    make_trainable(balanced, balance=1.0)
    inputs = torch.randint(0, plain.config.vocab_size, (2, 20))
    for network in (plain, balanced):
        network(input_ids=inputs, use_cache=False).logits.logsumexp(-1).sum().backward()
    assert torch.equal(plain(input_ids=inputs).logits, balanced(input_ids=inputs).logits)
    routers = [n for n, _ in plain.named_parameters() if n.endswith("gate.weight")]
    last = routers[-1]
    assert not torch.allclose(plain.get_parameter(last).grad, balanced.get_parameter(last).grad)
    head = "model.norm.weight"
    assert torch.allclose(plain.get_parameter(head).grad, balanced.get_parameter(head).grad)


def test_a_model_without_experts_is_refused() -> None:
    with pytest.raises(TypeError, match="0 routers and 0 experts"):
        make_trainable(torch.nn.Linear(2, 2), balance=0.0)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_stays_under_16_mib_and_has_ten_moe_layers(name: str) -> None:
    config = model_named(name).config()
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    size = 2 * sum(p.numel() for p in network.parameters())
    assert size < 16 << 20
    assert sum(type(m).__name__.endswith("TopKRouter") for m in network.modules()) >= 10


def test_examples_repeat_with_their_seed_and_labels_cover_the_completion_only() -> None:
    model = MODELS["lab-qwen"]
    first, again, other = ([ids.tolist() for ids, _ in draw(model.name, seed, 20)] for seed in (5, 5, 6))
    assert first == again != other
    tokenizer = build(model.family)
    source = batches(model, tokens=2048, pad=0, seed=1, workers=0)
    for inputs, labels in islice(source, 5):
        assert inputs.shape == labels.shape
        assert inputs.shape[1] % 16 == 0
        kept = labels != IGNORE
        assert np.array_equal(inputs[kept], labels[kept])
        for row, mask in zip(inputs, kept, strict=True):
            assert tokenizer.decode(row[~mask][:3].tolist(), skip_special_tokens=False).startswith("<|im_start|>user")
            assert tokenizer.decode(row[mask][-1:].tolist(), skip_special_tokens=False) == "<|im_end|>"
    source.close()


def test_shares_decide_which_tasks_are_drawn() -> None:
    only_choices = parse_shares(["choice=1", *(f"{task}=0" for task in TASKS if task != "choice")])
    tokenizer = build("chatml")
    texts = [tokenizer.decode(ids.tolist()) for ids, _ in draw("lab-qwen", 5, 20, only_choices)]
    assert all("A) " in text for text in texts)
    assert not all("A) " in tokenizer.decode(ids.tolist()) for ids, _ in draw("lab-qwen", 5, 20))


@pytest.mark.parametrize(
    ("given", "said"), [("choices=0.2", "unknown task 'choices'"), ("choice=-1", "as in"), ("choice", "as in")]
)
def test_a_share_that_is_none_is_refused(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_shares([given])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_tiny_run_learns_saves_and_loads(name: str, tmp_path: Path) -> None:
    options = {"seconds": None, "steps": 16, "seed": 0, "tiny": True, "workers": 0, "tokens": 1024, "compiled": False}
    result = train(model_named(name), tmp_path, snapshots=2, **options)
    assert result == json.loads((tmp_path / "training.json").read_text())
    assert result["steps"] == 16
    assert result["log"][-1]["loss"] < 6.8  # log(896): it has begun to learn
    assert 0 <= result["load"]["rarest_expert"] <= 1
    halfway, later, network = (
        AutoModelForCausalLM.from_pretrained(tmp_path / part) for part in ("snapshot-50", "snapshot-75", "")
    )
    assert network.dtype == halfway.dtype == torch.bfloat16
    heads = [model.lm_head.weight for model in (halfway, later, network)]
    assert not torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[1], heads[2])
    assert network.config.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path))
