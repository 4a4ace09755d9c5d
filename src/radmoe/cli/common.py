"""Options and output shared by the commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from radmoe.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from radmoe.pool import Pool
    from radmoe.types import Kind

T = TypeVar("T")

PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help="A pool directory.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
KindName = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="math, choice, code, text or agent: which marker opens the answer.",
        show_default="as the pool records, else inferred from the rollouts' markers",
    ),
]
ReadoutName = Annotated[
    str | None,
    typer.Option(
        "--readout",
        help="Anchor and window: delimiter@16, delimiter@marker, boundary@16, trajectory:now@16, boundary@union.",
        show_default="delimiter@16; text: boundary@16; agent: boundary@union",
    ),
]
Neighbours = Annotated[int | None, typer.Option("--k", help="Neighbours in the density.", show_default="10; agent: 4")]
Kernel = Annotated[
    str | None, typer.Option("--kernel", help="weighted or binary Jaccard.", show_default="weighted; agent: binary")
]


def settled_kinds(pool: Pool, kind: str | None, readout: str | None, problems: list[str]) -> dict[str, Kind]:
    """The kind of each of these problems. If one was inferred, a line on stderr says so."""
    from radmoe.kinds import settle_kinds

    kinds, note = settle_kinds(pool, kind, where=str(pool.path), readout=readout, problems=problems)
    if note:
        typer.echo(f"radmoe: {note}", err=True)
    return kinds


def limited(limit: int | None, items: list[T]) -> list[T]:
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, got {limit}")
    return items[:limit]


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Iterate with a progress bar on stderr, which appears only on a terminal."""
    from rich.progress import track

    screen = console(stderr=True)
    yield from track(items, what, total=total, console=screen, transient=True, disable=not screen.is_terminal)


@contextmanager
def byte_progress(total: int, what: str) -> Iterator[Any]:
    """A progress bar over bytes. Yields a function that takes the number of bytes done since its last call."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)


def number(value: float) -> float | None:
    """A float for JSON; None, which JSON writes as null, where it is NaN."""
    return None if math.isnan(value) else float(value)


def size(n: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"
