"""What every engine must do, whoever samples. Subclass `EngineContract` and give it an `engine` fixture.

It imports nothing but radmoe's light parts, so that engines of other environments can be held to it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.engines.base import Completion, Engine, Sampling
from radmoe.errors import EngineError, InputError
from radmoe.pool import PoolWriter, Profile, open_pool
from radmoe.pool.profile import spans
from radmoe.types import Kind


class EngineContract:
    """`prompts` are token ids below 300; `agreement` is the least share of (row, layer) sets that must equal
    those of `reference`, which is None or has `teacher_forced(token_ids) -> ids, weights`."""

    prompts: Sequence[Sequence[int]] = ([5, 6, 7, 8, 9, 10, 11], [9], [20, 21, 22] * 7)
    has_weights = True
    seeded = True
    agreement = 1.0

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @pytest.fixture
    def reference(self) -> Any:
        return None

    def run(
        self,
        engine: Engine,
        n: int = 2,
        *,
        missing: Sequence[Sequence[int]] = (),
        batch_size: int = 4,
        profile: Profile | None = None,
        kinds: Sequence[Kind | None] | None = None,
        **settings: Any,
    ) -> list[Completion]:
        sampling = Sampling(**({"max_tokens": 12, "seed": 3} | settings))
        count = len(self.prompts)
        keys = [f"p{i}" for i in range(count)]
        done = engine.generate(
            self.prompts,
            n,
            sampling=sampling,
            batch_size=batch_size,
            keys=keys,
            missing=missing or [range(n)] * count,
            kinds=kinds,
            profile=profile,
        )
        return sorted(done, key=lambda c: c[:2])

    @staticmethod
    def tokens(done: list[Completion]) -> list[list[int]]:
        return [c.rollout.token_ids.tolist() for c in done]

    def test_every_rollout_comes_once_and_whole(self, engine: Engine) -> None:
        done = self.run(engine, 3)
        assert [c[:2] for c in done] == [(p, r) for p in range(len(self.prompts)) for r in range(3)]
        assert engine.tokens_sampled == sum(len(c.rollout) for c in done)
        for c in done:
            assert c.finish_reason in ("stop", "length")
            assert len(c.rollout) == 12 or c.finish_reason == "stop"
            spelled = b"".join(engine.vocab.token_bytes(int(t)) for t in c.rollout.token_ids)
            if c.finish_reason == "length":
                assert c.text == spelled.decode("utf-8", "replace")

    def test_routing_fits_the_router(self, engine: Engine) -> None:
        for c in self.run(engine):
            ids, weights = c.rollout.expert_ids, c.rollout.weights
            assert ids.shape == (len(c.rollout), engine.shape.layers, engine.shape.top_k)
            assert ids.min() >= 0
            assert ids.max() < engine.shape.experts
            ordered = np.sort(ids, -1)
            assert (ordered[..., 1:] != ordered[..., :-1]).all()
            assert (weights is not None) == self.has_weights
            if weights is not None:
                assert np.allclose(weights.astype(np.float32).sum(-1), 1, atol=5e-3)

    def test_rows_are_those_that_predict_the_tokens(self, engine: Engine, reference: Any) -> None:
        """R(t) is the row of input position P-1+t of a pass over the same tokens; one position off is not."""
        if reference is None:
            pytest.skip("no reference for this engine")
        same, shifted = [], []
        for c in self.run(engine):
            prompt = list(self.prompts[c.prompt_index])
            ids, _ = reference.teacher_forced(prompt + c.rollout.token_ids.tolist())
            mine, at = np.sort(c.rollout.expert_ids, -1), len(prompt) - 1
            for shift, sets in ((0, same), (1, shifted)):
                sets.append((mine == np.sort(ids[at + shift :][: len(mine)], -1)).all(-1).ravel())
        assert np.concatenate(same).mean() >= self.agreement
        assert np.concatenate(shifted).mean() < 0.5

    def test_logprobs_are_log_probabilities(self, engine: Engine) -> None:
        for c in self.run(engine, topk_logprobs=5):
            sampled, top = c.rollout.sampled_logprobs, c.rollout.topk_logprobs
            assert sampled.shape == (len(c.rollout),)
            assert top.shape == (len(c.rollout), 5)
            assert (np.diff(top) <= 0).all()
            assert top.max() <= 1e-4
            assert (sampled <= top[:, 0] + 1e-4).all()

    def test_logprobs_can_be_left_out(self, engine: Engine) -> None:
        (c, *_) = self.run(engine, 1, topk_logprobs=0)
        assert c.rollout.sampled_logprobs is None
        assert c.rollout.topk_logprobs is None

    def test_greedy_repeats(self, engine: Engine) -> None:
        first = self.run(engine, temperature=0)
        assert self.tokens(first) == self.tokens(self.run(engine, temperature=0))
        assert self.tokens(first)[0] == self.tokens(first)[1]

    def test_rollouts_of_one_prompt_differ(self, engine: Engine) -> None:
        assert len({tuple(t) for t in self.tokens(self.run(engine, 3))}) > len(self.prompts)

    def test_a_seed_names_its_rollouts(self, engine: Engine) -> None:
        if not self.seeded:
            pytest.skip("this engine's server ignores seeds")
        first = self.tokens(self.run(engine))
        assert first == self.tokens(self.run(engine, batch_size=1))
        assert first != self.tokens(self.run(engine, seed=4))

    def test_a_resumed_run_draws_what_is_missing(self, engine: Engine) -> None:
        """And nothing else: rollouts finish in any order, so that a killed run leaves holes."""
        missing = [[1, 2, 5], [], [0, 3, 4]]
        whole, rest = self.run(engine, 6), self.run(engine, 6, missing=missing)
        assert [c[:2] for c in rest] == [(p, r) for p, rollouts in enumerate(missing) for r in rollouts]
        assert engine.tokens_sampled == sum(len(c.rollout) for c in rest)
        if self.seeded:
            assert self.tokens(rest) == self.tokens([c for c in whole if c.rollout_index in missing[c.prompt_index]])

    def test_what_a_profile_keeps_is_what_it_would_be_without(self, engine: Engine, tmp_path: Path) -> None:
        """Windows at the rarest token that spells a text: rollouts without it keep no row.

        Rows and layers that are not kept may be absent, and the pool is the same byte for byte.
        """
        whole = self.run(engine, 1, temperature=0)
        tokens = np.concatenate([c.rollout.token_ids for c in whole])
        spelled = [engine.vocab.token_bytes(int(token)) for token, _ in Counter(tokens.tolist()).most_common()]
        marker = [text for text in spelled if text.isascii() and not set(text) & set(b"@#*")][-1].decode()
        profile = Profile(layers=(1,), readouts=(f"boundary:{marker}@3", f"delimiter:{marker}@union"))
        part = self.run(engine, 1, temperature=0, profile=profile)
        counts = []
        for a, b in zip(whole, part, strict=True):
            assert a[:2] == b[:2]
            assert a.text == b.text
            assert b.rollout.expert_ids.shape[1] in (1, engine.shape.layers)
            layer = 0 if b.rollout.expert_ids.shape[1] == 1 else 1
            rows = profile.kept_rows(a.rollout.token_ids, engine.vocab, None)
            assert rows is not None
            counts.append(len(rows))
            for start, stop in spans(rows):
                (ids, weights), (ids_part, weights_part) = a.rollout.rows(start, stop), b.rollout.rows(start, stop)
                assert np.array_equal(ids[:, 1], ids_part[:, layer])
                if self.has_weights:
                    assert np.array_equal(weights[:, 1], weights_part[:, layer])
        assert 0 < sum(counts) < len(tokens)
        files = [_pool(engine, done, tmp_path / name, profile) for name, done in (("whole", whole), ("part", part))]
        assert files[0] == files[1]

    def test_which_rows_are_kept_depends_on_the_kind(self, engine: Engine) -> None:
        """An engine that leaves rows out must be told the kinds; one that has them all need not be."""
        profile, kinds = Profile(readouts=("delimiter@3", "boundary@3")), ["math", "choice", "code"]
        done = self.run(engine, 1, profile=profile, kinds=kinds)
        for c in done:
            rows = profile.kept_rows(c.rollout.token_ids, engine.vocab, kinds[c.prompt_index])
            assert c.rollout.positions is None or np.array_equal(c.rollout.positions, rows)
        if done[0].rollout.positions is not None:
            with pytest.raises(InputError, match="depends on its kind: give a kind"):
                self.run(engine, 1, profile=profile)

    def test_finished_rollouts_come_before_the_rest(self, engine: Engine) -> None:
        running = engine.generate(
            self.prompts, 3, sampling=Sampling(max_tokens=4), batch_size=1, keys=["a", "b", "c"], missing=[range(3)] * 3
        )
        assert len(next(running).rollout) <= 4
        running.close()
        assert len(self.run(engine, 1)) == len(self.prompts)  # whoever stops listening breaks nothing

    def test_a_prompt_without_room_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InputError, match="'long' has 100000 tokens"):
            engine.room([5] * 100_000, "long", 10)
        assert engine.room([5] * 3, "short", 10) == 10

    def test_settings_that_mean_nothing_are_refused(self, engine: Engine) -> None:
        call = {"sampling": Sampling(), "keys": ["a"], "missing": [[0]]}
        with pytest.raises(InputError, match="at least 1 rollout"):
            engine.generate([[5]], 0, batch_size=1, **call)
        with pytest.raises(InputError, match="must agree"):
            engine.generate([[5], [6]], 1, batch_size=1, **call)
        for wrong in ([1], [0, 0], [1, 0], [-1]):
            with pytest.raises(InputError, match="'a' must be distinct, ascending and below n=1"):
                engine.generate([[5]], 1, batch_size=1, **(call | {"missing": [wrong]}))
        with pytest.raises(InputError, match="unknown kind 'sums': use one of math"):
            engine.generate([[5]], 1, batch_size=1, kinds=["sums"], **call)
        with pytest.raises(InputError, match="0 kinds: they must agree"):
            engine.generate([[5]], 1, batch_size=1, kinds=[], **call)
        for prompt in ([], [-1], [10**7]):
            with pytest.raises(InputError, match=r"a prompt of zero tokens|token ids of a prompt lie in"):
                engine.generate([prompt], 1, batch_size=1, **call)

    def test_it_says_what_it_is(self, engine: Engine) -> None:
        """All that the protocol asks for is there, of the type it should have."""
        assert Engine in type(engine).__mro__
        assert engine.name
        assert engine.model_name
        assert "/" not in engine.model_name
        assert engine.dtype
        assert all(isinstance(part, str) for item in engine.versions.items() for part in item)
        assert engine.context is None or engine.context > 0
        assert engine.layers is None or set(engine.layers) <= set(range(engine.shape.layers))
        assert engine.checkpoint is None or (engine.checkpoint / "config.json").is_file()
        assert engine.suggested("no such setting", 7) == 7
        assert engine.check_tokenizer() in (True, False)
        assert len(engine.vocab) >= 300

    def test_a_text_is_a_prompt_too(self, engine: Engine) -> None:
        ids = engine.encode("So 1", raw=True)
        assert engine.vocab.decode_bytes(ids) == b"So 1"
        assert engine.encode(ids) == ids

    def test_an_observation_has_rows_up_to_the_last_token(self, engine: Engine) -> None:
        """At the least those of the generated tokens; a server may return the prompt's too."""
        seen = engine.observe([5, 6, 7, 8], Sampling(temperature=0, max_tokens=4), 0)
        assert seen.prompt == (5, 6, 7, 8)
        assert 1 <= len(seen.tokens) <= 4
        assert seen.ids is not None
        assert 0 <= seen.first <= 3
        assert seen.first + len(seen.ids) == len(seen.sequence) - 1
        assert (seen.weights is not None) == self.has_weights

    def test_given_tokens_are_replayed_or_refused(self, engine: Engine) -> None:
        if not engine.replays:
            with pytest.raises(EngineError, match=f"{engine.name} cannot run a pass over given tokens"):
                engine.teacher_forced([5, 6, 7])
            return
        ids, weights = engine.teacher_forced([5, 6, 7])
        assert ids.shape == weights.shape == (3, engine.shape.layers, engine.shape.top_k)


def _pool(engine: Engine, done: list[Completion], path: Path, profile: Profile) -> dict[str, bytes]:
    """Write a pool; its files by their names."""
    with PoolWriter(path, shape=engine.shape, vocab=engine.vocab, model="tiny", profile=profile) as writer:
        for c in done:
            writer.add(f"p{c.prompt_index}", c.rollout, rollout_index=c.rollout_index)
    assert open_pool(path).verify() == []
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
