"""The committed result: what `radmoe evaluate --out FILE.json` said of the lab at full size, condensed to one small file.

It holds the tables by kind of answer, what was evaluated (with the checksum of every pool), by which command, when and with
which versions. Nothing is computed here. The file is part of this distribution.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from radmoe.errors import InputError
from radmoe.evaluation.render import visible_table
from radmoe.evaluation.table import Cell, Column, Pair, Row, Table
from radmoe.system.printing import json_text

COMMITTED = Path(__file__).parent.parent / "results" / "paper.json"
TABLES = ("kinds", "against")
LEFT_OUT = ("DeepConf", "RAD, marker only", "preset best+text")  # rows that the overview does without
VERDICTS = (
    "RAD is ",
    "RAD beats ",
    "A baseline ",
    "No difference ",
    "In these sentences ",
)  # how notes that compare begin (`kinds.sentences`)
LARGEST = 200_000  # bytes of the file
POOL_FIELDS = ("model", "dataset", "kind", "readout", "strict", "k", "kernel", "problems", "rollouts", "checksum")


@dataclass(frozen=True)
class Results:
    """Tables by kind of answer, and where they come from. `pools` has one entry per evaluated pool."""

    command: str
    date: str
    versions: dict[str, str]
    intervals: dict[str, Any]
    pools: tuple[dict[str, Any], ...]
    tables: dict[str, Table]

    def overview(self) -> Table:
        """The usual methods over all configurations by kind of answer, with the notes that say what follows.

        Data sets that another column adds up are left out. The first note says what a cell holds.
        """
        table = visible_table(self.tables["kinds"])
        *_, whole = table.by_section().values()
        titles = [column.title for column in table.columns]
        kept = [at for at, title in enumerate(titles) if "all code" not in titles or not title.startswith("code")]
        rows = [row for row in whole.rows if row.cells[0].value not in LEFT_OUT]
        return replace(
            whole,
            columns=tuple(table.columns[at] for at in kept),
            rows=tuple(replace(row, cells=tuple(row.cells[at] for at in kept)) for row in rows),
            notes=(table.notes[0], *(note for note in table.notes if note.startswith(VERDICTS))),
        )

    @property
    def scale(self) -> str:
        """How much was evaluated, in words."""
        sizes: dict[str, int] = {}
        for pool in self.pools:
            sizes[pool["dataset"]] = max(pool["problems"], sizes.get(pool["dataset"], 0))
        each = sorted({pool["rollouts"] // max(1, pool["problems"]) for pool in self.pools})
        configurations = len({pool["model"] for pool in self.pools})
        return (
            f"{configurations} configuration{'s' * (configurations != 1)}, {sum(sizes.values()):,} problems "
            f"({', '.join(f'{name} {size}' for name, size in sizes.items())}), {'-'.join(map(str, each))} rollouts of a "
            f"problem by a configuration: {sum(pool['rollouts'] for pool in self.pools):,} rollouts in all"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "date": self.date,
            "scale": self.scale,
            "versions": self.versions,
            "intervals": self.intervals,
            "pools": list(self.pools),
            "tables": [table.to_json() for table in self.tables.values()],
        }


def condense(path: Path, *, command: str, date: str) -> Results:
    """The results in a file that `radmoe evaluate --out FILE.json` wrote: six digits of every number, pools by name."""
    body = _load(path)
    try:
        pools = [
            {"pool": PurePath(pool["pool"]).name, **{key: pool[key] for key in POOL_FIELDS}} for pool in body["pools"]
        ]
        kept = [table for table in body["tables"] if table["key"] in TABLES]
    except (KeyError, TypeError, ValueError) as error:
        raise _unusable(path, error) from None
    return _results(path, body | {"command": command, "date": date, "pools": pools, "tables": _rounded(kept)})


def read_results(path: Path) -> Results:
    """The results in a file that `write_results` wrote."""
    return _results(path, _load(path))


def write_results(results: Results, path: Path) -> None:
    """Write a file for `read_results`: one line for every pool and every row of a table, so that changes can be read."""
    from radmoe.pool.files import write_atomic
    from radmoe.pool.schema import disk_errors

    lines = re.sub(
        r', (?=\{"(?:pool|key|section)": )', ",\n", json_text(results.to_json())
    )  # no quote stands bare in a text
    content = f"{lines}\n".encode()
    if len(content) > LARGEST:
        raise InputError(
            f"{path} would have {len(content):,} bytes, and at most {LARGEST:,} are published: evaluate fewer configurations"
        )
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def _load(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no {path}: make it with radmoe evaluate POOL... --out {path}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _unusable(path, error) from None
    if not isinstance(body, dict):
        raise _unusable(path, f"it holds a {type(body).__name__}")
    return body


def table_of(body: dict[str, Any]) -> Table:
    """The table that `Table.to_json` wrote. Intervals that stood in columns of their own stay with their cells."""
    return Table(
        body["key"],
        body["title"],
        tuple(map(Column, body["columns"])),
        tuple(Row(tuple(map(_cell, row["cells"])), row["section"]) for row in body["rows"]),
        tuple(body["notes"]),
        body["sections"],
    )


def _cell(body: dict[str, Any]) -> Cell:
    pair = body.get("pair")
    return Cell(**body | {"pair": None if pair is None else Pair(**pair)})


def _results(path: Path, body: dict[str, Any]) -> Results:
    try:
        tables = {table["key"]: table_of(table) for table in body["tables"]}
        if not all(tables[key].rows for key in TABLES) or not body["pools"]:
            raise ValueError("a table or the list of pools is empty")
        return Results(
            str(body["command"]),
            str(body["date"]),
            dict(body["versions"]),
            dict(body["intervals"]),
            tuple(body["pools"]),
            {key: tables[key] for key in TABLES},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, why: object) -> InputError:
    detail = repr(why) if isinstance(why, Exception) else why
    return InputError(f"{path} holds no results ({detail}): make it again with radmoe evaluate POOL... --out {path}")


def _rounded(value: Any) -> Any:
    """A JSON value with every float rounded to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
