"""The content of a `code` problem: two or three operations on a list of integers, then what is returned.

Two pipelines that give the same values everywhere are the same problem: a pipeline's signature, its values
on fixed probe lists, decides whether it is a training or a test problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from radmoe.problems import Test
from radmoe_lab.tasks.draw import between, chance, is_test, pick, seeded

Value = int | list[int] | None
MIN_TESTS = 8
THOROUGH_TESTS = 20


class PipelineOp(NamedTuple):
    """One operation; `c` is its constant, 0 where it has none."""

    name: str
    c: int = 0


FAMILIES: dict[str, tuple[PipelineOp, ...]] = {
    "filter": (
        PipelineOp("even"),
        PipelineOp("odd"),
        PipelineOp("positive"),
        *(PipelineOp("above", c) for c in range(1, 7)),
    ),
    "map": (
        *(PipelineOp("add", c) for c in range(1, 10)),
        *(PipelineOp("times", c) for c in range(2, 6)),
        PipelineOp("square"),
    ),
    "order": (PipelineOp("reverse"), PipelineOp("ascending"), PipelineOp("descending")),
    "cut": (PipelineOp("unique"), *(PipelineOp(name, k) for name in ("first", "last") for k in range(1, 5))),
    "scan": (PipelineOp("running"),),
    "end": (PipelineOp("sum"), PipelineOp("max"), PipelineOp("min"), PipelineOp("len")),
}
KEEP = PipelineOp("list")  # the end that returns the list itself
FAMILY = {op: family for family, ops in FAMILIES.items() for op in ops}
_WEIGHTS = ("filter",) * 3 + ("map",) * 4 + ("order",) * 2 + ("cut",) * 2 + ("scan",)


class Pipeline(NamedTuple):
    """Operations in order; the last is an end (`sum`, `max`, `min`, `len`, or the list itself)."""

    ops: tuple[PipelineOp, ...]

    def __call__(self, xs: Sequence[int]) -> Value:
        """The value for a list; None where it is not defined, such as the largest of no numbers."""
        value = list(xs)
        for op in self.ops[:-1]:
            value = apply(op, value)
        return finish(self.ops[-1], value)

    def states(self, xs: Sequence[int]) -> list[list[int]]:
        """The list after each operation but the end."""
        out = [list(xs)]
        for op in self.ops[:-1]:
            out.append(apply(op, out[-1]))
        return out[1:]


def apply(op: PipelineOp, xs: list[int]) -> list[int]:
    name, c = op
    if name == "add":
        return [x + c for x in xs]
    if name == "times":
        return [x * c for x in xs]
    if name == "square":
        return [x * x for x in xs]
    if name == "even":
        return [x for x in xs if x % 2 == 0]
    if name == "odd":
        return [x for x in xs if x % 2]
    if name in ("above", "positive"):
        return [x for x in xs if x > c]
    if name == "reverse":
        return xs[::-1]
    if name in ("ascending", "descending"):
        return sorted(xs, reverse=name == "descending")
    if name == "unique":
        return list(dict.fromkeys(xs))
    if name == "first":
        return xs[:c]
    if name == "last":
        return xs[-c:]
    return list(accumulate(xs))


def finish(end: PipelineOp, xs: list[int]) -> Value:
    if end.name == "list":
        return xs
    if end.name == "sum":
        return sum(xs)
    if end.name == "len":
        return len(xs)
    if not xs:
        return None
    return max(xs) if end.name == "max" else min(xs)


def draw_list(rng: Random, low: int, high: int) -> list[int]:
    """A list of `low` to `high` small integers, some of them negative, and in some lists one of them twice."""
    xs = [between(rng, -9, -1) if chance(rng, 0.2) else between(rng, 0, 12) for _ in range(between(rng, low, high))]
    if len(xs) > 2 and chance(rng, 0.5):
        xs[-1] = xs[0]
    return xs


_PROBES = tuple(draw_list(seeded("probes", i), 3, 9) for i in range(24))


@lru_cache(maxsize=1 << 17)
def signature(pipeline: Pipeline) -> str:
    """The values of a pipeline on the probe lists, as text."""
    return repr([pipeline(xs) for xs in _PROBES])


def draw_pipeline(rng: Random, *, test: bool) -> Pipeline:
    """Draw a pipeline in which every operation matters, from the test problems or from the training problems."""
    while True:
        ops = [pick(rng, FAMILIES[pick(rng, _WEIGHTS)]) for _ in range(2 if chance(rng, 0.4) else 3)]
        ops.append(KEEP if chance(rng, 0.45) else pick(rng, FAMILIES["end"]))
        pipeline = Pipeline(tuple(ops))
        if ops.count(PipelineOp("square")) < 2 and _all_matter(pipeline) and is_test(signature(pipeline)) == test:
            return pipeline


def _all_matter(pipeline: Pipeline) -> bool:
    whole = signature(pipeline)
    ops = pipeline.ops
    return all(signature(Pipeline(ops[:i] + ops[i + 1 :])) != whole for i in range(len(ops) - 1))


def rivals(pipeline: Pipeline, slot: int) -> list[Pipeline]:
    """The pipelines with another operation of the same family at `slot` whose values differ."""
    ops, whole = pipeline.ops, signature(pipeline)
    others = (Pipeline((*ops[:slot], op, *ops[slot + 1 :])) for op in FAMILIES[FAMILY[ops[slot]]] if op != ops[slot])
    return [other for other in others if signature(other) != whole]


def examples(rng: Random, pipeline: Pipeline, against: Sequence[Pipeline]) -> list[list[int]] | None:
    """Draw two lists on which the pipeline's value is defined and not empty, and which distinguish it from all those in
    `against`.

    None if a few attempts do not find them.
    """
    for _ in range(12):
        lists = [draw_list(rng, 3, 5) for _ in range(2)]
        values = [pipeline(xs) for xs in lists]
        if any(value in ([], None) for value in values) or lists[0] == lists[1]:
            continue
        if all(any(other(xs) != value for xs, value in zip(lists, values, strict=True)) for other in against):
            return lists
    return None


def draw_tests(rng: Random, pipeline: Pipeline, *, thorough: bool) -> tuple[Test, ...]:
    """The hidden tests. `thorough` ones also tell this pipeline from every one that is a single change away."""
    tests: dict[str, Test] = {}

    def add(xs: list[int]) -> None:
        value = pipeline(xs)
        if value is not None:
            tests[repr(xs)] = ((xs,), value)

    add([])
    while len(tests) < (THOROUGH_TESTS if thorough else MIN_TESTS):
        add(draw_list(rng, 1, 9))
    if thorough:
        probes = [(xs, value) for xs in _PROBES if (value := pipeline(xs)) is not None]
        for other in _neighbours(pipeline):
            if all(other(*args) == value for args, value in tests.values()):
                witness = next((xs for xs, value in probes if other(xs) != value), None)
                if witness is not None:
                    add(witness)
    return tuple(tests.values())


def _neighbours(pipeline: Pipeline) -> list[Pipeline]:
    """The pipelines with one operation changed, dropped, added or swapped with the next, or with another end."""
    body, end = pipeline.ops[:-1], pipeline.ops[-1]
    every = [op for family, ops in FAMILIES.items() if family != "end" for op in ops]
    bodies = [body[:i] + body[i + 1 :] for i in range(len(body))]
    bodies += [(*body[:i], op, *body[i + 1 :]) for i in range(len(body)) for op in every]
    bodies += [(*body[:i], op, *body[i:]) for i in range(len(body) + 1) for op in every]
    bodies += [(*body[:i], body[i + 1], body[i], *body[i + 2 :]) for i in range(len(body) - 1)]
    return [Pipeline((*other, end)) for other in bodies] + [Pipeline((*body, e)) for e in (KEEP, *FAMILIES["end"])]
