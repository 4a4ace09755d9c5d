"""Planted pools: synthetic rollouts whose answer basins are known because we put them there.

No model runs here. Text comes from a small grammar. Routing comes from Zipf-distributed experts; which
of them a token prefers depends on the token and, from the answer on, on the basin of its rollout. That
is enough to exercise every part of the package at any size, and to check that a selector finds a basin
that is really there. It says nothing about how well RAD works on a real model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.kernels.jit import jit
from radmoe.types import Kind, Rollout, RolloutGroup, RouterShape
from radmoe.vocab import Vocab

_SENTENCES = (
    "So the sum is {a} plus {b}",
    "Now multiply {a} by {b}",
    "Wait, check the remainder of {a}",
    "Then {a} minus {b} is left",
    "Note that {b} divides {a}: good",
    "Let x be {a}, and y be {b}",
)
_STOPS = (". ", ".\n\n", ". ", ".\n")
_CONTROL = ("<think>", "</think>", "<|im_end|>")
_SHAPE = RouterShape(12, 32, 4)
_MISSING = 0.05  # the share of rollouts that never open a delimiter


@dataclass(frozen=True)
class Planted:
    """The recipe of a planted pool. The same recipe gives the same bytes."""

    shape: RouterShape = _SHAPE
    problems: int = 24
    rollouts: int = 16
    tokens: int = 200  # about as many in each rollout
    basins: int = 4
    agreement: float = 0.55  # how often a token takes the experts it prefers
    kind: Kind = "math"
    lines: int = 0  # of a program, for kind code, beside the one that returns the answer
    weights: bool = True
    logprobs: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("problems", "rollouts", "tokens", "basins"):
            if getattr(self, name) < 1:
                raise InputError(f"planted {name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 <= self.agreement <= 1.0:
            raise InputError(f"planted agreement must lie in [0, 1], got {self.agreement}")
        if self.lines < 0:
            raise InputError(f"planted lines must not be negative, got {self.lines}")
        if self.kind not in ("math", "code"):
            raise InputError(f"planted kind must be math or code, got {self.kind!r}")


@dataclass(frozen=True)
class PlantedGroup:
    """One problem: the group of rollouts that RAD may see, and the texts, answers and truth that it may not."""

    group: RolloutGroup
    texts: list[str]
    answers: list[str | None]
    truth: str


@cache
def tokenizer() -> Any:
    """A byte-level BPE of a few hundred tokens, trained on the first call. It is the same every time."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = np.random.default_rng(0)
    kinds = ("math", "code")
    corpus = [_reasoning(rng, 40) + _answer(str(rng.integers(1000)), kind) for kind in kinds for _ in range(40)]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, show_progress=False))
    tok.add_special_tokens(list(_CONTROL))
    return tok


@cache
def vocab() -> Vocab:
    return Vocab.from_tokenizer(tokenizer())


def groups(recipe: Planted) -> Iterator[PlantedGroup]:
    """The recipe's problems, one at a time."""
    cdf = _popularity(recipe.shape)
    for problem in range(recipe.problems):
        yield _problem(recipe, problem, cdf)


def _problem(recipe: Planted, problem: int, cdf: NDArray[np.float64]) -> PlantedGroup:
    rng = np.random.default_rng([recipe.seed, problem])
    answers = [str(a) for a in rng.choice(1000, size=recipe.basins, replace=False)]
    share = rng.dirichlet(np.full(recipe.basins, 1.5))
    rollouts, texts, rollout_answers = [], [], []
    for _ in range(recipe.rollouts):
        basin = int(rng.choice(recipe.basins, p=share))
        thought = "<think>" + _reasoning(rng, max(1, int(recipe.tokens * rng.uniform(0.8, 1.2) / 9))) + "</think>"
        missing = bool(rng.random() < _MISSING)
        body = _program(rng, recipe.lines) if recipe.lines else ""
        tail = " I cannot tell." if missing else _answer(answers[basin], recipe.kind, body)
        head = tokenizer().encode(thought).ids
        ids = np.array(head + tokenizer().encode(tail + "<|im_end|>").ids, np.int32)
        state = np.full(len(ids), problem + 1, np.int64)
        state[len(head) :] = (problem + 1) * 1000 + basin
        experts, weights = _route(ids, state, cdf, recipe.shape.top_k, recipe.agreement, int(rng.integers(2**62)))
        sampled = topk = None
        if recipe.logprobs:
            topk = np.sort(-rng.gamma(2.0, 1.0 + 0.5 * rng.random(), (len(ids), 20)).astype(np.float32))[:, ::-1]
            sampled = topk[:, 0].copy()
        rollouts.append(Rollout(ids, experts, weights if recipe.weights else None, sampled, topk))
        texts.append(thought + tail)
        rollout_answers.append(None if missing else answers[basin])
    truth = answers[int(np.argmax(share))] if rng.random() < 0.75 else answers[int(rng.integers(recipe.basins))]
    group = RolloutGroup(f"planted-{problem:04d}", rollouts, recipe.shape, vocab(), recipe.kind)
    return PlantedGroup(group, texts, rollout_answers, truth)


def _reasoning(rng: np.random.Generator, sentences: int) -> str:
    pick, stop = rng.integers(len(_SENTENCES), size=sentences), rng.integers(len(_STOPS), size=sentences)
    a, b = rng.integers(1000, size=(2, sentences))
    return "".join(_SENTENCES[p].format(a=x, b=y) + _STOPS[s] for p, s, x, y in zip(pick, stop, a, b, strict=True))


def _program(rng: np.random.Generator, lines: int) -> str:
    return "".join(f"    x = {a} + {b}\n" for a, b in rng.integers(1000, size=(lines, 2)))


def _answer(answer: str, kind: str, body: str = "") -> str:
    if kind == "code":
        return f"\n\n```python\ndef solve():\n{body}    return {answer}\n```\n"
    return f"\n\nThe answer is $\\boxed{{{answer}}}$ as shown above, and so the problem is solved."


def _popularity(shape: RouterShape) -> NDArray[np.float64]:
    """Cumulative Zipf-like popularity of the experts, in another order in every layer. [L, E]"""
    rng = np.random.default_rng(shape.layers * 100_003 + shape.experts)
    mass = 1.0 / np.arange(1, shape.experts + 1) ** 0.6
    order = np.argsort(rng.random((shape.layers, shape.experts)), axis=1)
    return np.cumsum(mass[order] / mass.sum(), axis=1)


@jit
def _mix(x: np.uint64) -> np.uint64:
    """The hash splitmix64, which is good enough to draw random numbers from."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@jit
def _route(ids: Any, state: Any, cdf: Any, top_k: int, agreement: float, seed: int) -> Any:
    """Experts int16[T, L, K] and weights float32[T, L, K] for the tokens `ids` in their hidden `state`.

    With probability `agreement` a slot takes the expert that its token, state and layer prefer, else
    one by popularity. The experts of a token are distinct, and weights fall from slot to slot.
    """
    layers, experts = cdf.shape
    out_ids = np.empty((len(ids), layers, top_k), np.int16)
    weights = np.empty((len(ids), layers, top_k), np.float32)
    unit = 1.0 / 9007199254740992.0
    draw = _mix(np.uint64(seed))
    for t in range(len(ids)):
        for layer in range(layers):
            prefers = _mix(np.uint64(state[t]) * np.uint64(1_000_003) + np.uint64(layer))
            if t % 3 == 0:  # a third of the signal is the token's own identity
                prefers = _mix(np.uint64(ids[t]) * np.uint64(7919) + np.uint64(layer))
            total = 0.0
            for k in range(top_k):
                sticky = True
                while True:
                    draw = _mix(draw)
                    if sticky and (draw >> np.uint64(11)) * unit < agreement:
                        prefers = _mix(prefers)
                        u = (prefers >> np.uint64(11)) * unit
                    else:
                        draw = _mix(draw)
                        u = (draw >> np.uint64(11)) * unit
                    expert = min(np.searchsorted(cdf[layer], u, side="right"), experts - 1)
                    fresh = True
                    for earlier in range(k):
                        fresh = fresh and out_ids[t, layer, earlier] != expert
                    if fresh:
                        break
                    sticky = False
                out_ids[t, layer, k] = expert
                draw = _mix(draw)
                weights[t, layer, k] = np.exp(-0.6 * k) * (0.75 + 0.5 * (draw >> np.uint64(11)) * unit)
                total += weights[t, layer, k]
            for k in range(top_k):
                weights[t, layer, k] /= total
    return out_ids, weights
