"""The pages that show the committed result: README.md's block, and packages/radmoe-studies/docs/results.md. They are written here, not by hand.

    python -m radmoe_studies.report.published                            # write both from the committed file
    python -m radmoe_studies.report.published --check                    # say which of them is not current
    python -m radmoe_studies.report.published --adopt RESULTS.json       # make an evaluation the committed result, and write both
    python -m radmoe_studies.report.published --page RESULTS.json --out PAGE.md     # such a page of any evaluation

All but the last run in a checkout. RESULTS.json is what `radmoe evaluate POOL... --out RESULTS.json` wrote.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from radmoe.errors import InputError, RadmoeError
from radmoe.evaluation.kinds import LEGEND, note_on_tests
from radmoe.evaluation.render import markdown_table, markdown_text, visible_table
from radmoe.evaluation.table import Table
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.system.printing import say
from radmoe_studies.report.results import Results, condense, read_results, write_results

README, PAGE = Path("README.md"), Path("packages/radmoe-studies/docs/results.md")
COMMITTED = Path(
    "packages/radmoe-studies/src/radmoe_studies/results/full.json"
)  # in a checkout; `results.COMMITTED` is the installed one
BEGIN = "<!-- results: written by python -m radmoe_studies.report.published -->"
END = "<!-- end of results -->"
HEADING = "## Did it help?"  # a README without a block gets it below this line
FULL = "make reproduce SCALE=full"


def readme_block(results: Results) -> str:
    """The overview of the results, and the sentences that follow from it, between the two markers."""
    overview = results.overview()
    reading, *verdicts = overview.notes
    return "\n\n".join(
        [
            BEGIN,
            f"{markdown_text(results.scale)}; `{results.command}`, {results.date}. {markdown_text(reading)}",
            markdown_table(overview),
            f"{_notes(tuple(verdicts))}\nEvery method, configuration, task and test is in [{PAGE}]({PAGE}).",
            END,
        ]
    )


def results_page(results: Results) -> str:
    """All tables: everything first, then each configuration and family, then the pools that they are made from."""
    methods, baselines = (visible_table(results.tables[key]) for key in ("kinds", "against"))
    by_section, tests = methods.by_section(), baselines.by_section()
    *others, whole = by_section
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    parts = [
        "# Results",
        f"{markdown_text(results.scale)}. `{results.command}` makes them again. Evaluated on {results.date} with "
        f"{markdown_text(versions)}; {results.intervals['resamples']:,} resamples for each 95% interval. This page is written by "
        "`python -m radmoe_studies.report.published`; docs/evaluate.md says how methods and tests are defined.",
        "## All configurations" if others else f"## {markdown_text(whole)}",
        *_section(by_section[whole], tests[whole], methods.notes, LEGEND),
    ]
    for name in others:
        parts += [f"## {markdown_text(name)}", *_section(by_section[name], tests[name])]
    return "\n\n".join([*parts, "## What was evaluated", _pools(results)]) + "\n"


def with_block(text: str, block: str) -> str:
    """A README with this block in place of the one it has, or else below the heading that asks for it."""
    if BEGIN in text:
        before, _, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not end:
            raise InputError(f"{README} has a line {BEGIN} and no line {END} after it: add that, or delete the block")
        return before + block + after
    heading = f"\n{HEADING}\n"
    if heading not in text:
        raise InputError(f"{README} has neither a line {BEGIN} nor a heading {HEADING!r}: add one of them")
    return text.replace(heading, f"{heading}\n{block}\n", 1)


def pages(root: Path, results: Results) -> dict[Path, str]:
    """What the two pages should hold, by their paths in the checkout at `root`."""
    readme = (root / README).read_text(encoding="utf-8")
    return {README: with_block(readme, readme_block(results)), PAGE: results_page(results)}


def stale_pages(root: Path) -> list[str]:
    """One line for each page that is not up to date: it does not show the committed result, or shows one that does not exist."""
    if not (root / COMMITTED).exists():
        shown = [README] * (BEGIN in (root / README).read_text(encoding="utf-8")) + [PAGE] * (root / PAGE).exists()
        return [f"{page} shows results, but there is no {COMMITTED}: restore it, or delete them" for page in shown]
    return [
        f"{page} does not show what {COMMITTED} holds: run python -m radmoe_studies.report.published"
        for page, text in pages(root, read_results(root / COMMITTED)).items()
        if not (root / page).exists() or (root / page).read_text(encoding="utf-8") != text
    ]


def _section(methods: Table, baselines: Table, notes: tuple[str, ...] = (), legend: str = "") -> list[str]:
    """The two tables of a section, with the test that the p-values of this section come from."""
    parts = [markdown_table(methods), _notes(notes), f"{baselines.title}:", markdown_table(baselines)]
    return [part for part in [*parts, _notes((*[legend] * bool(legend), note_on_tests(baselines.rows)))] if part]


def _notes(notes: tuple[str, ...]) -> str:
    return "\n".join(f"{markdown_text(note)}  " for note in notes)


def _pools(results: Results) -> str:
    titles = ("pool", "kind", "problems", "rollouts", "readout", "k", "kernel", "checksum")
    lines = [titles, ("---", "---", "---:", "---:", "---", "---:", "---", "---")]
    for pool in results.pools:
        cells = (pool[title] for title in titles[:-1])
        lines.append((*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells), pool["checksum"][:16]))
    return "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines)


def _write(path: Path, text: str) -> None:
    with disk_errors(path):
        write_atomic(path, text.encode())
    say(f"wrote {path}")


def _run(options: argparse.Namespace) -> None:
    today = datetime.now(UTC).date().isoformat()
    if options.page is not None:
        if options.out is None:
            raise InputError("--page needs --out FILE.md: say where the page shall be written")
        command = options.command or f"radmoe evaluate POOL... --out {options.page.name}"
        _write(options.out, results_page(condense(options.page, command=command, date=today)))
        return
    if options.check:
        stale = stale_pages(options.root)
        for line in stale:
            say(line, err=True)
        raise SystemExit(1 if stale else 0)
    committed = options.root / COMMITTED
    if options.adopt is None:
        changes = pages(options.root, read_results(committed))
    else:
        results = condense(options.adopt, command=options.command or FULL, date=today)
        changes = pages(options.root, results)  # before anything is written: README.md may have no place for the block
        write_results(results, committed)
        say(f"wrote {committed}")
    for page, text in changes.items():
        _write(options.root / page, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    parser.add_argument("--adopt", type=Path, metavar="RESULTS.json", help="make this evaluation the committed result")
    parser.add_argument("--page", type=Path, metavar="RESULTS.json", help="write a page of this evaluation to --out")
    parser.add_argument("--out", type=Path, help="where --page is written")
    parser.add_argument("--command", help=f"the command that makes the results again (default of --adopt: {FULL})")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: here)")
    try:
        _run(parser.parse_args())
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
