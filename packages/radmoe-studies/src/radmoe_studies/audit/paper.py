"""The paper's published figures, as printed: one CSV per table in `radmoe_studies.published`, named by its label."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from radmoe.errors import InputError
from radmoe_studies import published

Row = Mapping[str, str]

POOLS = {"well-posed": ("math", "gpqa"), "math": ("math",), "gpqa": ("gpqa",), "code": ("code",)}


@dataclass(frozen=True)
class Config:
    """One of the ten model configurations, under the names the tables give it."""

    family: str
    variant: str
    group: str  # tab:dc, tab:dc-fusion
    model: str  # tab:per-model, tab:diversity

    @property
    def name(self) -> str:
        return f"{self.family} {self.variant}"

    @property
    def thinks(self) -> bool:
        """One of the eight "thinking-class" configurations: all but the two Instruct models."""
        return self.variant != "Inst"


@dataclass(frozen=True)
class Paper:
    """Every table by its label; `prose` holds figures of captions and text by a short name."""

    tables: Mapping[str, tuple[Row, ...]]
    about: Mapping[str, str]

    def rows(self, table: str, /, **match: str) -> list[Row]:
        return [row for row in self.tables[table] if all(row[k] == v for k, v in match.items())]

    def row(self, table: str, /, **match: str) -> Row:
        rows = self.rows(table, **match)
        if len(rows) != 1:
            raise InputError(f"tab:{table} has {len(rows)} rows with {match}, not one: the data files are damaged")
        return rows[0]

    def prose(self, name: str) -> str:
        """A figure of a caption or the text, as printed."""
        return self.row("prose", id=name)["value"]

    @property
    def configs(self) -> list[Config]:
        return [Config(**row) for row in self.tables["configs"]]

    def family(self, name: str) -> list[Config]:
        return [c for c in self.configs if c.family == name]

    def columns(self, pool: str) -> dict[str, int]:
        """The datasets of a pool and how many problems each has."""
        return {r["column"]: int(r["problems"]) for r in self.tables["datasets"] if r["pool"] in POOLS[pool]}

    def with_figure(self, table: str, column: str, value: str, /, **match: str) -> Paper:
        """A copy with one figure changed, to see what the audit says of it."""
        old = self.row(table, **match)
        rows = tuple({**r, column: value} if r is old else r for r in self.tables[table])
        return replace(self, tables={**self.tables, table: rows})


@cache
def load() -> Paper:
    """The paper as published."""
    tables = {}
    for file in sorted(published.tables().iterdir(), key=lambda f: f.name):
        if file.name.endswith(".csv"):
            lines = file.read_text(encoding="utf-8").splitlines()
            tables[file.name.removesuffix(".csv")] = tuple(csv.DictReader(lines))
    about = {row["label"]: row["about"] for row in tables.pop("tables")}
    return Paper(tables, about)
