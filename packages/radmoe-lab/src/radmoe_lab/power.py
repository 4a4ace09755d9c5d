"""What a pilot says about the test that follows it: `python -m radmoe_lab.power measure FILE.npz ... --out pilot.npz`, then `show pilot.npz`.

`measure` grades files of `radmoe_lab.sample` and applies the methods of a registered test to the matrices beside them. It keeps what each
method's pick is worth on each problem, a few kilobytes. `show` prints what the tasks look like, and how many problems each
comparison needs for a power of .8: a difference of its smallest effect, or equality within a margin where there is no difference.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import RadmoeError
from radmoe.grading.answers import extract
from radmoe.selection.kernels import knn_density, levels, ranks
from radmoe.system.printing import say
from radmoe.types import Kind
from radmoe_lab.archive.pack import graded
from radmoe_lab.archive.source import texts
from radmoe_lab.matrices import read_matrices, square
from radmoe_lab.models import model_named
from radmoe_lab.sample import FINISH_REASONS, read_sampled
from radmoe_lab.tasks import task_named
from radmoe_lab.tasks.maths import LETTERS
from radmoe_lab.tokenizer import fast_tokenizer

K, BEST_K = 10, 20  # neighbours of the paper's preset, and of `best` at N = 64
CBW = "cbw-128"  # DeepConf's window, about as large a part of the budget as the paper's 2,048 of 32,768
Z_POWER, Z_TEST, Z_ONE_SIDED, Z_HALF_POWER = 0.8416, 1.96, 1.6449, 1.2816

Floats = NDArray[np.float64]

# method: readout, neighbours, what is added
METHODS: dict[str, tuple[str, int, str]] = {
    "RAD": ("delimiter@16", K, ""),
    "RAD binary": ("delimiter@16 binary", K, ""),
    "RAD+DC": ("delimiter@16", K, "conf50"),
    "marker": ("delimiter@marker", K, ""),
    "marker+DC": ("delimiter@marker", K, "conf50"),
    "pre-delim": ("pre-delim@16", K, ""),
    "whole answer": ("delimiter@span", BEST_K, ""),
    "every token": ("all", BEST_K, ""),
    "every token binary": ("all binary", BEST_K, ""),
    "best": ("delimiter@span", BEST_K, "likelihood"),
    "RAD + likelihood": ("delimiter@16", K, "likelihood"),
    "pre-delim + likelihood": ("pre-delim@16", K, "likelihood"),
    "every token + likelihood": ("all", BEST_K, "likelihood"),
    "so at 256": ("trajectory:so*@16 budget=256", K, ""),
    "so at 512": ("trajectory:so*@16 budget=512", K, ""),
    "so at 1024": ("trajectory:so*@16 budget=1024", K, ""),
}

# test of item 2: the two methods, the smallest effect in points (a margin where the claim is that they are level)
TESTS: tuple[tuple[str, str, str, float, bool], ...] = (
    ("(a) best - likelihood", "best", "likelihood", 2, False),
    ("(b) RAD - likelihood", "RAD", "likelihood", 2, False),
    ("(b) RAD - majority", "RAD", "majority", 2, False),
    ("(b) RAD level with majority", "RAD", "majority", 1, True),
    ("(c) RAD+DC level with majority", "RAD+DC", "majority", 1, True),
    ("(d) marker - half of RAD's lift", "marker", "half of RAD", 1, False),
    ("(e) kernels level", "RAD", "RAD binary", 1, True),
    ("(f) delimiter - So at 1,024", "RAD", "so at 1024", 2, False),
    ("(f) So at 256 - delimiter at 256", "so at 256", "RAD at 256", 2, False),
    ("(f) delta-anchor of the delimiter", "random located", "random", 1, False),
    ("(g) pre-delim - marker", "pre-delim", "marker", 2, False),
    ("(g) pre-delim + likelihood - likelihood", "pre-delim + likelihood", "likelihood", 2, False),
    ("whole answer - likelihood", "whole answer", "likelihood", 2, False),
    ("every token + likelihood - likelihood", "every token + likelihood", "likelihood", 2, False),
)


def measure(paths: Sequence[Path], out: Path, *, jobs: int) -> None:
    """Grade files of rollouts and write what each method's pick is worth on each problem, as a share of ties that are right."""
    found: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for path in (path for path in paths if not path.name.endswith(".matrices.npz")):
        sampled = read_sampled(path)
        settings = sampled.header["settings"]
        tokenizer = fast_tokenizer(model_named(settings["model"]).tokenizer)
        header, matrices = read_matrices(path.with_suffix(".matrices.npz"))
        for task, rollouts in sampled.tasks.items():
            packed = graded(sampled, task, tokenizer, jobs)
            problems = settings["problems"][task]
            sampling = settings["sampling"]
            name = f"{settings['model']} {settings['style']} {task} {sampling['temperature']}/{sampling['top_p']}"
            rows = []
            for p, problem in enumerate(problems):
                at = header["problems"].index(problem)
                view = _Problem(
                    packed.correct[p],
                    rollouts.logprobs[p] / rollouts.lengths[p],
                    _answers(packed, p, kind, tokenizer) if (kind := task_named(task).kind) != "code" else None,
                    {
                        read: (S, a)
                        for read, S, a in zip(
                            header["reads"], matrices["similarities"][at], matrices["anchors"][at], strict=True
                        )
                    },
                    matrices["confidences"][at, :, header["confidences"].index(CBW)],
                )
                rows.append(view.worth())
            arrays[name] = np.array([[row[method] for method in rows[0]] for row in rows], np.float32)
            found[name] = {"methods": list(rows[0]), "problems": problems, **_facts(rollouts, packed, sampled.header)}
            say(f"{name}: {len(problems)} problems, {packed.correct.mean():.1%} right")
    np.savez_compressed(out, header=np.frombuffer(json.dumps(found).encode(), np.uint8), **arrays)  # type: ignore[arg-type]


def _facts(rollouts: Any, packed: Any, header: dict[str, Any]) -> dict[str, Any]:
    lengths = rollouts.lengths
    return {
        "tokens": [float(lengths.mean()), *np.quantile(lengths, [0.1, 0.5, 0.9]).tolist()],
        "unfinished": float((rollouts.finish_reasons == FINISH_REASONS.index("length")).mean()),
        "right": float(packed.correct.mean()),
        "mixed": float((packed.correct.any(1) & ~packed.correct.all(1)).mean()),
        "speed": header["tokens_per_second"],
    }


def _answers(packed: Any, p: int, kind: Kind, tokenizer: Any) -> list[str | None]:
    """The answer of each rollout of a problem, as its label has it; None where there is none."""
    own = (extract(kind, text, integer=True, letters=LETTERS) for text in texts(packed, p, tokenizer))
    return [packed.answers.get((p, i), answer) for i, answer in enumerate(own)]


class _Problem:
    """The rollouts of a problem: labels, mean log-probabilities, answers, matrices and confidences."""

    def __init__(
        self, correct: Any, likelihood: Floats, answers: list[str | None] | None, S: dict[str, Any], cbw: Any
    ) -> None:
        self.correct, self.likelihood, self.answers, self.S, self.cbw = (
            correct.astype(float),
            likelihood,
            answers,
            S,
            cbw,
        )

    def worth(self) -> dict[str, float]:
        delimiter = self.S["delimiter@16"][1]
        located = np.flatnonzero(delimiter >= 0)
        random = float(self.correct.mean())
        out = {"random": random, "oracle": float(self.correct.max()), "located": len(located) / len(self.correct)}
        out["random located"] = float(self.correct[located].mean()) if len(located) > 1 else random
        for name, score in (("likelihood", self.likelihood), ("DC", self.cbw)):
            out[name] = float(self.correct[located[np.argmax(score[located])]]) if len(located) > 1 else random
        out["majority"] = self._majority(random)
        out |= {name: self.pick(*method)[0] for name, method in METHODS.items()}
        out["half of RAD"] = random + (out["RAD"] - random) / 2
        early = np.flatnonzero((delimiter >= 0) & (delimiter + 16 <= 256))
        out["RAD at 256"] = self.pick(*METHODS["RAD"], among=early)[0]
        out["located at 256"] = float(len(early) > 1)
        out["so located at 256"] = float((self.S["trajectory:so*@16 budget=256"][1] >= 0).sum() > 1)
        out["kernels differ"] = float(self.pick(*METHODS["RAD"])[1] != self.pick(*METHODS["RAD binary"])[1])
        S = square(self.S["delimiter@16"][0], len(self.correct))[np.ix_(located, located)]
        if len(located) > 2 and self.cbw[located].std() > 0 and (density := knn_density(S, K)).std() > 0:
            out["r density confidence"] = float(np.corrcoef(density, self.cbw[located])[0, 1])
        else:
            out["r density confidence"] = float("nan")
        return out

    def pick(self, read: str, k: int, added: str, among: NDArray[Any] | None = None) -> tuple[float, int]:
        """Whether the pick is right, and which it is; the mean of all and -1 where fewer than two rollouts are located."""
        pairs, anchors = self.S[read]
        members = np.flatnonzero(anchors >= 0) if among is None else among
        if len(members) < 2:
            return float(self.correct.mean()), -1
        if added == "conf50":
            members = np.sort(members[np.argsort(-self.cbw[members], kind="stable")[: (len(members) + 1) // 2]])
        S = square(pairs, len(self.correct))[np.ix_(members, members)]
        score = ranks(levels(knn_density(S, k), k))
        if added == "likelihood":
            score = score + ranks(self.likelihood[members])
        best = int(members[int(np.argmax(score))])
        return float(self.correct[best]), best

    def _majority(self, otherwise: float) -> float:
        if self.answers is None or not (counts := Counter(answer for answer in self.answers if answer is not None)):
            return otherwise
        top = max(counts.values())
        first = [answer for answer, count in counts.items() if count == top]
        return float(
            np.mean(
                [np.mean([c for c, a in zip(self.correct, self.answers, strict=True) if a == one]) for one in first]
            )
        )


def needed(difference: Floats, effect: float, *, level: bool) -> int:
    """The number of problems for a power of .8, from the differences per problem in points."""
    z = Z_ONE_SIDED + Z_HALF_POWER if level else Z_TEST + Z_POWER
    return int(np.ceil((z * difference.std(ddof=1) / effect) ** 2))


def show(path: Path) -> None:
    with np.load(path) as file:
        found = json.loads(bytes(file["header"]))
        arrays = {name: file[name].astype(float) for name in found}
    for name, facts in found.items():
        column = _columns(found, arrays, name)
        mean, *quantiles = facts["tokens"]
        say("")
        say(
            f"{name}: {len(arrays[name])} problems, {mean:.0f} tokens ({', '.join(f'{q:.0f}' for q in quantiles)} at .1, .5, .9), "
            f"{facts['unfinished']:.1%} unfinished, {facts['mixed']:.0%} of problems mixed, {facts['speed']:,.0f} tokens/s"
        )
        shown = [
            m
            for m in facts["methods"]
            if m not in ("half of RAD", "r density confidence") and not ("code" in name and m == "majority")
        ]
        say(
            "; ".join(f"{m} {100 * column(m).mean():.1f}" for m in shown)
            + f"; r density confidence {_mean(column('r density confidence')):.2f}"
        )
    for task in ("code", "math", "choice"):
        for sampling in sorted({name.split()[-1] for name in found}):
            names = [name for name in found if f"long-{task} {sampling}" in name]
            if names:
                _tests(task, sampling, names, found, arrays)


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _columns(found: dict[str, Any], arrays: dict[str, Floats], name: str) -> Callable[[str], Floats]:
    methods: list[str] = found[name]["methods"]
    return lambda method: arrays[name][:, methods.index(method)]


def _tests(task: str, sampling: str, names: list[str], found: dict[str, Any], arrays: dict[str, Floats]) -> None:
    """A line for each test over the configurations that have the same problems: the difference, its interval and the problems it needs."""
    for line in (
        "",
        f"{task} at {sampling}, {', '.join(names)}",
        "",
        "| test | difference | sd | problems for power .8 |",
        "| --- | ---: | ---: | ---: |",
    ):
        say(line)
    shared = sorted(set.intersection(*(set(found[name]["problems"]) for name in names)))
    for label, one, other, effect, level in TESTS:
        if task == "code" and "majority" in (one, other):
            continue
        per = []
        for name in names:
            column, at = _columns(found, arrays, name), [found[name]["problems"].index(problem) for problem in shared]
            per.append(100 * (column(one) - column(other))[at])
        difference = np.mean(per, axis=0)
        half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
        what = f"within {effect:g}" if level else f"{effect:g} points"
        say(
            f"| {label} | {difference.mean():+.1f} [{difference.mean() - half:+.1f}, {difference.mean() + half:+.1f}] "
            f"| {difference.std(ddof=1):.0f} | {needed(difference, effect, level=level):,} ({what}) |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m radmoe_lab.power", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="grade, and apply the methods")
    measuring.add_argument(
        "files", nargs="+", type=Path, metavar="FILE.npz", help="what radmoe_lab.sample --matrices wrote"
    )
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--jobs", type=int, default=2, help="programs judged at once")
    commands.add_parser("show", help="print tables").add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "measure":
            measure(options.files, options.out, jobs=options.jobs)
        else:
            show(options.file)
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
