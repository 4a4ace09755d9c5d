"""Routing for rollouts that exist already, by replaying them through a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from radmoe.cli.common import console
from radmoe.cli.engines import open_engine
from radmoe.cli.rollouts import pool_profile

if TYPE_CHECKING:
    from radmoe.engines.replay.run import Replayed
    from radmoe.engines.torch.engine import TransformersEngine


def replay_pool(
    model: str,
    out: Path,
    source: Path,
    dtype: str | None,
    device: str,
    threads: int | None,
    ids_only: bool,
    readouts: str | None,
    task: str,
    layers: str | None,
    raw: bool,
    rounding: str | None,
) -> Replayed:
    """Replay a file or pool of rollouts into a pool, with a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from radmoe.engines.replay.run import replay

    engine = cast("TransformersEngine", open_engine("transformers", model, dtype=dtype, device=device, threads=threads))
    profile = pool_profile(engine, ids_only, readouts, task, layers)
    screen = console(stderr=True)
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("replaying", total=None)
        return replay(
            source,
            engine,
            out,
            name=model,
            profile=profile,
            weights=not ids_only,
            raw=raw,
            rounding=rounding,
            progress=lambda done, total: bar.update(work, completed=done, total=total),
        )


def said(done: Replayed) -> str:
    """What a replay did, in a line."""
    line = f"{done.pool}: {done.problems:,} problems, {done.rollouts:,} rollouts, {done.replayed:,} replayed now"
    if done.agreement is None:
        return line + "; replay is not capture, and there was none to compare with"
    return line + f"; {done.agreement.share:.1%} of expert sets as captured"
