"""`radmoe calibrate` fits, on graded pools, the probability that a pick is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import Json, KindName, takes_rule, write_file
from radmoe.errors import InputError
from radmoe.system.printing import bar, console, json_text, say, say_json

if TYPE_CHECKING:
    from radmoe_studies.calibration.fit import Calibrated

HEADING = "Select"
EXAMPLES = (
    "radmoe calibrate graded/ --out sure.json",
    "radmoe calibrate pools/lab-qwen-thinking-*/ --out sure.json --report report/",
    "radmoe calibrate graded/ --preset best --out sure.json",
    "radmoe calibrate graded/ --check fresh/",
    "radmoe select new/ --calibration sure.json --abstain-below 0.7",
)


@takes_rule("preset", "readout", "k", "kernel", "fusion", "confidence", "compare", "confidence_window")
def command(
    pools: Annotated[
        list[Path], typer.Argument(metavar="POOL", help="Graded pools of one model and style.", show_default=False)
    ],
    rule: Any,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the calibration to this JSON file.", show_default="print only")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a page, CSV, JSON and a figure into this directory.")
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(
            "--check", help="A graded pool to measure on, which is not fitted; may repeat.", show_default="folds"
        ),
    ] = None,
    ship: Annotated[
        bool, typer.Option("--ship", help="Put it into the package, for this checkpoint, style and sampling.")
    ] = False,
    kind: KindName = None,
    folds: Annotated[int, typer.Option("--folds", help="Of the cross-validation.")] = 5,
    resamples: Annotated[int, typer.Option("--resamples", help="Bootstrap resamples of every interval.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the folds and the bootstrap.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit the probability that a pick is right, on graded pools.

    The pools are of one model, style and sampling, and the probability follows from a pick's density. Random subsets of the rollouts stand for smaller N, from 8 up. Prints whether the probabilities are calibrated on
    problems that were not fitted (pass or FAIL for each N), how they compare with the base rate of each task, and how
    many picks are wrong among the surest. The file is for radmoe select --calibration; outside of what was fitted it
    gives no number.
    """
    from radmoe.evaluation.render import visible_table
    from radmoe.evaluation.screen import NAME, show_table
    from radmoe_studies.calibration.fit import calibrate
    from radmoe_studies.calibration.tables import tables

    with bar("selecting") as update:
        calibrated = calibrate(
            pools,
            check=check or (),
            kind=kind,
            rule=rule,
            folds=folds,
            seed=seed,
            progress=update,
        )
    made = tables(calibrated, resamples=resamples, seed=seed)
    written = _write(calibrated, out, ship)
    if report is not None:
        from radmoe_studies.calibration.page import write_calibration

        typed = str(rule) if rule.to_json() else ""
        names = " ".join(pool.name for pool in pools)
        write_calibration(calibrated, made, report, f"radmoe calibrate {names} {typed}".strip())
        written.append(report)
    if as_json:
        body = {"calibration": calibrated.calibration.to_json(), "tables": [table.to_json() for table in made]}
        say_json(body | {"notes": list(calibrated.notes)})
        return
    screen = console()
    for table in made:
        show_table(visible_table(table, NAME), screen)
        screen.print()
    for note in calibrated.notes:
        screen.print(note, style="dim")
    for path in written:
        say(f"written to {path}", err=True)


def _write(calibrated: Calibrated, out: Path | None, ship: bool) -> list[Path]:
    """Write the calibration to the files that the options name, and return these files."""
    from radmoe.selection.calibration import SHELF, shelf_name

    files = [] if out is None else [out]
    if ship:
        origin = calibrated.calibration.origin
        if origin.checkpoint is None:
            raise InputError(
                "--ship needs the fingerprint of the weights, which these pools do not all record: capture them anew"
            )
        files.append(SHELF / shelf_name(origin))
    for file in files:
        write_file(file, json_text(calibrated.calibration.to_json(), indent=1) + "\n")
    return files
