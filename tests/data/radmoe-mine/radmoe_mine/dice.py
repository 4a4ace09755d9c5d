"""An engine that throws dice for its answer; the experts of a token follow from the token."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from radmoe.engines import EngineOptions
from radmoe.engines.base import Completion, Engine, Job, uniforms
from radmoe.engines.models import resolve_model
from radmoe.engines.options import required_model
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab


class DiceEngine(Engine):
    """`model` is a directory, or the name of a shipped model, whose tokenizer is used."""

    name, model_name, versions = "dice", "dice", {"dice": "1"}
    shape = RouterShape(layers=2, experts=8, top_k=3)
    tokens_sampled = 0

    def __init__(self, model: str) -> None:
        words = Tokenizer.from_file(str(resolve_model(model) / "tokenizer.json"))
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.experts = np.argsort(np.random.default_rng(0).random((len(self.vocab), 2, 8)), -1)[..., :3]

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        return cls(required_model(model, cls.name, "whose tokenizer to use"))

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Any) -> Iterator[Completion]:
        return (self._completion(job) for job in jobs)

    def _completion(self, job: Job) -> Completion:
        thrown, more = uniforms(job.sampling.seed, job.key, job.rollout_index, 2)
        text = f"{'Well, ' * int(5 * more)}it is \\boxed{{{(5, 42, 7)[int(3 * thrown)]}}}."
        tokens = np.array(self.tokenizer.encode(text), np.int32)
        self.tokens_sampled += len(tokens)
        weights = np.full((len(tokens), 2, 3), 1 / 3, np.float16)
        sampled, top = np.full(len(tokens), -1, np.float32), np.full((len(tokens), 20), -3, np.float32)
        made = Rollout(tokens, self.experts[tokens].astype(np.int16), weights, sampled, top)
        return Completion(job.prompt_index, job.rollout_index, made, text, "stop")
