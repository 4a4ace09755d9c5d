"""Rollouts, in memory or read from a pool, and the group of one problem's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, RolloutError
from radmoe.types.arrays import check_ids, check_positions, check_weights, integers, logprobs, same_length
from radmoe.types.html import html_table
from radmoe.types.names import Kind, check_kind
from radmoe.types.router import RouterShape
from radmoe.types.steps import Step, check_steps
from radmoe.vocab import Vocab

Rows = tuple[NDArray[np.int16], NDArray[np.float16] | None]


class Trace(Protocol):
    """What selection reads of a rollout: its tokens, and the rows of routing that exist.

    `Rollout` holds one in memory, and a pool hands out traces that read their rows from disk. Asking `rows` for a
    token whose routing was not captured is a RolloutError; nothing is made up in its place.
    """

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """The generated tokens [T]."""

    @property
    def sampled_logprobs(self) -> NDArray[np.float32] | None:
        """The log-probability of each generated token [T]; None where it was not kept."""

    @property
    def topk_logprobs(self) -> NDArray[np.float32] | None:
        """The C largest log-probabilities at each token [T, C]; None where they were not kept."""

    @property
    def positions(self) -> NDArray[np.int32] | None:
        """The tokens whose routing exists, ascending; None where all have it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The model's turns; empty for a rollout of a single prompt."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """The offset of the first token of each turn; empty for a rollout of a single prompt."""

    @property
    def has_weights(self) -> bool:
        """Whether rows carry weights beside expert ids."""

    def __len__(self) -> int:
        """T, the number of generated tokens."""

    def expect(self, spans: Sequence[tuple[int, int]], *, weights: bool = True) -> None:
        """Say which ranges of tokens will be asked for next, so that a pool can read those of several rollouts together."""

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of tokens [start, stop), cut at the end of the rollout."""

    def rows_of(self, tokens: NDArray[np.integer[Any]], *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of these tokens, which ascend."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One completed rollout in memory: T tokens and the routing that predicted them.

    `expert_ids[t]` and `weights[t]` are R(t), recorded in the forward pass that predicts `token_ids[t]`
    (Sec. "Answer-string-free protocol"). Weights sum to 1 per token and layer; None means ids only, and every chosen
    expert then weighs 1/K. Where only some rows were captured, `positions` names their tokens and R counts them;
    otherwise R is T. A trajectory of several turns has `steps`.
    """

    token_ids: NDArray[np.int32]  # [T]
    expert_ids: NDArray[np.int16]  # [R, L, K]
    weights: NDArray[np.float16] | None = None  # [R, L, K]
    sampled_logprobs: NDArray[np.float32] | None = None  # [T]
    topk_logprobs: NDArray[np.float32] | None = None  # [T, C]
    positions: NDArray[np.int32] | None = None  # [R]
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        tokens = integers("token_ids", self.token_ids, np.int32, 1)
        length = len(tokens)
        if length == 0:
            raise RolloutError("a rollout of zero tokens carries no routing: keep its end token, or leave it out")
        experts = integers("expert_ids", self.expert_ids, np.int16, 3)
        positions = self.positions
        if positions is None:
            same_length("expert_ids", experts, length)
        else:
            positions = integers("positions", positions, np.int32, 1)
            check_positions(positions, len(experts), length)
        weights = self.weights
        if weights is not None:
            weights = np.asarray(weights)
            if weights.shape != experts.shape:
                raise RolloutError(f"weights have shape {weights.shape}, expert_ids {experts.shape}: they must agree")
            check_weights(weights)
            weights = weights.astype(np.float16, copy=False)
        sampled = self.sampled_logprobs
        if sampled is not None:
            sampled = logprobs("sampled_logprobs", sampled, 1, length)
        topk = self.topk_logprobs
        if topk is not None:
            topk = logprobs("topk_logprobs", topk, 2, length)
        for name, value in (
            ("token_ids", tokens),
            ("expert_ids", experts),
            ("weights", weights),
            ("sampled_logprobs", sampled),
            ("topk_logprobs", topk),
            ("positions", positions),
            ("steps", check_steps(self.steps, length)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def has_weights(self) -> bool:
        return self.weights is not None

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.array([step.start for step in self.steps], np.int64)

    def expect(self, spans: Sequence[tuple[int, int]], *, weights: bool = True) -> None:
        """All rows are in memory."""

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of tokens [start, stop), cut at the end of the rollout."""
        first, last = rows_at(self.positions, start, min(stop, len(self)), "this rollout")
        mass = self.weights[first:last] if weights and self.weights is not None else None
        return self.expert_ids[first:last], mass

    def rows_of(self, tokens: NDArray[np.integer[Any]], *, weights: bool = True) -> Rows:
        """Expert ids and weights [n, L, K] of these tokens, which ascend."""
        rows = places_of(self.positions, tokens, "this rollout")
        return self.expert_ids[rows], self.weights[rows] if weights and self.weights is not None else None


@dataclass(frozen=True, eq=False, repr=False)
class RolloutGroup:
    """The N rollouts of one problem, which are RAD's whole input.

    `vocab` may be given as a tokenizer. `kind` says what an answer looks like; None if it is unknown. `rollout_indices`
    are the rollouts' numbers in their pool (by default 0 to N-1).
    """

    problem_id: str
    rollouts: Sequence[Trace]
    shape: RouterShape
    vocab: Vocab
    kind: Kind | None = None
    rollout_indices: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        rollouts = tuple(self.rollouts)
        indices = tuple(range(len(rollouts))) if self.rollout_indices is None else tuple(self.rollout_indices)
        if len(indices) != len(rollouts):
            raise InputError(f"{len(rollouts)} rollouts but {len(indices)} rollout_indices: give one for each")
        for name, value in (
            ("problem_id", str(self.problem_id)),
            ("rollouts", rollouts),
            ("vocab", Vocab.of(self.vocab)),
            ("kind", None if self.kind is None else check_kind(self.kind)),
            ("rollout_indices", indices),
        ):
            object.__setattr__(self, name, value)
        for i, rollout in enumerate(rollouts):
            if isinstance(rollout, Rollout):  # a stored rollout is checked as its rows are read
                check_routing(rollout, self.shape, f"rollout {i} of problem {self.problem_id!r}")

    def __len__(self) -> int:
        return len(self.rollouts)

    def __repr__(self) -> str:
        return f"RolloutGroup({self.problem_id!r}: {len(self)} rollouts, {self.kind or 'no kind'}, router {self.shape})"

    def _repr_html_(self) -> str:
        assert self.rollout_indices is not None
        rows = [(index, len(one)) for index, one in zip(self.rollout_indices, self.rollouts, strict=True)]
        return html_table(repr(self), ("rollout", "tokens"), rows)


def check_routing(rollout: Rollout, shape: RouterShape, where: str) -> None:
    """Refuse a rollout whose routing does not fit the router."""
    if rollout.expert_ids.shape[1:] != (shape.layers, shape.top_k):
        raise RolloutError(
            f"{where} has routing of {rollout.expert_ids.shape[1]} layers, top-{rollout.expert_ids.shape[2]}; the router is {shape}"
        )
    check_ids(rollout.expert_ids, shape.experts, f"expert_ids of {where}")


def rows_at(positions: NDArray[np.int32] | None, start: int, stop: int, where: str) -> tuple[int, int]:
    """The range of stored rows that hold tokens [start, stop). Raises a RolloutError if one of them was not captured."""
    if positions is None:
        return start, stop
    first, last = (int(i) for i in np.searchsorted(positions, (start, stop)))
    if last - first != stop - start:
        raise RolloutError(
            f"{where} has the routing of {len(positions)} of its tokens, not of all in [{start}, {stop}): "
            "use a readout it was captured for (radmoe inspect lists a pool's)"
        )
    return first, last


def places_of(
    positions: NDArray[np.int32] | None, tokens: NDArray[np.integer[Any]], where: str
) -> NDArray[np.integer[Any]]:
    """The stored rows that hold these tokens, which ascend. Raises a RolloutError if one of them was not captured."""
    if positions is None:
        return tokens
    places = np.searchsorted(positions, tokens)
    if len(tokens) and (places[-1] >= len(positions) or (positions[places] != tokens).any()):
        raise RolloutError(
            f"{where} has the routing of {len(positions)} of its tokens, not of all {len(tokens)} that are to be read: "
            "use a readout it was captured for (radmoe inspect lists a pool's)"
        )
    return places
