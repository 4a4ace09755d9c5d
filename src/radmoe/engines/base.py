"""The `Engine` protocol, and what engines take and return: sampling settings, completions, batches."""

from __future__ import annotations

import hashlib
import platform
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.checkpoint import fingerprint
from radmoe.engines.options import EngineOptions
from radmoe.engines.prompts import encode
from radmoe.errors import EngineError, InputError
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape, check_kind

if TYPE_CHECKING:
    from radmoe.engines.batches import Batcher
    from radmoe.pool import Profile
    from radmoe.problems import Content
    from radmoe.vocab import Vocab


TEMPERATURES = (1e-6, 1e3)  # that logits in float32 can be divided by, beside 0


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn. `topk_logprobs` is C, the logprobs kept per token; 0 keeps none at all."""

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0
    topk_logprobs: int = 20

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not (self.temperature == 0 or low <= self.temperature <= high):
            raise InputError(f"temperature must be 0 (greedy) or lie in [{low:g}, {high:g}], got {self.temperature:g}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.max_tokens < 1:
            raise InputError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.seed < 0:
            raise InputError(f"seed must not be negative, got {self.seed}")
        if self.topk_logprobs < 0:
            raise InputError(f"topk_logprobs must be 0 (none) or more, got {self.topk_logprobs}")


class Completion(NamedTuple):
    """One finished rollout of one prompt."""

    prompt_index: int
    rollout_index: int
    rollout: Rollout
    text: str
    finish_reason: str  # "stop": it ended by itself; "length": it reached max_tokens or the context's end


class Observation(NamedTuple):
    """One rollout as an engine got it, unchecked: what `radmoe doctor` looks at.

    Row r of `ids` and `weights` is said to be that of input position first + r. `dense` are the layers without experts
    that a server may count among those of `ids`, with zeros for rows.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    ids: NDArray[Any] | None  # [R, layers, K]
    weights: NDArray[Any] | None
    first: int
    sampled: NDArray[np.float32] | None  # [T]
    top: NDArray[np.float32] | None  # [T, C]
    dense: tuple[int, ...] = ()

    @property
    def sequence(self) -> tuple[int, ...]:
        return self.prompt + self.tokens


class Job(NamedTuple):
    """One rollout to sample. `key` names its prompt in the random numbers; `kind` says what its answer looks like."""

    prompt_index: int
    rollout_index: int
    key: str
    prompt: tuple[int, ...]
    limit: int  # tokens at most
    sampling: Sampling
    kind: Kind | None = None


class Forced(NamedTuple):
    """The result of a pass over T given tokens: expert ids and weights [T, L, K], and log-probabilities if asked for."""

    ids: NDArray[np.int16]
    weights: NDArray[np.float32]
    sampled_logprobs: NDArray[np.float32] | None = None  # [T]
    topk_logprobs: NDArray[np.float32] | None = None  # [T, C]


class Engine(Protocol):
    """Samples rollouts and hands each over with its routing. All engines write the same pool.

    An engine inherits from this class explicitly; what has a value or a body here is a default. The methods marked as
    abstract, and the attributes without a value, are what an engine must bring (tests/support/markov_engine.py is
    a small one).
    """

    name: str  # of the engine, for the pool's record
    model_name: str  # what a pool records as its model: a served name, the name of a directory, a lab model's name
    shape: RouterShape  # the router's, also where only some layers are captured
    vocab: Vocab
    tokenizer: Any  # a Hugging Face tokenizer, or what acts like one; `vocab` is the same as bytes
    versions: dict[str, str]  # of the libraries that sample, for the provenance of a pool
    dtype: str = "unknown"  # what the model computes in
    context: int | None = None  # the most tokens that prompt and completion have together; None where nobody said
    layers: tuple[int, ...] | None = None  # the only layers that are captured; None where all are
    checkpoint: Path | None = None  # the directory of the model, if its weights are there for a replay to load
    replays: bool = False  # whether `teacher_forced` works
    concurrent: bool = False  # whether several threads may call `generate` at a time
    streams: int = 1  # how many passes it can run side by side, each in a thread of its caller
    batch_size: int = 64  # rollouts that `generate` samples together unless told otherwise

    @classmethod
    @abstractmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        """Open the engine by a model's name and options.

        Raises InputError for an option that it needs and lacks, or that it was given and cannot use, and EngineError
        for a model that it cannot run. Options that only spare work (`layers`, `weights`, `probe`) may be ignored.
        """

    @property
    @abstractmethod
    def tokens_sampled(self) -> int:
        """The number of tokens that the current or last `generate` has sampled."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the model knows: those of a prompt lie below."""
        return len(self.vocab)

    @abstractmethod
    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs that `generate` has checked, which share one sampling; yields each as it finishes.

        `tokens_sampled` counts from 0 again. Where `profile` is given, rows and layers that it does not keep may be left out.
        """

    def generate(
        self,
        prompts: Sequence[Content | Sequence[int]],
        n: int,
        *,
        sampling: Sampling | None = None,
        batch_size: int | None = None,
        keys: Sequence[str] | None = None,
        missing: Sequence[Sequence[int]] | None = None,
        kinds: Sequence[Kind | None] | None = None,
        profile: Profile | None = None,
    ) -> Generator[Completion, None, None]:
        """Sample n rollouts of every prompt, or only those with the indices missing[i]; yields each as it finishes.

        A prompt is a sequence of token ids, or what `encode` takes. `keys[i]` names prompt i in its seeds (default: its
        place), so that a resumed run draws what the interrupted one would have drawn. `profile` is that of the pool the
        rollouts go to, and `kinds` say what answers look like, on which depends what a profile keeps. An engine may
        leave out rows and layers that the profile does not keep: its rollouts then have `positions`, and the kept
        layers in the profile's order. Arguments are checked before the first token is sampled. Closing the generator closes what
        `run` returned, so that the engine's threads and requests end.
        """
        from radmoe.engines.kept_rows import check_profile

        sampling, size = sampling or Sampling(), self.batch_size if batch_size is None else batch_size
        wanted = wanted_rollouts(len(prompts), n, size, keys, missing, kinds)
        check_profile(profile, self.layers, self.vocab, [each.kind for each in wanted])
        encoded = [tuple(check_prompt(self.encode(prompt), self.vocab_size)) for prompt in prompts]
        limits = [self.room(ids, each.key, sampling.max_tokens) for ids, each in zip(encoded, wanted, strict=True)]
        jobs = [
            Job(i, r, each.key, encoded[i], limits[i], sampling, each.kind)
            for i, each in enumerate(wanted)
            for r in each.rollouts
        ]
        return _closable(self.run(jobs, size, profile))

    def sample(
        self,
        prompt: Content | Sequence[int],
        n: int,
        *,
        kind: Kind | None = None,
        problem_id: str = "prompt",
        batch_size: int | None = None,
        **settings: Any,
    ) -> RolloutGroup:
        """Sample n rollouts of one prompt, for `select`. `kind` says what an answer looks like.

        `settings` are those of `sampling_for`: temperature, top_p, max_tokens, seed, topk_logprobs. What is not given is
        the model's own.
        """
        from radmoe.engines.kept_rows import profile_for

        profile = profile_for(self)
        completions = self.generate(
            [prompt],
            n,
            sampling=sampling_for(self, **settings),
            batch_size=batch_size,
            keys=[problem_id],
            kinds=[kind],
            profile=profile,
        )
        ordered = sorted(completions, key=lambda done: done.rollout_index)
        rollouts = [done.rollout for done in ordered]
        return RolloutGroup(problem_id, rollouts, profile.stored_shape(self.shape), self.vocab, kind)

    def batcher(
        self,
        *,
        batch_size: int = 64,
        topk_logprobs: int = Sampling.topk_logprobs,
        kind: Kind | None = None,
        profile: Profile | None = None,
    ) -> Batcher:
        """A batch for requests that come one by one, all with `topk_logprobs`. While it is open, do not `generate`.

        `kind` and `profile` are those of `generate`. By default requests that wait are sampled together by `generate`.
        """
        from radmoe.engines.batches import GenerateBatcher

        return GenerateBatcher(self, batch_size=batch_size, topk_logprobs=topk_logprobs, kind=kind, profile=profile)

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting that the model comes with (temperature, top_p, max_new_tokens); `otherwise` where it has none."""
        return otherwise

    def room(self, ids: Sequence[int], name: str, max_tokens: int) -> int:
        """The most tokens that a rollout of this prompt may have: max_tokens, or the rest of the context.

        Raises InputError if the prompt fills it.
        """
        if self.context is None:
            return max_tokens
        if len(ids) >= self.context:
            raise InputError(
                f"prompt {name!r} has {len(ids)} tokens and the model's context is {self.context}: "
                "shorten the prompt, there is no room for an answer"
            )
        return min(max_tokens, self.context - len(ids))

    def encode(self, prompt: Content | Sequence[int], *, raw: bool = False) -> list[int]:
        """Token ids of a prompt: a text, chat messages (see `prompts.encode`), or token ids, which stay as they are."""
        if isinstance(prompt, str) or any(isinstance(part, dict) for part in prompt):
            ids = encode(self.tokenizer, cast("Content", prompt), raw=raw)[1]
        else:
            ids = [int(token) for token in cast(Sequence[int], prompt)]
        if not ids:
            raise InputError("a prompt of zero tokens has nothing to continue")
        return ids

    def observe(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Observation:
        """Sample one rollout and hand it over as it came. By default it has the rows of the generated tokens."""
        from radmoe.pool import Profile

        (done,) = self.generate(
            [list(prompt)],
            1,
            sampling=replace(sampling, seed=seed),
            batch_size=1,
            keys=["doctor"],
            profile=None if self.layers is None else Profile(layers=self.layers),
        )
        rollout = done.rollout
        return Observation(
            tuple(prompt),
            tuple(rollout.token_ids.tolist()),
            rollout.expert_ids,
            rollout.weights,
            len(prompt) - 1,
            rollout.sampled_logprobs,
            rollout.topk_logprobs,
        )

    def check_tokenizer(self) -> bool:
        """Compare the tokenizer with the one that a server uses; EngineError where they differ.

        Returns False where there is nothing to compare: the tokenizer came with the model, or the server does not
        tokenise.
        """
        return False

    def teacher_forced(self, token_ids: Sequence[int]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Expert ids and weights [S, L, K] of one pass over S given tokens; row p is that of input position p.

        Only engines with `replays` can do this.
        """
        raise EngineError(f"{self.name} cannot run a pass over given tokens: replay them with the engine transformers")

    def force(self, prompt: Sequence[int], tails: Sequence[Sequence[int]], *, topk_logprobs: int = 0) -> list[Forced]:
        """Run passes over given continuations of one prompt. R(t) of token t is the row of the position before it.

        An engine that only has `teacher_forced` passes one after another, and gives no log-probabilities.
        """
        passes = (self.teacher_forced([*prompt, *tail[:-1]]) for tail in tails)
        return [Forced(ids[len(prompt) - 1 :], weights[len(prompt) - 1 :]) for ids, weights in passes]

    def provenance(self) -> dict[str, Any]:
        """What a pool's shards record about this engine: library versions, host, and a fingerprint of the weights."""
        where = {"versions": dict(self.versions), "python": platform.python_version(), "host": platform.node()}
        weights = fingerprint(self.checkpoint)
        return where if weights is None else where | {"checkpoint": weights}

    def close(self) -> None:
        """Release what the engine holds: processes, connections. It cannot be used afterwards."""
        return


def _closable(completions: Iterator[Completion]) -> Generator[Completion, None, None]:
    """The same completions; closing them closes the iterator, if that can be closed."""
    yield from completions


def sampling_for(
    engine: Engine,
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    topk_logprobs: int = Sampling.topk_logprobs,
) -> Sampling:
    """Sampling settings; what is not given is the model's own suggestion, or temperature 1, top-p 1, 2,048 tokens."""
    return Sampling(
        temperature if temperature is not None else engine.suggested("temperature", 1.0),
        top_p if top_p is not None else engine.suggested("top_p", 1.0),
        max_tokens if max_tokens is not None else engine.suggested("max_new_tokens", 2048),
        seed,
        topk_logprobs,
    )


class Wanted(NamedTuple):
    """The rollouts that one prompt needs: the prompt's key in the random numbers, the rollout indices, and the kind."""

    key: str
    rollouts: list[int]
    kind: Kind | None


def wanted_rollouts(
    prompts: int,
    n: int,
    batch_size: int,
    keys: Sequence[str] | None,
    missing: Sequence[Sequence[int]] | None,
    kinds: Sequence[Kind | None] | None = None,
) -> list[Wanted]:
    """The key, rollout indices and kind of each prompt. By default prompt i has the key str(i), all n rollouts and no kind.

    Raises InputError if the lists disagree or hold what they may not.
    """
    if n < 1:
        raise InputError(f"n must be at least 1 rollout per prompt, got {n}")
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    names = list(keys) if keys is not None else [str(i) for i in range(prompts)]
    lists = [list(rollouts) for rollouts in missing] if missing is not None else [list(range(n))] * prompts
    each = list(kinds) if kinds is not None else [None] * prompts
    if not len(names) == len(lists) == len(each) == prompts:
        raise InputError(
            f"{prompts} prompts, {len(names)} keys, {len(lists)} lists of rollouts, {len(each)} kinds: they must agree"
        )
    for name, rollouts in zip(names, lists, strict=True):
        if rollouts != sorted(set(rollouts) & set(range(n))):
            raise InputError(f"rollouts of {name!r} must be distinct, ascending and below n={n}, got {rollouts}")
    checked = [None if kind is None else check_kind(kind) for kind in each]
    return [Wanted(*parts) for parts in zip(names, lists, checked, strict=True)]


def check_prompt(ids: Sequence[int], words: int) -> list[int]:
    """The token ids of a prompt; InputError where there are none, or where one is not below `words`."""
    if not len(ids):
        raise InputError("a prompt of zero tokens has nothing to continue")
    if min(ids) < 0 or max(ids) >= words:
        raise InputError(f"token ids of a prompt lie in [0, {words}), got {min(ids)}..{max(ids)}")
    return list(ids)


def completion_text(tokenizer: Any, token_ids: NDArray[np.int32], finish_reason: str) -> str:
    """The text of a rollout, special tokens included; the token that ended it is left out."""
    shown = token_ids[:-1] if finish_reason == "stop" else token_ids
    return str(tokenizer.decode(shown.tolist(), skip_special_tokens=False))


def rollout_seed(seed: int, key: str, rollout_index: int) -> int:
    """The seed of one rollout, for engines that draw by themselves.

    It counts up by 1 with the rollout, as vLLM's own seeds do within a request.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:4], "little") + rollout_index


def uniforms(seed: int, key: str, rollout_index: int, count: int) -> NDArray[np.float64]:
    """The random numbers of one rollout, one per token [count], in [0, 1).

    They depend on nothing but these names: not on the batch, on other rollouts or on what was
    sampled before a restart. A longer list begins with the shorter one.
    """
    digest = hashlib.sha256(key.encode()).digest()
    words = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4)]
    return np.random.default_rng([seed, *words, rollout_index]).random(count)
