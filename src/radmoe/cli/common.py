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
        show_default="as the pool says, else told from the markers that are there",
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
    """The kind of each of these problems; what was inferred is said on stderr."""
    from radmoe.kinds import settle_kinds

    settled = settle_kinds(pool, kind, where=str(pool.path), readout=readout, problems=problems)
    if settled.note:
        typer.echo(f"radmoe: {settled.note}", err=True)
    return settled.kinds


def limited(limit: int | None, items: list[T]) -> list[T]:
    if limit is not None and limit < 1:
        raise InputError(f"--limit must be at least 1, got {limit}")
    return items[:limit]


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """A bar on stderr for long work; none when nobody looks."""
    from rich.progress import track

    screen = console(stderr=True)
    yield from track(items, what, total=total, console=screen, transient=True, disable=not screen.is_terminal)


@contextmanager
def byte_progress(total: int, what: str) -> Iterator[Any]:
    """A bar over bytes; yields the function to tell of more."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)


def number(value: float) -> float | None:
    """A float for JSON: null where there is no number."""
    return None if math.isnan(value) else float(value)


def size(n: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"
