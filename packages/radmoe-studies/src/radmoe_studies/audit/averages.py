"""The two big tables: problem-weighted averages, gains over Avg@64, best marks, and floors that must agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.granularity import problems
from radmoe_studies.audit.paper import Config, Paper, Row
from radmoe_studies.audit.spans import Span, count, plus, read, total

SELECTORS = ("Cons@64", "DeepConf", "RAD", "RAD+DC")
COLUMNS = ("AIME24", "AIME25", "BRUMO25", "HMMT25", "GPQA", "Avg", "Code")


def checks(paper: Paper) -> Iterator[Check]:
    for family in dict.fromkeys(c.family for c in paper.configs):
        yield from _rows(paper, family)
        yield from _best(paper, family)
        yield from _family_floors(paper, family)
    for config in paper.configs:
        yield from _marker_only(paper, config)


def right(paper: Paper, row: Row, configs: int = 1) -> Span:
    """How many problems of a row's data set are right, over `configs` configurations.

    For Avg@64 this need not be a whole number.
    """
    n = configs * problems(paper, row["column"])
    return read(row["value"]) * (n / 100) if row["method"] == "Avg@64" else count(row["value"], n)


def accuracy(paper: Paper, row: Row, configs: int = 1) -> Span:
    """The accuracy of a row in percent, over `configs` configurations."""
    return right(paper, row, configs) * (100 / (configs * problems(paper, row["column"])))


def floor(paper: Paper, config: Config, column: str) -> Span:
    """Avg@64 of one configuration, which tab:marker-only prints only as accuracy less gain."""
    row = _cell(paper, config, "RAD", column)
    return accuracy(paper, row) - read(row["gain"])


def _rows(paper: Paper, family: str) -> Iterator[Check]:
    configs = len(paper.family(family))
    for method in ("Avg@64", *SELECTORS):
        rows, name = paper.rows("main", family=family, method=method), f"{family} {method}"
        yield _average(paper, "main", name, rows, configs)
        for row in rows:
            if row["gain"]:
                base = paper.row("main", family=family, method="Avg@64", column=row["column"])["value"]
                score = accuracy(paper, row, configs)
                how = f"{score.value:.2f} - {base}"
                yield compare("main", name, f"{row['column']} gain", row["gain"], score - read(base), how)


def _best(paper: Paper, family: str) -> Iterator[Check]:
    """Bold marks the best selector of a column."""
    for column in COLUMNS:
        rows = [r for r in paper.rows("main", family=family, column=column) if r["method"] != "Avg@64"]
        best = max(float(r["value"]) for r in rows)
        how = f"max({', '.join(r['value'] for r in rows)})"
        for value in sorted({r["value"] for r in rows if r["bold"] == "1"}):
            yield compare("main", family, f"{column} in bold", value, best, how)


def _family_floors(paper: Paper, family: str) -> Iterator[Check]:
    """Avg@64 does not depend on the readout, so both tables must have the same one."""
    for column in COLUMNS:
        floors = [floor(paper, c, column) for c in paper.family(family)]
        row = paper.row("main", family=family, method="Avg@64", column=column)
        how = f"({plus(floors, '.2f')}) / {len(floors)}"
        mean = total(floors) / len(floors)
        yield compare("main", f"{family} Avg@64", column, row["value"], mean, how, "floors of tab:marker-only")


def _marker_only(paper: Paper, config: Config) -> Iterator[Check]:
    table, well = "marker-only", paper.columns("well-posed")
    for method in ("RAD", "RAD+DC"):
        rows = paper.rows(table, family=config.family, variant=config.variant, method=method)
        yield _average(paper, table, f"{config.name} {method}", rows, 1)
    for column in COLUMNS:  # both rows of a configuration have the same floor
        row, base = _cell(paper, config, "RAD+DC", column), floor(paper, config, column)
        score = accuracy(paper, row)
        how = f"{score.value:.2f} - {base.value:.2f}"
        source = "the floor of the RAD row"
        yield compare(table, f"{config.name} RAD+DC", f"{column} gain", row["gain"], score - base, how, source)
    row = _cell(paper, config, "RAD", "Avg")
    score, base = accuracy(paper, row), total(floor(paper, config, c) * n for c, n in well.items()) / sum(well.values())
    how = f"{score.value:.2f} - {base.value:.2f}"
    source = "the mean floor of the five datasets"
    yield compare(table, f"{config.name} RAD", "Avg gain", row["gain"], score - base, how, source)


def _average(paper: Paper, table: str, name: str, rows: Sequence[Row], configs: int) -> Check:
    cell = {r["column"]: r for r in rows}
    correct = [right(paper, cell[c], configs) for c in paper.columns("well-posed")]
    n = configs * problems(paper, "Avg")
    return compare(table, name, "Avg", cell["Avg"]["value"], total(correct) * (100 / n), f"100 ({plus(correct)}) / {n}")


def _cell(paper: Paper, config: Config, method: str, column: str) -> Row:
    return paper.row("marker-only", family=config.family, variant=config.variant, method=method, column=column)
