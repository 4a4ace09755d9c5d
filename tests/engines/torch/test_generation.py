"""What is sampled, when it ends, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import tiny_moe
from radmoe.engines.base import Completion, Sampling, uniforms
from radmoe.engines.torch.decode import BLOCK, sample
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import EngineError, InputError

PROMPTS = [[5, 6, 7, 8], [30, 31, 32, 33, 34, 35, 36, 37, 38], [9]]
ENDS = frozenset(range(0, 500, 23))


@pytest.fixture
def engine() -> Iterator[TransformersEngine]:
    shared = tiny_moe.engine("qwen3-moe")
    eos, shared.eos = shared.eos, ENDS  # a random model hardly ever ends by itself
    yield shared
    shared.eos = eos


def by_place(done: Iterator[Completion]) -> dict[tuple[int, int], Completion]:
    return {(c.prompt_index, c.rollout_index): c for c in done}


def assert_same(a: dict[tuple[int, int], Completion], b: dict[tuple[int, int], Completion], *, exact: bool) -> None:
    assert a.keys() == b.keys()
    for place in a:
        mine, other = a[place].rollout, b[place].rollout
        assert np.array_equal(mine.token_ids, other.token_ids)
        assert np.array_equal(np.sort(mine.expert_ids, -1), np.sort(other.expert_ids, -1))
        assert np.allclose(mine.sampled_logprobs, other.sampled_logprobs, atol=0 if exact else 1e-4)
        assert a[place].finish_reason == b[place].finish_reason
        assert a[place].text == b[place].text


def test_same_seed_same_rollouts_bit_for_bit(engine: TransformersEngine) -> None:
    runs = [by_place(engine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=30), batch_size=5)) for _ in range(2)]
    assert_same(*runs, exact=True)
    other = by_place(engine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=30, seed=1), batch_size=5))
    assert any(not np.array_equal(runs[0][p].rollout.token_ids, other[p].rollout.token_ids) for p in other)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3-next", "gpt-oss"])
def test_refilled_batches_equal_unbatched_generation(family: str) -> None:
    shared = tiny_moe.engine(family)
    eos, shared.eos = shared.eos, ENDS
    sampling = Sampling(max_tokens=30, seed=3)
    alone = by_place(shared.generate(PROMPTS, 4, sampling=sampling, batch_size=1))
    for size in (3, 64):
        assert_same(alone, by_place(shared.generate(PROMPTS, 4, sampling=sampling, batch_size=size)), exact=False)
    shared.eos = eos


def test_a_resumed_run_draws_what_the_whole_one_would_have(engine: TransformersEngine) -> None:
    sampling = Sampling(max_tokens=20, seed=5)
    whole = by_place(engine.generate(PROMPTS, 4, sampling=sampling, keys=["a", "b", "c"]))
    rest = by_place(
        engine.generate(PROMPTS[1:], 4, sampling=sampling, keys=["b", "c"], missing=[[3], [1, 2, 3]], batch_size=2)
    )
    assert {(p + 1, r) for p, r in rest} == {(1, 3), (2, 1), (2, 2), (2, 3)}
    for (p, r), c in rest.items():
        assert np.array_equal(c.rollout.token_ids, whole[p + 1, r].rollout.token_ids)


def test_rollouts_end_with_their_end_token_or_at_the_limit(engine: TransformersEngine) -> None:
    done = list(engine.generate(PROMPTS, 12, sampling=Sampling(max_tokens=25, seed=2), batch_size=7))
    reasons = {c.finish_reason for c in done}
    assert reasons == {"stop", "length"}
    for c in done:
        ends = np.isin(c.rollout.token_ids, sorted(ENDS))
        assert not ends[:-1].any()
        assert ends[-1] == (c.finish_reason == "stop")
        if c.finish_reason == "length":
            assert len(c.rollout) == 25
        shown = c.rollout.token_ids[:-1] if ends[-1] else c.rollout.token_ids
        assert c.text == tiny_moe.tokenizer().decode(shown.tolist())


def test_end_tokens_come_from_generation_config_and_tokenizer() -> None:
    model = tiny_moe.model("qwen3-moe", eos_token_id=7)
    model.generation_config.eos_token_id = [8, 9]
    engine = TransformersEngine(model, tokenizer=tiny_moe.tokenizer())
    assert engine.eos == {7, 8, 9, tiny_moe.tokenizer().eos_token_id}


def test_a_rollout_may_outlast_the_recording_block() -> None:
    shared = tiny_moe.engine("mixtral")
    eos, shared.eos = shared.eos, frozenset()
    (done,) = shared.generate([[1, 2, 3]], 1, sampling=Sampling(max_tokens=2 * BLOCK + 5))
    shared.eos = eos
    assert len(done.rollout) == 2 * BLOCK + 5
    ids, _ = shared.teacher_forced([1, 2, 3, *done.rollout.token_ids.tolist()])
    assert np.array_equal(np.sort(done.rollout.expert_ids, -1), np.sort(ids[2:-1], -1))


def test_logprobs_are_of_the_untempered_distribution(engine: TransformersEngine) -> None:
    sampling = Sampling(temperature=0.7, top_p=0.8, max_tokens=20)
    for c in engine.generate(PROMPTS, 2, sampling=sampling, batch_size=4):
        prompt = PROMPTS[c.prompt_index]
        with torch.inference_mode():
            tokens = torch.tensor([prompt + c.rollout.token_ids.tolist()])
            logprobs = engine.model(input_ids=tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1).numpy()
        top = -np.sort(-logprobs, axis=-1)[:, :20]
        assert c.rollout.topk_logprobs.shape == top.shape
        assert np.allclose(c.rollout.topk_logprobs, top, atol=1e-4)
        sampled = np.take_along_axis(logprobs, c.rollout.token_ids[:, None].astype(np.int64), -1)[:, 0]
        assert np.allclose(c.rollout.sampled_logprobs, sampled, atol=1e-4)


def test_without_logprobs_there_are_none(engine: TransformersEngine) -> None:
    (done,) = engine.generate(PROMPTS[:1], 1, sampling=Sampling(max_tokens=5, topk_logprobs=0))
    assert done.rollout.sampled_logprobs is None
    assert done.rollout.topk_logprobs is None


def test_sampling_follows_the_probabilities() -> None:
    probs = torch.tensor([0.5, 0.25, 0.0, 0.125, 0.125])
    chance = (torch.arange(8000, dtype=torch.float64) + 0.5)[:, None] / 8000
    logits = probs.log().expand(8000, -1)

    def counts(temperature: float, top_p: float) -> torch.Tensor:
        ways = torch.full((8000, 1), temperature), torch.full((8000, 1), top_p, dtype=torch.float64)
        return torch.bincount(sample(logits, chance, *ways), minlength=5)

    assert counts(1.0, 1.0).tolist() == [4000, 2000, 0, 1000, 1000]
    nucleus = counts(1.0, 0.7)
    assert nucleus[2:].sum() == 0  # the nucleus is the first two
    assert abs(int(nucleus[0]) - 8000 * 2 / 3) < 2
    assert counts(0.0, 1.0).tolist() == [8000, 0, 0, 0, 0]
    assert np.allclose(counts(0.5, 1.0) / 8000, (probs**2 / (probs**2).sum()).numpy(), atol=1e-3)


def test_a_row_is_sampled_in_its_own_way_whatever_its_neighbours_want() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, chance = torch.randn(60, 40, generator=draw), torch.rand(60, 1, generator=draw, dtype=torch.float64)
    temperature = torch.tensor([0.0, 0.5, 1.0] * 20)[:, None]
    top_p = torch.tensor([1.0] * 30 + [0.6] * 30, dtype=torch.float64)[:, None]
    together = sample(logits, chance, temperature, top_p)
    alone = [sample(*(x[i : i + 1] for x in (logits, chance, temperature, top_p))) for i in range(60)]
    assert together.tolist() == torch.cat(alone).tolist()


def test_random_numbers_are_named_not_drawn_in_turn() -> None:
    assert np.array_equal(uniforms(0, "a", 3, 10), uniforms(0, "a", 3, 50)[:10])
    drawn = [uniforms(s, k, r, 4).tobytes() for s in (0, 1) for k in ("a", "b") for r in (0, 1)]
    assert len(set(drawn)) == 8


def test_ids_that_pad_the_logits_are_never_sampled() -> None:
    engine = TransformersEngine(tiny_moe.model("qwen3-moe", vocab_size=2000), tokenizer=tiny_moe.tokenizer())
    done = list(engine.generate(PROMPTS, 2, sampling=Sampling(max_tokens=30)))
    assert max(c.rollout.token_ids.max() for c in done) < len(engine.vocab)


def test_the_context_ends_a_rollout_and_refuses_a_prompt() -> None:
    engine = TransformersEngine(tiny_moe.model("qwen3-moe", max_position_embeddings=12), tokenizer=tiny_moe.tokenizer())
    engine.eos = frozenset()
    (done,) = engine.generate([[1, 2, 3, 4]], 1, sampling=Sampling(max_tokens=30))
    assert (len(done.rollout), done.finish_reason) == (8, "length")
    with pytest.raises(InputError, match=r"prompt 'long' has 12 tokens and the model's context is 12: shorten"):
        engine.generate([list(range(12))], 1, keys=["long"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"prompts": [[]]}, "zero tokens"),
        ({"prompts": [[100_000]]}, r"lie in \[0, 515\)"),
        ({"keys": ["a", "b"]}, "1 prompts, 2 keys, 1 lists of rollouts"),
        ({"prompts": [[{"role": "user", "content": "hi"}]]}, "no chat template"),
    ],
)
def test_arguments_are_refused_before_sampling(engine: TransformersEngine, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.generate(**({"prompts": [[1, 2]], "n": 1} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature must be 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p must lie in"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"topk_logprobs": -1}, "topk_logprobs"),
    ],
)
def test_sampling_settings_are_checked(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**changes)


def test_no_prompts_no_rollouts(engine: TransformersEngine) -> None:
    assert list(engine.generate([], 3)) == []


def test_running_out_of_memory_is_one_line() -> None:
    engine = TransformersEngine(tiny_moe.model("mixtral"), tokenizer=tiny_moe.tokenizer())

    def full(*args: object, **kwargs: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: 9 bytes")

    engine.model.forward = full
    with pytest.raises(EngineError, match="out of memory with a batch of 8: lower batch_size"):
        list(engine.generate([[1, 2], [3, 4]], 2, batch_size=8))
