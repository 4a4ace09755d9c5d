"""Captures and replays with a progress bar, and grading behind them: what `capture` and `demo` share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from radmoe.cli.common import console
from radmoe.errors import RadmoeError

if TYPE_CHECKING:
    from radmoe.capture import Captured, Plan, Progress
    from radmoe.engines.replay import Replayed
    from radmoe.problems import Problem


def capture_with_bar(plan: Plan, out: Path) -> Captured:
    """`capture_pool` with a bar over rollouts, problems done and tokens/s, on a terminal only."""
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    from radmoe.capture import capture_pool

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.fields['tokens'] / max(task.elapsed or 0, 1e-9):,.0f} tokens/s")

    screen = console(stderr=True)
    counts = TextColumn("{task.fields[problems]} problems")
    columns = (TextColumn("capturing"), BarColumn(), counts, Speed(), TimeRemainingColumn())
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("capturing", total=None, problems=f"0/{len(plan.problems)}", tokens=0)

        def advance(now: Progress) -> None:
            done = f"{now.problems}/{now.of_problems}"
            bar.update(work, completed=now.rollouts, total=now.of_rollouts, problems=done, tokens=now.tokens)

        return capture_pool(plan, out, progress=advance)


def replay_with_bar(
    source: Path, model: str, out: Path, options: dict[str, Any], replay_options: dict[str, Any]
) -> Replayed:
    """Replay a file or pool of rollouts through a model into a pool, with a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from radmoe.capture import Keep
    from radmoe.engines import EngineOptions, open_engine
    from radmoe.engines.replay import replay

    engine = open_engine("transformers", model, EngineOptions(**options))
    keep: Keep = replay_options.pop("keep")
    screen = console(stderr=True)
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("replaying", total=None)
        return replay(
            source,
            engine,
            out,
            profile=keep.profile(engine),
            weights=keep.weights,
            progress=lambda done, total: bar.update(work, completed=done, total=total),
            **replay_options,
        )


def graded_average(out: Path, problems: Mapping[str, Problem]) -> float | None:
    """Avg@N of a captured pool, or None, with a line on stderr, where it cannot be graded here."""
    from radmoe.grading import grade_pool

    try:
        return grade_pool(out, problems, jobs=2).average
    except RadmoeError as error:  # the rollouts are there: a sandbox that cannot run here must not hide them
        typer.echo(f"radmoe: not graded: {error}", err=True)
        return None
