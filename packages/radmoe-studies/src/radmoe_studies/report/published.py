"""The pages that show the committed results. They are written here, not by hand.

There is a result for each way of sampling. That at the paper's is in README.md's block and in packages/radmoe-studies/docs/results.md,
the hotter one in results-hot.md.

    python -m radmoe_studies.report.published                            # write all pages from the committed files
    python -m radmoe_studies.report.published --check                    # say which of them is not current
    python -m radmoe_studies.report.published --adopt RESULTS.json       # make an evaluation the committed result, and write its pages
    python -m radmoe_studies.report.published --adopt RESULTS.json --sampling hot
    python -m radmoe_studies.report.published --page RESULTS.json --out PAGE.md     # such a page of any evaluation

All but the last run in a checkout. RESULTS.json is what `radmoe evaluate POOL... --out RESULTS.json` wrote.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Committed:
    """A committed result by its paths in a checkout (`results.COMMITTED` is an installed one), and the command that makes it."""

    sampling: str
    file: Path
    page: Path
    command: str


README = Path("README.md")
_RESULTS, _DOCS = Path("packages/radmoe-studies/src/radmoe_studies/results"), Path("packages/radmoe-studies/docs")
COMMITTED = {
    one.sampling: one
    for one in (
        Committed("paper", _RESULTS / "paper.json", _DOCS / "results.md", "make reproduce SCALE=full"),
        Committed("hot", _RESULTS / "hot.json", _DOCS / "results-hot.md", "make reproduce SCALE=full SAMPLING=hot"),
    )
}
SHOWN = COMMITTED["paper"]  # in README.md
BEGIN = "<!-- results: written by python -m radmoe_studies.report.published -->"
END = "<!-- end of results -->"
HEADING = "## Did it help?"  # a README without a block gets it below this line


def readme_block(results: Results) -> str:
    """The overview of the results, and the sentences that follow from it, between the two markers."""
    overview = results.overview()
    reading, *verdicts = overview.notes
    return "\n\n".join(
        [
            BEGIN,
            f"{markdown_text(results.scale)}; `{results.command}`, {results.date}. {markdown_text(reading)}",
            markdown_table(overview),
            f"{_notes(tuple(verdicts))}\nEvery method, configuration, task and test is in [{SHOWN.page}]({SHOWN.page}).",
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


def pages(root: Path, one: Committed, results: Results) -> dict[Path, str]:
    """What the pages of a committed result should hold, by their paths in the checkout at `root`."""
    shown = {one.page: results_page(results)}
    if one is SHOWN:
        shown[README] = with_block((root / README).read_text(encoding="utf-8"), readme_block(results))
    return shown


def stale_pages(root: Path) -> list[str]:
    """One line for each page that is not up to date: it does not show its committed result, or shows one that does not exist."""
    return [line for one in COMMITTED.values() for line in _stale(root, one)]


def _stale(root: Path, one: Committed) -> list[str]:
    if not (root / one.file).exists():
        shown = [one.page] * (root / one.page).exists()
        if one is SHOWN and BEGIN in (root / README).read_text(encoding="utf-8"):
            shown.append(README)
        return [f"{page} shows results, but there is no {one.file}: restore it, or delete them" for page in shown]
    return [
        f"{page} does not show what {one.file} holds: run python -m radmoe_studies.report.published"
        for page, text in pages(root, one, read_results(root / one.file)).items()
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
    if options.adopt is None:
        changes: dict[Path, str] = {}
        for one in COMMITTED.values():
            if one is SHOWN or (options.root / one.file).exists():
                changes |= pages(options.root, one, read_results(options.root / one.file))
    else:
        one = COMMITTED[options.sampling]
        results = condense(options.adopt, command=options.command or one.command, date=today)
        changes = pages(
            options.root, one, results
        )  # before anything is written: README.md may have no place for the block
        write_results(results, options.root / one.file)
        say(f"wrote {options.root / one.file}")
    for page, text in changes.items():
        _write(options.root / page, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    parser.add_argument("--adopt", type=Path, metavar="RESULTS.json", help="make this evaluation the committed result")
    parser.add_argument(
        "--sampling", choices=tuple(COMMITTED), default=SHOWN.sampling, help="which committed result --adopt replaces"
    )
    parser.add_argument("--page", type=Path, metavar="RESULTS.json", help="write a page of this evaluation to --out")
    parser.add_argument("--out", type=Path, help="where --page is written")
    parser.add_argument(
        "--command", help=f"the command that makes the results again (default of --adopt: {SHOWN.command})"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: here)")
    try:
        _run(parser.parse_args())
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
