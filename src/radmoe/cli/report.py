"""`radmoe report` writes pools as one page, which a browser opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from radmoe.cli.common import KindName, size, takes_rule
from radmoe.errors import InputError
from radmoe.system.printing import bar, say

EXAMPLES = (
    "radmoe report pool/",
    "radmoe report pools/*/ --out report.html",
    "radmoe report pool/ --readout delimiter@16 --readout trajectory:so@16",
    "radmoe report pool/ --full-text --limit 20",
)


@takes_rule("k", "kernel")
def command(
    pools: Annotated[
        list[Path],
        typer.Argument(metavar="POOL", help="Pool directories, or those of an agent's runs.", show_default=False),
    ],
    rule: Any,
    out: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("report.html"),
    kind: KindName = None,
    readout: Annotated[
        list[str] | None,
        typer.Option(
            "--readout",
            help="A readout to show, such as trajectory:so@16; may be repeated. The first one decides the tables.",
            show_default="the kind's own, its marker alone, boundary@16",
        ),
    ] = None,
    full_text: Annotated[
        bool, typer.Option("--full-text", help="Keep all of long texts, not only their windows and their answer.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems of each pool.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes of the evaluation.", show_default="all cores")
    ] = None,
) -> None:
    """Write pools as one HTML page to look at.

    The page needs no server and no network. It has the evaluation's tables, and for every problem the agreement of its rollouts, a map of them, their texts with
    anchors, windows and log-probabilities, two of them side by side, and the experts that fired. Pools need no labels.
    """
    from radmoe.cli.evaluate import cores
    from radmoe.report.explorer import PageOptions, write_report

    if out.is_dir():
        raise InputError(f"--out {out} is a directory: name a file, such as {out / 'report.html'}")
    options = PageOptions(kind, tuple(readout or ()), rule, full_text, limit, cores(jobs))
    with bar("writing the page", "rollouts evaluated or written") as update:
        notes = write_report([_pool_of(path) for path in pools], out, options, progress=update)
    for note in notes:
        say(f"radmoe: {note}", err=True)
    say(f"{out}: {size(out.stat().st_size)}; open it in a browser")


def _pool_of(path: Path) -> Path:
    """The pool that a directory is, or that an agent's runs keep in it."""
    from radmoe.pool.schema import POOL_JSON

    inner = path / "pool"
    return inner if not (path / POOL_JSON).exists() and (inner / POOL_JSON).exists() else path
