"""Does routing say less than the hidden states that it comes from? K-NN on both, over the same rows of the same rollouts.

    python -m benchmarks.hidden POOL... [--readout delimiter@span] [--limit 30]

For graded pools of the lab's models, made by `radmoe lab pools`. The model passes over every rollout again, one at a time: about 15 ms
each on one core. Printed is what a pick gains over a random rollout in points, with intervals that resample a problem with all its
configurations: routing, hidden states, and each added to likelihood by ranks.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from benchmarks.hidden_states import hidden_means, hidden_similarity
from radmoe.engines.prompts import encode, template_arguments
from radmoe.evaluation.pools import open_graded
from radmoe.evaluation.stats import cluster_bootstrap
from radmoe.pool.reader import manifest
from radmoe.problems import load_questions
from radmoe.selection.readout import windows
from radmoe.selection.rule import Rule
from radmoe.selection.selector import choose, confidence_of, similarity
from radmoe_lab.models import weights
from radmoe_lab.sample import open_lab_engine

SHARE = Fraction(20, 64)  # of the rollouts that count as neighbours, as in the preset best
METHODS = ("routing", "hidden states", "routing + likelihood", "hidden states + likelihood", "likelihood")


def gains(path: Path, readout: str, limit: int | None) -> tuple[list[str], list[list[float]], int]:
    """The problems of a pool, what each method gains on them, and the bytes of a row of hidden states."""
    run, (graded,) = manifest(path)["run"], open_graded(path)
    engine = open_lab_engine(run["model"], weights(run["model"]), "cpu")
    questions = {q.problem_id: q for q in load_questions(run["task"], seed=run["sampling"]["sampled"]["seed"])[0]}
    arguments = template_arguments(run["style"])
    names, rows, width = [], [], 0
    for problem in list(graded)[:limit]:
        kind, n = graded.kind, len(problem)
        setting = Rule(readout=readout, k=max(1, int(SHARE * n))).settle(kind)
        fused = replace(setting, fusion="ranksum", confidence="likelihood")
        prompt = encode(engine.tokenizer, questions[problem.problem_id].content, raw=False, **arguments)[1]
        routing, reading = similarity(problem.group, setting)
        located = np.flatnonzero(reading.located)
        means = []
        for i in located.tolist():
            tokens = problem.group.rollouts[i].token_ids
            spans = windows(readout, tokens, problem.group.vocab, kind)
            means.append(hidden_means(engine.model, prompt, tokens.tolist(), spans))
        hidden = hidden_similarity(means)
        sure = np.array([confidence_of(problem.group, i, fused) for i in located.tolist()])
        picks = [
            choose(problem.group, routing, reading, setting).index,
            choose(problem.group, hidden, reading, setting).index,
            choose(problem.group, routing, reading, fused, confidence=sure).index,
            choose(problem.group, hidden, reading, fused, confidence=sure).index,
            int(located[sure.argmax()]) if len(located) else None,
        ]
        rate = float(problem.correct.mean())
        names.append(problem.problem_id)
        rows.append([0.0 if pick is None else float(problem.correct[pick]) - rate for pick in picks])
        width = means[0].size * 4 if means else width
    return names, rows, width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", nargs="+", type=Path, metavar="POOL")
    parser.add_argument("--readout", default="delimiter@span")
    parser.add_argument("--limit", type=int, help="only the first problems of each pool")
    given = parser.parse_args()
    torch.set_num_threads(1)
    clusters: list[str] = []
    table: list[list[float]] = []
    for path in given.pools:
        names, rows, width = gains(path, given.readout, given.limit)
        clusters += names
        table += rows
        print(f"{path.name}: {len(names)} problems, {width:,} bytes of hidden states per row of routing", flush=True)
    values = np.array(table)
    print(f"{given.readout}, {len(values)} problems x configurations, gain over a random rollout in points:")
    for name, column in zip(METHODS, values.T, strict=True):
        own = cluster_bootstrap(100 * column, clusters)
        print(f"  {name:26} {own.estimate:+.1f} [{own.low:+.1f}, {own.high:+.1f}]")
    for title, first, second in (("routing - hidden states", 0, 1), ("the same with likelihood", 2, 3)):
        gap = cluster_bootstrap(100 * values[:, first], clusters, y=100 * values[:, second])
        print(f"  {title:26} {gap.estimate:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}], p = {gap.p:.3f}")


if __name__ == "__main__":
    main()
