"""GGUF models through llama.cpp: against the transformers engine on the same weights, and what is said of bad files."""

from __future__ import annotations

import atexit
import shutil
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import gguf
import numpy as np
import pytest

import tiny_moe
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import EngineError, InputError
from radmoe.pool import PoolWriter, open_pool
from radmoe.types import RouterShape
from radmoe_lab import gguf as convert
from radmoe_llamacpp import api as llama_api
from radmoe_llamacpp.batch import CHUNK
from radmoe_llamacpp.engine import LlamaCppEngine

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [9], [20, 21, 22] * 7, [4, 5]]  # one token; longer than the sliding window
ENDS = frozenset(range(0, 500, 23))  # a random model hardly ever ends by itself
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {
    "rope_type": "yarn",
    "factor": 2.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-moe": ("qwen3-moe", {}),
    "gpt-oss": ("gpt-oss", {"rope_parameters": ROPE}),
    "gpt-oss-yarn": ("gpt-oss", {"rope_parameters": ROPE | YARN | {"truncate": True}}),  # as llama.cpp rounds it
}


HOME = Path(mkdtemp())
atexit.register(shutil.rmtree, HOME, ignore_errors=True)  # a worker may come back to this module after its teardown


@cache
def file(name: str) -> Path:
    family, changes = MODELS[name]
    path = HOME / f"{name}.gguf"
    return convert.write_gguf(tiny_moe.model(family, **changes), tiny_moe.tokenizer(chat=True), path)


@cache
def engines(name: str) -> tuple[LlamaCppEngine, TransformersEngine]:
    family, changes = MODELS[name]
    mine = LlamaCppEngine(file(name), cache="f32", threads=1)
    other = TransformersEngine(tiny_moe.model(family, **changes), tokenizer=tiny_moe.tokenizer())
    mine.eos = other.eos = ENDS
    return mine, other


@pytest.fixture
def engine() -> LlamaCppEngine:
    return engines("qwen3-moe")[0]


def by_place(done: Iterable[Completion]) -> dict[tuple[int, int], Completion]:
    return {(c.prompt_index, c.rollout_index): c for c in done}


def agreement(other: TransformersEngine, prompt: list[int], done: Completion) -> tuple[Any, float]:
    """Which (token, layer) sets agree with transformers' pass over the same tokens, and how far weights are off there."""
    ids, weights = other.teacher_forced(prompt + done.rollout.token_ids.tolist())
    rows = slice(len(prompt) - 1, len(prompt) - 1 + len(done.rollout))
    order, forced = np.argsort(done.rollout.expert_ids), np.argsort(ids[rows])
    same = (np.take_along_axis(done.rollout.expert_ids, order, -1) == np.take_along_axis(ids[rows], forced, -1)).all(-1)
    mine = np.take_along_axis(done.rollout.weights.astype(np.float32), order, -1)
    return same, float(np.abs(mine - np.take_along_axis(weights[rows], forced, -1))[same].max(initial=0))


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_is_the_same_rollout_and_routing_as_in_transformers(name: str) -> None:
    """12 rollouts through a batch of 5: rows are refilled, and left empty between others."""
    mine, other = engines(name)
    assert mine.shape == other.shape
    assert mine.vocab.fingerprint == other.vocab.fingerprint
    runs = [
        by_place(e.generate(PROMPTS, 3, sampling=Sampling(max_tokens=40, seed=1), batch_size=5)) for e in engines(name)
    ]
    assert runs[0].keys() == runs[1].keys() == {(p, r) for p in range(4) for r in range(3)}
    assert len({len(c.rollout) for c in runs[0].values()}) > 3
    for place, done in runs[0].items():
        theirs = runs[1][place]
        assert done.rollout.token_ids.tolist() == theirs.rollout.token_ids.tolist()
        assert (done.text, done.finish_reason) == (theirs.text, theirs.finish_reason)
        same, off = agreement(other, PROMPTS[place[0]], done)
        assert same.shape == (len(done.rollout), mine.shape.layers)
        assert same.all()
        assert off < 1e-3
        assert np.allclose(done.rollout.weights.astype(np.float32).sum(-1), 1, atol=2e-3)
        assert np.allclose(done.rollout.sampled_logprobs, theirs.rollout.sampled_logprobs, atol=1e-4)
        assert done.rollout.topk_logprobs.shape == (len(done.rollout), 20)
        assert np.allclose(done.rollout.topk_logprobs, theirs.rollout.topk_logprobs, atol=1e-4)


def test_a_shifted_row_would_be_noticed() -> None:
    mine, other = engines("qwen3-moe")
    (done,) = mine.generate([[1, 2, 3]], 1, sampling=Sampling(max_tokens=30, seed=2))
    ids, _ = other.teacher_forced([1, 2, 3, *done.rollout.token_ids.tolist()])
    late = np.sort(ids[3:][: len(done.rollout)], -1) == np.sort(done.rollout.expert_ids, -1)
    assert late.all(-1).mean() < 0.5


def test_a_prompt_longer_than_a_pass_is_cut_in_parts(tmp_path: Path) -> None:
    model = tiny_moe.model("qwen3-moe", max_position_embeddings=2 * CHUNK)
    mine = LlamaCppEngine(convert.write_gguf(model, tiny_moe.tokenizer(), tmp_path / "m.gguf"), cache="f32")
    other = TransformersEngine(model, tokenizer=tiny_moe.tokenizer())
    prompt = [i * 7 % 500 for i in range(CHUNK + 90)]
    for done in mine.generate([prompt], 2, sampling=Sampling(max_tokens=8), batch_size=2):
        same, off = agreement(other, prompt, done)
        assert same.all()
        assert off < 1e-3


def test_a_half_precision_cache_mostly_agrees() -> None:
    """2,165 of 2,169 sets (xllamacpp 2026.10.11549, AVX2)."""
    mine, other = LlamaCppEngine(file("qwen3-moe"), threads=1), engines("qwen3-moe")[1]
    done = mine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=48, seed=1), batch_size=16)
    same = np.concatenate([agreement(other, PROMPTS[c.prompt_index], c)[0].ravel() for c in done])
    assert same.mean() > 0.98, f"{same.sum()}/{same.size}"


def test_same_call_same_bits(engine: LlamaCppEngine) -> None:
    runs = [by_place(engine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=20), batch_size=5)) for _ in range(2)]
    for place, done in runs[0].items():
        again = runs[1][place].rollout
        for name in ("token_ids", "expert_ids", "weights", "sampled_logprobs", "topk_logprobs"):
            assert getattr(done.rollout, name).tobytes() == getattr(again, name).tobytes()
    other = by_place(engine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=20, seed=1), batch_size=5))
    assert any(other[p].rollout.token_ids.tolist() != c.rollout.token_ids.tolist() for p, c in runs[0].items())


@pytest.mark.parametrize("sampling", [Sampling(0.7, 0.8, 25, 3), Sampling(0, 1.0, 25)])
def test_the_batch_changes_nothing(sampling: Sampling) -> None:
    mine, other = engines("gpt-oss")
    runs = [by_place(mine.generate(PROMPTS, 3, sampling=sampling, batch_size=size)) for size in (1, 4, 300)]
    runs.append(by_place(other.generate(PROMPTS, 3, sampling=sampling)))
    for place, done in runs[0].items():
        assert len({tuple(run[place].rollout.token_ids.tolist()) for run in runs}) == 1
        assert all(
            np.array_equal(np.sort(run[place].rollout.expert_ids), np.sort(done.rollout.expert_ids)) for run in runs
        )


def test_a_resumed_run_draws_what_the_whole_one_would_have(engine: LlamaCppEngine) -> None:
    sampling = Sampling(max_tokens=20, seed=5)
    whole = by_place(engine.generate(PROMPTS[:3], 4, sampling=sampling, keys=["a", "b", "c"], batch_size=8))
    rest = by_place(
        engine.generate(PROMPTS[1:3], 4, sampling=sampling, keys=["b", "c"], missing=[[3], [1, 2, 3]], batch_size=2)
    )
    assert set(rest) == {(0, 3), (1, 1), (1, 2), (1, 3)}
    for (p, r), done in rest.items():
        assert done.rollout.token_ids.tolist() == whole[p + 1, r].rollout.token_ids.tolist()


def test_rollouts_end_with_their_end_token_or_at_a_limit(engine: LlamaCppEngine) -> None:
    done = list(engine.generate(PROMPTS, 6, sampling=Sampling(max_tokens=25, seed=2), batch_size=7))
    assert {c.finish_reason for c in done} == {"stop", "length"}
    for c in done:
        ends = np.isin(c.rollout.token_ids, sorted(ENDS))
        assert not ends[:-1].any()
        assert ends[-1] == (c.finish_reason == "stop")
        assert len(c.rollout) == 25 or ends[-1]
    assert engine.tokens_sampled == sum(len(c.rollout) for c in done)
    fresh = LlamaCppEngine(file("qwen3-moe"))
    assert fresh.eos == {tiny_moe.tokenizer().eos_token_id}
    fresh.eos = frozenset()
    (last,) = fresh.generate([[1] * 250], 1, sampling=Sampling(max_tokens=30, topk_logprobs=0))
    assert (len(last.rollout), last.finish_reason) == (6, "length")  # the context of 256
    assert last.rollout.sampled_logprobs is last.rollout.topk_logprobs is None


def test_rollouts_go_into_a_pool(engine: LlamaCppEngine, tmp_path: Path) -> None:
    done = list(engine.generate(PROMPTS[:1], 3, sampling=Sampling(max_tokens=12)))
    with PoolWriter(tmp_path / "pool", shape=engine.shape, vocab=engine.vocab, model="tiny") as writer:
        for c in sorted(done, key=lambda c: c.rollout_index):
            writer.add("a", c.rollout, rollout_index=c.rollout_index, text=c.text)
    group = open_pool(tmp_path / "pool").group("a")
    assert [r.token_ids.tolist() for r in group.rollouts] == [c.rollout.token_ids.tolist() for c in sorted(done, key=lambda c: c.rollout_index)]  # fmt: skip
    assert group.vocab.fingerprint == engine.vocab.fingerprint


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    model = tiny_moe.model("qwen3-moe")
    model.generation_config.temperature, model.generation_config.top_p = 0.75, 0.5
    engine = LlamaCppEngine(convert.write_gguf(model, tiny_moe.tokenizer(), tmp_path / "m.gguf"))
    assert (engine.name, engine.dtype, engine.context) == ("llamacpp", "all F32", 256)
    assert engine.versions == {"xllamacpp": llama_api.XLLAMACPP}
    assert (engine.suggested("temperature", 1.0), engine.suggested("top_p", 1.0)) == (0.75, 0.5)
    assert engine.suggested("max_new_tokens", 7) == 7
    assert engine.suggested("temperature", 1.0) != engines("qwen3-moe")[0].suggested("temperature", 1.0)
    assert engine.room([1] * 250, "p", 100) == 6


def test_an_interrupt_within_a_pass_is_raised_after_it(engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(tensor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine._recorder, "_read_ids", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(engine.generate([[1, 2]], 1))
    assert len(list(engine.generate([[1, 2]], 2, sampling=Sampling(max_tokens=3)))) == 2


def test_a_pass_that_hides_a_layer_is_noticed(engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine._recorder._final, b"ffn_moe_weights_norm-1", 0)
    with pytest.raises(EngineError, match="showed the routing of 0 rows in a pass of 1"):
        list(engine.generate([[1, 2]], 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"prompts": [[]]}, "zero tokens"),
        ({"prompts": [[100_000]]}, r"lie in \[0, 515\)"),
        ({"keys": ["a", "b"]}, "1 prompts, 2 keys, 1 lists of rollouts"),
        ({"prompts": [[1] * 256], "keys": ["long"]}, "prompt 'long' has 256 tokens and the model's context is 256"),
    ],
)
def test_arguments_are_refused_before_sampling(engine: LlamaCppEngine, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.generate(**({"prompts": [[1, 2]], "n": 1} | changes))


def test_no_prompts_no_rollouts(engine: LlamaCppEngine) -> None:
    assert list(engine.generate([], 3)) == []


@pytest.mark.parametrize(
    ("options", "message"), [({"cache": "q4"}, "cache must be one of f16, f32, got 'q4'"), ({"threads": 0}, "threads")]
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LlamaCppEngine(file("qwen3-moe"), **options)


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load = llama_api.library.__wrapped__  # as if not loaded yet
    monkeypatch.setattr(llama_api, "version", lambda name: "2025.1.1")
    with pytest.raises(EngineError, match=r"xllamacpp 2025\.1\.1 is installed, .* pip install 'radmoe\[llamacpp\]'"):
        load()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(EngineError, match=r"needs xllamacpp: pip install 'radmoe\[llamacpp\]'"):
        load()


def test_another_layout_of_the_parameters_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(llama_api._DEFAULTS, "type_k", 7)
    with pytest.raises(EngineError, match="lays out type_k otherwise"):
        llama_api.library.__wrapped__()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-1000], "tensor 'blk.*not within the file bounds, model is corrupted or incomplete"),
        (lambda raw: raw[: len(raw) // 2], "corrupted or incomplete"),
        (lambda raw: raw[:2000], "cannot load .*: failed to read key-value pairs"),
        (lambda raw: raw[:4], "failed to read header"),
        (lambda raw: b"", "is no GGUF file"),
        (lambda raw: b"PK\x03\x04" + raw, r"is no GGUF file: it begins with b'PK"),
        (lambda raw: raw.replace(b"qwen3moe", b"nonesuch"), "unknown model architecture: 'nonesuch'"),
        (
            lambda raw: raw.replace(b"blk.1.ffn_gate_inp", b"blk.1.ffn_gate_out"),
            "'blk.1.ffn_gate_inp.weight' not found",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, damage: Any, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(damage(file("qwen3-moe").read_bytes()))
    with pytest.raises(EngineError, match=message) as error:
        LlamaCppEngine(path)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_a_path_without_a_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot read .*none\.gguf \(No such file or directory\): pass a GGUF file"):
        LlamaCppEngine(tmp_path / "none.gguf")
    with pytest.raises(EngineError, match="Is a directory"):
        LlamaCppEngine(tmp_path)


def test_a_dense_model_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(None, "llama")
    for name, size in {"vocab_size": 40, "context_length": 64, "embedding_length": 32, "block_count": 1}.items():
        writer.add_uint32(f"llama.{name}", size)
    writer.add_feed_forward_length(48)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("no_vocab")
    shapes = {f"attn_{part}": (32, 32) for part in ("q", "k", "v", "output")}
    shapes |= {"attn_norm": (32,), "ffn_norm": (32,), "ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
    shapes = {"token_embd": (40, 32), "output_norm": (32,)} | {f"blk.0.{name}": size for name, size in shapes.items()}
    for name, size in shapes.items():
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))
    writer.write_header_to_file(tmp_path / "dense.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(EngineError, match=r"dense\.gguf is not a mixture-of-experts model: without a router"):
        LlamaCppEngine(tmp_path / "dense.gguf")


def test_a_tokenizer_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(writer: gguf.GGUFWriter, tokenizer: Any, size: int) -> None:
        writer.add_tokenizer_model("no_vocab")
        writer.add_vocab_size(size)

    monkeypatch.setattr(convert, "_tokenizer", without)
    path = convert.write_gguf(tiny_moe.model("qwen3-moe"), None, tmp_path / "m.gguf")
    with pytest.raises(EngineError, match=r"a tokenizer of kind 'no_vocab'.*pass tokenizer=DIRECTORY"):
        LlamaCppEngine(path)
    tiny_moe.tokenizer().save_pretrained(tmp_path)
    for given in (tmp_path, tiny_moe.tokenizer()):
        engine = LlamaCppEngine(path, tokenizer=given)
        assert engine.shape == RouterShape(3, 8, 4)
        (done,) = engine.generate([[1, 2]], 1, sampling=Sampling(max_tokens=4))
        assert done.text == tiny_moe.tokenizer().decode(done.rollout.token_ids.tolist())
    small = convert.write_gguf(tiny_moe.model("qwen3-moe", vocab_size=100), None, tmp_path / "small.gguf")
    with pytest.raises(InputError, match="this tokenizer has 515 tokens and the model 100: it is another model's"):
        LlamaCppEngine(small, tokenizer=tiny_moe.tokenizer())


def test_ids_that_pad_the_logits_are_never_sampled(tmp_path: Path) -> None:
    model = tiny_moe.model("qwen3-moe", vocab_size=2000)
    engine = LlamaCppEngine(convert.write_gguf(model, tiny_moe.tokenizer(), tmp_path / "m.gguf"))
    assert engine.vocab.fingerprint == engines("qwen3-moe")[0].vocab.fingerprint
    done = list(engine.generate(PROMPTS, 2, sampling=Sampling(max_tokens=30)))
    assert max(c.rollout.token_ids.max() for c in done) < 515
