"""A complete engine in eighty lines: its next token depends on the last token alone, and so does its routing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

import tiny_moe
from radmoe.engines import EngineOptions
from radmoe.engines.base import Completion, Engine, Job, completion_text, uniforms
from radmoe.engines.options import refuse_server_options, required_model
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab
from radmoe_llamacpp.draw import draw, logprobs


class MarkovEngine(Engine):
    """`model` is the seed of its tables."""

    name, versions, context = "markov", {"markov": "1"}, 256
    replays = True
    tokens_sampled = 0

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.model_name = f"markov-{seed}"
        self.tokenizer = tiny_moe.tokenizer(chat=True)
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.shape = RouterShape(layers=2, experts=8, top_k=3)
        words = len(self.vocab)
        self.logits = rng.normal(size=(words, words)).astype(np.float32)
        self.experts = np.argsort(rng.random((words, 2, 8)), -1)[..., :3].astype(np.int16)  # [V, L, K]
        self.mass = rng.dirichlet(np.ones(3), (words, 2)).astype(np.float32)

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        refuse_server_options(options, cls.name)
        return cls(int(required_model(model, cls.name, "a seed")))

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Any) -> Iterator[Completion]:
        self.tokens_sampled = 0
        return (self._completion(job) for job in jobs)

    def teacher_forced(self, token_ids: Sequence[int]) -> Any:
        return self.experts[list(token_ids)], self.mass[list(token_ids)]

    def _completion(self, job: Job) -> Completion:
        sampling, tokens, last = job.sampling, [], [job.prompt[-1]]
        end = self.tokenizer.eos_token_id
        for chance in uniforms(sampling.seed, job.key, job.rollout_index, job.limit):
            tokens.append(draw(self.logits[last[-1]], float(chance), sampling.temperature, sampling.top_p))
            last.append(tokens[-1])
            if tokens[-1] == end:
                break
        self.tokens_sampled += len(tokens)
        routing = self.experts[last[:-1]], self.mass[last[:-1]].astype(np.float16)  # R(t) is the row before token t
        columns: Any = (None, None)
        if sampling.topk_logprobs:
            steps = [logprobs(self.logits[a], b, sampling.topk_logprobs) for a, b in zip(last, tokens, strict=False)]
            columns = (np.array([one for one, _ in steps]), np.stack([top for _, top in steps]))
        made = Rollout(np.array(tokens, np.int32), *routing, *columns)
        reason = "stop" if tokens[-1] == end else "length"
        return Completion(
            job.prompt_index, job.rollout_index, made, completion_text(self.tokenizer, made.token_ids, reason), reason
        )
