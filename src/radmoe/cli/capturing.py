"""What `capture` and `demo` share: plans from options, captures with a progress bar, and the grading after them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import GoldNotFound, InputError, RadmoeError
from radmoe.system.printing import bar, say

if TYPE_CHECKING:
    from radmoe.capture import Captured, Plan, Progress
    from radmoe.engines import EngineOptions
    from radmoe.selection.layers import Layers
    from radmoe.types import Kind


def plan_for(
    task: str | None,
    data: Path | None,
    model: str | None,
    *,
    kind: Kind | None = None,
    engine: str = "transformers",
    options: EngineOptions | None = None,
    limit: int | None = None,
    seed: int = 0,
    sampling: dict[str, Any] | None = None,
    style: str | None = None,
    weights: bool = True,
    readouts: tuple[str, ...] | None = None,
    layers: Layers = None,
    **plan: Any,
) -> Plan:
    """Build the plan of a capture. Questions and style are checked before a model is loaded."""
    from radmoe.capture import Plan, sampling_for
    from radmoe.engines import open_engine
    from radmoe.engines.kept_rows import profile_for
    from radmoe.engines.models import shipped_models
    from radmoe.problems import load_questions

    shipped = shipped_models().get(model or "")
    if style is not None and shipped and shipped.styles and style not in shipped.styles:
        raise InputError(f"{model} has no style {style!r}: use one of {', '.join(shipped.styles)}")
    questions, recorded_task = load_questions(task, data, kind=kind, seed=seed, limit=limit)
    opened = open_engine(engine, model, options)
    settings = sampling_for(opened, seed=seed, **(sampling or {}))
    profile = profile_for(opened, weights=weights, readouts=readouts, layers=layers)
    return Plan(questions, opened, settings, profile, task=recorded_task, style=style, weights=weights, **plan)


def capture_with_bar(plan: Plan, out: Path) -> Captured:
    """Run `capture_pool` with a progress bar that shows rollouts, finished problems and tokens per second."""
    from radmoe.capture import capture_pool

    began = time.monotonic()
    with bar("capturing") as update:

        def advance(now: Progress) -> None:
            speed = now.tokens / max(time.monotonic() - began, 1e-9)
            note = f"{now.problems} of {now.of_problems} problems, {speed:,.0f} tokens/s"
            update(now.rollouts, now.of_rollouts, note=note)

        return capture_pool(plan, out, progress=advance)


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
