"""Every method against a slow reference of its own, on captured and on planted rollouts.

The reference below knows nothing of `radmoe.evaluation.methods`: it takes route vectors from `read`, and writes out similarity,
density, confidence and votes as the paper and DeepConf define them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from golden_groups import Answers, golden_problems, planted_problems
from graded_groups import problem_of
from radmoe.evaluation.methods import METHODS, GradedProblem
from radmoe.evaluation.problem import Marks
from radmoe.selection.anchors import find_all, spec_for
from radmoe.selection.kernels import TIE
from radmoe.selection.readout import read
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select
from radmoe.types import RolloutGroup
from radmoe_lab import planted

PRESENT_BEFORE = {
    "average", "majority", "deepconf", "rad", "rad+dc", "strict", "strict+dc", "deepconf-mean", "deepconf-tail",
    "deepconf-lowest-window", "deepconf-tail-top10", "deepconf-bottom-window-top10", "confident", "medoid", "longest",
    "shortest", "most-steps", "fewest-steps", "oracle",
}  # fmt: skip


# -- the reference ---------------------------------------------------------------------------------------------------


def densest(
    group: RolloutGroup, kind: Any, readout: str, k: int, confidence: Sequence[float] | None = None
) -> int | None:
    """RAD, or RAD+DC where each rollout's confidence is given."""
    reading = read(group, readout, kind)
    runs, Z = np.flatnonzero(reading.located).tolist(), reading.Z.astype(float)
    if len(runs) < 2:
        return None
    rows = list(range(len(runs)))
    if confidence is not None:
        rows = sorted(sorted(rows, key=lambda row: -confidence[runs[row]])[: (len(rows) + 1) // 2])
    density = {}
    for i in rows:
        near = [np.minimum(Z[i], Z[j]).sum() / np.maximum(Z[i], Z[j]).sum() for j in rows if j != i]
        density[i] = sum(sorted(near, reverse=True)[:k])
    best = [i for i in rows if density[i] > max(density.values()) - 4 * TIE * k]
    return int(runs[min(best, key=lambda row: (0 if confidence is None else -confidence[runs[row]], row))])


def confidences(group: RolloutGroup, window: int) -> dict[str, list[float]]:
    scalars: dict[str, list[float]] = {"mean": [], "tail": [], "bottom-window": [], "lowest-window": []}
    for rollout in group.rollouts:
        tokens = [-float(np.mean(row, dtype=float)) for row in rollout.topk_logprobs]  # type: ignore[union-attr]
        means = [float(np.mean(tokens[i : i + window])) for i in range(len(tokens) - window + 1)]
        means = sorted(means or [float(np.mean(tokens))])
        scalars["mean"].append(float(np.mean(tokens)))
        scalars["tail"].append(float(np.mean(tokens[-window:])))
        scalars["bottom-window"].append(float(np.mean(means[: max(1, len(means) // 10)])))
        scalars["lowest-window"].append(means[0])
    return scalars


def vote(answers: Answers, weights: Sequence[float], share: float = 1.0) -> int | None:
    voters = [weight for answer, weight in zip(answers, weights, strict=True) if answer is not None]
    if not voters:
        return None
    least = float(np.quantile(voters, 1 - share))
    total, first = Counter[str](), dict[str, int]()
    for i, (answer, weight) in enumerate(zip(answers, weights, strict=True)):
        if answer is not None and weight >= least:
            total[answer] += weight  # type: ignore[assignment]
            first.setdefault(answer, i)
    return min(first[answer] for answer, weight in total.items() if weight == max(total.values()))


def expected_picks(
    group: RolloutGroup, kind: Any, answers: Answers, correct: list[bool], window: int
) -> dict[str, Any]:
    scalars = confidences(group, window)
    cbw = scalars["bottom-window"]
    lengths = [len(rollout.token_ids) for rollout in group.rollouts]
    texts = [group.vocab.decode_bytes(rollout.token_ids).decode("utf-8", "replace") for rollout in group.rollouts]
    steps = [text.count("\n\n") for text in texts]
    everyone = len(group.rollouts)
    return {
        "rad": densest(group, kind, "delimiter@16", 10),
        "rad+dc": densest(group, kind, "delimiter@16", 10, cbw),
        "strict": densest(group, kind, "delimiter@marker", 10),
        "strict+dc": densest(group, kind, "delimiter@marker", 10, cbw),
        "medoid": densest(group, kind, "delimiter@16", everyone),
        "majority": vote(answers, [1.0] * everyone),
        "deepconf": vote(answers, cbw),
        "deepconf-mean": vote(answers, scalars["mean"]),
        "deepconf-tail": vote(answers, scalars["tail"]),
        "deepconf-lowest-window": vote(answers, scalars["lowest-window"]),
        "deepconf-tail-top10": vote(answers, scalars["tail"], 0.1),
        "deepconf-bottom-window-top10": vote(answers, cbw, 0.1),
        "confident": cbw.index(max(cbw)),
        "longest": lengths.index(max(lengths)),
        "shortest": lengths.index(min(lengths)),
        "most-steps": steps.index(max(steps)),
        "fewest-steps": steps.index(min(steps)),
        "oracle": correct.index(True) if any(correct) else None,
        "self-certainty": scalars["mean"].index(max(scalars["mean"])),
        "likelihood": int(np.argmax([np.mean(r.sampled_logprobs, dtype=float) for r in group.rollouts])),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("window", [2048, 24])
@pytest.mark.parametrize("source", [golden_problems, planted_problems])
def test_every_method_picks_what_its_reference_picks(source: Any, window: int) -> None:
    told_apart = set()
    for kind, group, answers in source():
        known = [answer for answer in answers if answer is not None]
        correct = [answer is not None and answer == known[-1] for answer in answers]
        problem = GradedProblem(
            group, Rule(confidence_window=window).settle(kind), Marks(tuple(answers), tuple(correct))
        )
        expected = expected_picks(group, kind, answers, correct, window)
        outcomes = {name: METHODS[name].judge(problem) for name in expected}
        assert {name: outcome.pick for name, outcome in outcomes.items()} == expected, group.problem_id
        for name, (pick, hit) in outcomes.items():
            assert hit == (pick is not None and correct[pick]), name
        assert METHODS["average"].judge(problem) == (None, pytest.approx(np.mean(correct)))
        told_apart |= {pick for pick in expected.values() if pick is not None}
        assert set(expected) | {"average"} >= PRESENT_BEFORE
    assert len(told_apart) > 4


def test_a_rank_sum_with_a_confidence_is_the_selectors_own() -> None:
    for kind, group, answers in [*golden_problems(), *planted_problems()]:
        problem = GradedProblem(group, Rule().settle(kind), Marks(tuple(answers), (False,) * len(answers)))
        own = select(group, kind=kind, fusion="ranksum", confidence="likelihood").index  # type: ignore[arg-type]
        assert METHODS["rad+likelihood"].judge(problem).pick == own


def test_agents_are_scored_over_every_boundary(made: list[planted.PlantedGroup]) -> None:
    group = made[0].group
    problem = GradedProblem(group, Rule().settle("agent"), Marks(tuple(made[0].answers), (True,) * len(group)))
    assert METHODS["rad"].judge(problem).pick == select(group, kind="agent").index
    spec = spec_for("boundary", "agent", group.vocab)
    steps = [len(find_all(spec, rollout.token_ids, group.vocab)) for rollout in group.rollouts]
    assert METHODS["most-steps"].judge(problem).pick == steps.index(max(steps))


@pytest.mark.parametrize(
    ("answers", "truth", "first", "split"),
    [
        (["a", "b", "b", "a"], "a", 1.0, 1 / 2),
        (["b", "a", "a", "b"], "a", 0.0, 1 / 2),
        (["c", "a", "b"], "b", 0.0, 1 / 3),
        (["a", "b", "b", None], "b", 1.0, 1.0),
        (["a", "b", "b", None], "a", 0.0, 0.0),
        ([None, None], "a", 0.0, 0.0),
    ],
)
def test_a_tied_vote_is_scored_by_the_first_seen_and_by_expectation(
    answers: list[str | None], truth: str, first: float, split: float
) -> None:
    problem = problem_of(answers, truth=truth)
    assert METHODS["majority"].judge(problem).hit == first
    assert METHODS["majority-split"].judge(problem).hit == pytest.approx(split)


def test_the_likeliest_rollout_is_the_one_with_the_highest_mean() -> None:
    problem = problem_of(["a", "b", "c"], truth="b", likelihoods=[-2.0, -0.5, -0.5])
    assert METHODS["likelihood"].judge(problem) == (1, 1.0)


# -- access ----------------------------------------------------------------------------------------------------------

MAY_READ = {
    "routing": {"similarity", "selection", "setting", "group", "selected", "compared"},
    "logprobs": {"confidence", "likelihoods", "group"},
    "answers": {"answers", "behaviours", "setting"},
    "nothing": {"lengths", "steps"},
    "truth": {"correct"},
}


class Watched:
    """A problem that remembers what was asked of it."""

    def __init__(self, problem: GradedProblem) -> None:
        self._problem, self.names = problem, set[str]()

    def __len__(self) -> int:
        return len(self._problem)

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._problem, name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_reads_what_it_says_and_nothing_else(name: str, made: list[planted.PlantedGroup]) -> None:
    one, method = made[0], METHODS[name]
    answers = tuple(one.answers)
    marks = Marks(answers, tuple(answer == one.truth for answer in answers), behaviours=answers)
    watched = Watched(GradedProblem(one.group, Rule().settle(one.group.kind), marks))
    method.function(watched)  # type: ignore[arg-type]
    allowed = set().union(*(MAY_READ[what] for what in method.reads))
    assert watched.names - {"once"} <= allowed
    if name != "average":
        assert watched.names
