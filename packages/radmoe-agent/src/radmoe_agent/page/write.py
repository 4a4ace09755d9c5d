"""The records and candidates of a directory as one HTML file, which a browser opens from disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from radmoe.errors import InputError
from radmoe.explorer import Assets, encode_index, page
from radmoe.pool import open_pool
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe_agent.candidates import POOL, read_candidates
from radmoe_agent.page.encode import encode_issue

PAGE, TITLE = "patches.html", "radmoe agent select"
STEPS = 50_000  # more steps in all, and the page has the texts of two trajectories of every issue


def write_page(
    directory: Path,
    records: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    verdicts: Mapping[tuple[str, int], bool] | None = None,
    tables: Sequence[Mapping[str, Any]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the page of the decisions that `records` are about, as `records.jsonl` has them.

    `directory` has their candidates and their pool. `verdicts` say what hidden tests said of a run, and `tables` are shown as the
    explorer's (docs/explorer.md). The file appears whole or not at all.
    """
    candidates, pool = read_candidates(directory), open_pool(directory / POOL)
    every_text = sum(one["steps"] or 0 for row in records for one in row["candidates"]) <= STEPS
    judged: dict[str, dict[int, bool]] = {}
    for (name, run), resolved in (verdicts or {}).items():
        judged.setdefault(name, {})[run] = resolved
    entries, blocks = [], []
    for done, row in enumerate(records):
        name = row["instance_id"]
        group = replace(pool.group(name), kind="agent") if name in pool.kinds else None
        encoded = encode_issue(row, candidates[name], group, verdicts=judged.get(name), every_text=every_text)
        entries.append(encoded.entry)
        blocks.append(encoded.block)
        if progress is not None:
            progress(done + 1, len(records))
    method = records[0]["method"] if records else ""
    index = encode_index(entries, methods=[{"name": method}], tables=tables, title=TITLE)
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        made = page(index, blocks, title=TITLE, more=_parts())
        write_atomic(out, lambda f: f.writelines(piece.encode() for piece in made))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records that `radmoe agent select` wrote. Raises an InputError where there are none."""
    if not path.is_file():
        raise InputError(f"there is no {path}: radmoe agent select writes it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _parts() -> Assets:
    folder = files("radmoe_agent.page")
    script, style = ((folder / name).read_text(encoding="utf-8") for name in ("issues.js", "issues.css"))
    return Assets(script, style)
