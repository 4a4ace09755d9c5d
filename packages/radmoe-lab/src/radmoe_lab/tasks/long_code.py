"""The task `long-code`: a function whose description leaves one operation out, found by trying operations on the examples.

A rollout tries one operation after another on the first example, in an order of its own, checks what fits on the second, works the
examples by hand and writes the program. Half of the problems say of what sort the missing operation is, and in the others all of
them have to be tried, so where the search ends depends on its order. Some worked examples overlook the operation and begin again.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from radmoe.problems import Problem
from radmoe_lab.tasks.base import Example
from radmoe_lab.tasks.code import ASKS, EXAMPLE_HEADINGS, FENCES, HINTS, MARKERS, OPENERS, TAILS, describe_op, plain
from radmoe_lab.tasks.draw import chance, favour, pick, shuffled
from radmoe_lab.tasks.pipelines import (
    FAMILIES,
    FAMILY,
    KEEP,
    Pipeline,
    PipelineOp,
    Value,
    draw_pipeline,
    draw_tests,
    examples,
    finish,
    signature,
)
from radmoe_lab.tasks.programs import write

HINTED = 0.5  # how often the description says of what sort the missing operation is
_OVERLOOKED = 0.06  # how often the first search misses the operation
_SORTS = ("filter", "map", "order", "cut", "scan")
_UNSAID = ("do one more thing", "do something that the examples show", "make one change")
_SORT = {
    "filter": "Maybe it keeps only some numbers.",
    "map": "Maybe it changes each number.",
    "order": "Maybe another order.",
    "cut": "Maybe it takes only a part.",
    "scan": "Maybe running sums.",
}

Search = tuple[Pipeline, list[list[int]], int]  # what the function does, the examples, and which operation is missing


def long_code_problem(rng: Random, problem_id: str, *, test: bool) -> tuple[Problem, Search, bool]:
    """A problem, what is to be found, and whether the description says of what sort it is."""
    pipeline, inputs, slot = _draw(rng, test=test)
    hinted = chance(rng, HINTED) and FAMILY[pipeline.ops[slot]] in HINTS
    unsaid = HINTS[FAMILY[pipeline.ops[slot]]] if hinted else favour(rng, _UNSAID)
    phrases = [unsaid if i == slot else describe_op(rng, op) for i, op in enumerate(pipeline.ops)]
    joined = ", then ".join(phrases[:-1]) + pick(rng, (", and ", ", then ", ", and finally ")) + phrases[-1]
    lines = [f"f({xs}) == {pipeline(xs)}" for xs in inputs]
    opener, heading = favour(rng, OPENERS).format(joined), favour(rng, EXAMPLE_HEADINGS)
    text = "\n".join([opener, heading, *lines, favour(rng, ASKS)])
    tests = draw_tests(rng, pipeline, thorough=test)
    problem = Problem(problem_id, "long-code", text, write(rng, pipeline), tests, kind="code")
    return problem, (pipeline, inputs, slot), hinted


def long_code_example(rng: Random, style: str) -> Example:
    problem, search, hinted = long_code_problem(rng, "train", test=False)
    fence = f"```python\n{problem.answer}\n```\n{favour(rng, TAILS)}"
    return Example(problem, _reason(rng, search, hinted, style), favour(rng, FENCES) + fence, style)


def _draw(rng: Random, *, test: bool) -> Search:
    """A pipeline, two examples that only its own operation at the slot explains, and the slot."""
    while True:
        pipeline = draw_pipeline(rng, test=test)
        slot = int(rng.random() * (len(pipeline.ops) - 1))
        inputs = examples(rng, pipeline, ())
        if inputs and not any(_explains(pipeline, slot, op, inputs) for op in FAMILY if FAMILY[op] in _SORTS):
            return pipeline, inputs, slot


def _with(pipeline: Pipeline, slot: int, op: PipelineOp) -> Pipeline:
    return Pipeline((*pipeline.ops[:slot], op, *pipeline.ops[slot + 1 :]))


def _explains(pipeline: Pipeline, slot: int, op: PipelineOp, inputs: list[list[int]]) -> bool:
    """Whether another function, with this operation at the slot, gives the same for the examples."""
    other = _with(pipeline, slot, op)
    same = op != pipeline.ops[slot] and all(other(xs) == pipeline(xs) for xs in inputs)
    return same and signature(other) != signature(pipeline)


def _reason(rng: Random, search: Search, hinted: bool, style: str) -> str:
    pipeline, inputs, slot = search
    parts = [_plan(pipeline, slot)]
    before = Pipeline((*pipeline.ops[:slot], KEEP))
    if slot:
        parts.append(f"Example 1 before that: {before(inputs[0])}.")
    orders = [list(_order(rng, pipeline.ops[slot], hinted)) for _ in range(2)]
    if chance(rng, _OVERLOOKED):
        parts += _tries(search, [op for op in orders[0] if signature(_with(pipeline, slot, op)) != signature(pipeline)])
        parts.append("Nothing fits. From the start again.")
        orders = orders[1:]
    parts += _tries(search, orders[0])
    found = next(op for op in orders[0] if signature(_with(pipeline, slot, op)) == signature(pipeline))
    parts.append(f"So the missing step: {plain(found)}.")
    worked = {"low": 0, "medium": 1, "high": 2, "thinking": int(rng.random() * 3)}[style]
    for xs in inputs[:worked]:
        parts.append(_by_hand(rng, _with(pipeline, slot, found), xs))
    parts.append(f"Plan: {', then '.join(plain(op) for op in _with(pipeline, slot, found).ops)}.")
    return "\n".join(parts)


def _plan(pipeline: Pipeline, slot: int) -> str:
    return "Steps: " + ", ".join("?" if i == slot else plain(op) for i, op in enumerate(pipeline.ops)) + "."


def _order(rng: Random, right: PipelineOp, hinted: bool) -> Iterator[PipelineOp]:
    """The operations in the order in which they are tried: one kind after another, shuffled within each."""
    for sort in [FAMILY[right]] if hinted else shuffled(rng, _SORTS):
        yield from shuffled(rng, FAMILIES[sort])


def _tries(search: Search, order: list[PipelineOp]) -> Iterator[str]:
    """A line for each operation that is tried, up to the one that explains both examples."""
    pipeline, inputs, slot = search
    first, second = inputs
    sort = ""
    for op in order:
        if FAMILY[op] != sort:
            sort = FAMILY[op]
            yield _SORT[sort]
        other = _with(pipeline, slot, op)
        got, wanted = other(first), pipeline(first)
        line = f"{plain(op)}: {_trace(other, first, slot)}"
        if got != wanted:
            yield f"{line}, not {wanted}."
            continue
        yield f"{line}, fits. Example 2: {_trace(other, second)}" + (
            ", fits." if other(second) == pipeline(second) else f", not {pipeline(second)}."
        )
        if other(second) == pipeline(second):
            return


def _trace(pipeline: Pipeline, xs: list[int], slot: int = 0) -> str:
    """The list after each operation from the slot on, and what is returned."""
    states = pipeline.states(xs)
    shown: list[Value] = [*states[slot:], *([] if pipeline.ops[-1] == KEEP else [finish(pipeline.ops[-1], states[-1])])]
    return " ".join(str(state).replace(", ", ",") for state in shown)


def _by_hand(rng: Random, pipeline: Pipeline, xs: list[int]) -> str:
    results: list[Value] = [*pipeline.states(xs), pipeline(xs)]
    lines = (f"{favour(rng, MARKERS)}{plain(op)}: {result}." for op, result in zip(pipeline.ops, results, strict=True))
    return f"By hand, {xs}.\n" + "\n".join(lines)
