"""What `capture` and `demo` share: plans from options, captures with a progress bar, and the grading after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import GoldNotFound, InputError, RadmoeError
from radmoe.system.printing import bar, say

if TYPE_CHECKING:
    from radmoe.capture import Captured, Plan, Progress
    from radmoe.engines import EngineOptions
    from radmoe.problems import Question
    from radmoe.selection.layers import Layers
    from radmoe.system.cluster import Crew


def plan_for(
    task: str | None = None,
    data: Path | None = None,
    model: str | None = None,
    *,
    kind: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    style: str | None = None,
    **settings: Any,
) -> Callable[[], Plan]:
    """Check questions and style, and return what builds the plan of a capture, with its engine, here or in a worker."""
    from radmoe.engines.models import shipped_models
    from radmoe.problems import load_questions
    from radmoe.types import check_kind

    shipped = shipped_models().get(model or "")
    if style is not None and shipped and shipped.styles and style not in shipped.styles:
        raise InputError(f"{model} has no style {style!r}: use one of {', '.join(shipped.styles)}")
    own_kind = None if kind is None else check_kind(kind)
    questions, recorded = load_questions(task, data, kind=own_kind, seed=seed, limit=limit)
    return partial(_build_plan, questions, path_everywhere(model), recorded, seed, style=style, **settings)


def path_everywhere(model: str | None) -> str | None:
    """The absolute path of a model's directory, because workers have other current directories; a name as it is."""
    return str(Path(model).absolute()) if model and Path(model).exists() else model


def _build_plan(
    questions: Sequence[Question],
    model: str | None,
    task: str | None,
    seed: int,
    *,
    engine: str = "transformers",
    options: EngineOptions | None = None,
    sampling: dict[str, Any] | None = None,
    weights: bool = True,
    readouts: tuple[str, ...] | None = None,
    layers: Layers = None,
    part: tuple[int, int] | None = None,
    **plan: Any,
) -> Plan:
    from radmoe.capture import Plan, sampling_for
    from radmoe.engines import open_engine
    from radmoe.engines.kept_rows import profile_for

    opened = open_engine(engine, model, options)
    sampled = sampling_for(opened, seed=seed, **(sampling or {}))
    profile = profile_for(opened, weights=weights, readouts=readouts, layers=layers)
    made = Plan(questions, opened, sampled, profile, task=task, weights=weights, **plan)
    return made if part is None else made.part(*part)


def capture_with_bar(
    make_plan: Callable[[], Plan], out: Path, crew: Crew | None = None, *, cpus: int | None = None
) -> Captured:
    """Run `capture_pool`, or let a cluster capture, with a bar that shows rollouts, finished problems and tokens per second."""
    from radmoe.capture import capture_pool
    from radmoe.system.cluster import cluster

    plan = None if crew is not None else make_plan()
    began = time.monotonic()
    with bar("capturing") as update:

        def advance(now: Progress) -> None:
            speed = now.tokens / max(time.monotonic() - began, 1e-9)
            note = f"{now.problems} of {now.of_problems} problems, {speed:,.0f} tokens/s"
            if crew is not None:
                note += f", {now.workers} of {crew.workers} workers"
            update(now.rollouts, now.of_rollouts, note=note)

        if plan is not None:
            return capture_pool(plan, out, progress=advance)
        assert crew is not None
        captured: Captured = cluster(crew.on).capture(make_plan, out, crew, cpus=cpus, progress=advance)
    for line in captured.given_up:
        say(f"radmoe: {line}", err=True)
    return captured


def graded_average(out: Path, task: str | None, data: Path | None, seed: int) -> float | None:
    """Grade a captured pool and return its Avg@N.

    Returns None if its problems come without gold answers, or if it cannot be graded on this machine, which a line on
    stderr says.
    """
    from radmoe.grading import grade_pool
    from radmoe.problems.gold import load_problems

    try:
        return grade_pool(out, load_problems(task, data, seed=seed), jobs=2).average
    except GoldNotFound:
        return None
    except RadmoeError as error:  # the rollouts are there: neither bad tests nor a missing sandbox must hide them
        say(f"radmoe: not graded: {error}", err=True)
        return None


def summary_line(captured: Captured, average: float | None) -> str:
    """One line on what a capture did, with the share of right rollouts if it is known."""
    if average is None:
        return str(captured)
    n = captured.rollouts // captured.problems
    return f"{captured}, {average:.1%} right" + (f" (Avg@{n})" if captured.stopped is None else "")
