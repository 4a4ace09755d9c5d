"""Pruning by likelihood: rollouts that fall behind the first ones are given up before they have cost all their tokens.

The first WARM_UP rollouts of a problem run to their end, and set a bar. A later one is given up once it has the share
AFTER of their median length in tokens, and its likelihood so far (the mean log-probability of its tokens) is below the bar:
the median of what theirs was after as many tokens. The pick is made among the rollouts that finished. With a patience, no
more are begun once the pick has stayed the same over that many later rollouts in a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.methods import GradedProblem
from radmoe.selection.kernels.jit import jit
from radmoe_studies.arrivals import Orders, by_ranks
from radmoe_studies.evidence import Floats, Ints, Panel
from radmoe_studies.per_rollout import Parts, per_rollout
from radmoe_studies.subcohorts import SubcohortProblem, densest

WARM_UP = 8
AFTER = 0.25  # before that, the likelihood of a rollout says little


def running_likelihood(sampled_logprobs: Sequence[NDArray[np.float32]]) -> Floats:
    """The mean log-probability [N, T] of the first 1, 2, ... tokens of rollouts. After its end a rollout keeps its last mean."""
    out = np.empty((len(sampled_logprobs), max((len(one) for one in sampled_logprobs), default=0)))
    for row, one in zip(out, sampled_logprobs, strict=True):
        row[: len(one)] = np.cumsum(one, dtype=np.float64) / np.arange(1, len(one) + 1)
        row[len(one) :] = row[len(one) - 1] if len(one) else np.nan
    return out


class LogProbs(NamedTuple):
    """The log-probabilities of the tokens of P x N rollouts, one rollout behind the other; `counts` [P, N] of them."""

    counts: Ints
    flat: NDArray[np.float32]

    def running(self, row: int) -> Floats:
        """The likelihood so far [N, T] of a problem's rollouts."""
        ends = int(self.counts[:row].sum()) + np.cumsum(self.counts[row])
        return running_likelihood([self.flat[e - n : e] for e, n in zip(ends, self.counts[row], strict=True)])


def log_probs(panel: Panel) -> LogProbs | None:
    """The log-probabilities of a panel's rollouts, from the cache or from its pool; None where it has no likelihoods or no pool."""
    if "likelihood" not in panel.scalars:
        return None
    arrays = per_rollout(panel, "log-probabilities", ("flat",), _sampled)
    return None if arrays is None else LogProbs(**arrays)


def _sampled(problem: GradedProblem) -> list[Parts]:
    out: list[Parts] = []
    for rollout in problem.group.rollouts:
        assert rollout.sampled_logprobs is not None
        out.append((rollout.sampled_logprobs,))
    return out


class Pruned(NamedTuple):
    """In each order: the pick (a row of the problem, -1 for none), tokens spent, and rollouts that finished [O each]."""

    picks: Orders
    spent: Ints
    finished: Ints


def prune(
    problem: SubcohortProblem,
    place: Ints,
    begun: Orders,
    lengths: Ints,
    running: Floats,
    k: Ints,
    confidence: Floats | None = None,
    *,
    patience: int | None = None,
) -> Pruned:
    """Begin the rollouts of a problem in each order [O, N], and give up those that fall behind.

    `place`, `k` and `confidence` are those of `arrivals.picks`: k [N] by how many have finished. `running` [N, T] is each
    rollout's likelihood so far. Without `patience`, all rollouts are begun.
    """
    count = len(begun)
    out = Pruned(np.full(count, -1, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64))
    rows = place[begun]
    order = rows[rows >= 0].reshape(count, -1)
    known = np.zeros(0) if confidence is None else np.asarray(confidence, np.float64)
    middles = np.median(lengths[begun[:, :WARM_UP]], axis=1)
    starts = np.array([max(1, math.ceil(AFTER * middle)) for middle in middles], np.int64)
    neighbours = np.asarray(k, np.int64)
    _prune(
        problem.ranked, problem.near, order, place, begun, np.asarray(lengths, np.int64), running, starts,
        neighbours, known, WARM_UP, -1 if patience is None else patience, out.picks, out.spent, out.finished,
    )  # fmt: skip
    return out


@jit
def _prune(
    ranked: Any, near: Any, order: Any, place: Any, begun: Any, lengths: Any, running: Any, starts: Any,
    k: Any, confidence: Any, warm_up: int, patience: int, picks: Any, spent: Any, finished: Any,
) -> None:  # fmt: skip
    n, members = begun.shape[1], len(ranked)
    inside, density = np.zeros(members, np.bool_), np.zeros(members)
    first = min(warm_up, n)
    bar, column = np.empty(running.shape[1]), np.empty(first)
    for o in range(len(begun)):
        inside[:] = False
        for t in range(len(bar)):
            for i in range(first):
                column[i] = running[begun[o, i], t]
            bar[t] = np.median(column)
        size, survived = 0, 0
        for m in range(n):
            one = begun[o, m]
            tokens = lengths[one]
            if m >= first:
                for t in range(starts[o], lengths[one]):
                    if running[one, t - 1] < bar[t - 1]:
                        tokens = t
                        break
            spent[o] += tokens
            ended = tokens == lengths[one]
            if ended:
                finished[o] += 1
                if place[one] >= 0:
                    inside[place[one]] = True
                    size += 1
            last = m == n - 1
            if size < 2 or not (last or (patience >= 0 and ended and m >= first - 1)):
                continue
            before = picks[o]
            neighbours = k[finished[o] - 1]
            picks[o] = densest(ranked, near, order[o], inside, size, neighbours, density)
            if len(confidence):
                picks[o] = by_ranks(density, confidence, order[o], inside, size, neighbours)
            if m >= first and ended and place[one] >= 0:
                survived = survived + 1 if picks[o] == before else 0
                if patience >= 0 and survived >= patience:
                    break
