"""A data set becomes the pool that it was.

The directory may come from a stranger. Only the files that the layout names are opened, none before its checksum was compared with
radmoe.json, and what each claims is measured before memory is taken for it. Whatever is wrong is one line, and no pool is left.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from radmoe.errors import InputError, PoolError, RadmoeError
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import Pool, PoolWriter, Profile, documents, files, open_pool, pages, schema
from radmoe.pool.limits import check_claim
from radmoe.pool.schema import disk_errors
from radmoe.pool.tables import LABEL_FIELDS, read_table
from radmoe.types import Rollout, RouterShape, Step
from radmoe.vocab import Vocab
from radmoe_integrations.hub import layout

_NAME = re.compile(r"data/(rollouts|labels)-[0-9]{5}-of-[0-9]{5}\.parquet")
_ROWS = 16  # that are in memory at a time, beside the row group they are in
_VALUE_BYTES = 8
_WAY_OUT = "download it again, or ask whoever made it"


def import_hub(
    directory: str | Path, out: str | Path, *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Pool:
    """Make a pool of a data set that `export_pool` wrote, with its labels, and open it.

    `progress` is called with the number of rollouts done, and that of all. A failed import leaves nothing behind.
    """
    directory, out = Path(directory), files.place(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: give a new pool to import into")
    description = _description(directory)
    vocab = _vocab(directory, description)
    tables = {
        part: [directory / name for name in description["files"] if name.startswith(f"data/{part}-")]
        for part in ("rollouts", "labels")
    }
    labels = [row for path in tables["labels"] for row in read_table(path, LABEL_FIELDS, restore=_WAY_OUT).to_pylist()]
    with disk_errors(out):
        if files.in_store(out):
            _fill(out, description, vocab, tables["rollouts"], labels, progress)
            return open_pool(out)
        with files.appearing(out, "import") as made:
            _fill(made, description, vocab, tables["rollouts"], labels, progress)
    return open_pool(out)


def _description(directory: Path) -> dict[str, Any]:
    """Read radmoe.json, and check that every file that it lists has the checksum it gives."""
    path = directory / layout.DESCRIPTION
    if not files.exists(path):
        raise InputError(f"{directory} has no {layout.DESCRIPTION}: give a directory that radmoe export wrote, whole")
    description = documents.read_open(path)
    sound = description.get("layout") == layout.VERSION and "columns" in description
    sound = sound and all(type(description.get(name)) is bool for name in ("steps", "texts"))
    sound = sound and all(type(description.get(name)) is kind for name, kind in (("files", dict), ("provenance", list)))
    if not sound:
        raise InputError(
            f"{path} describes no data set of layout {layout.VERSION}: upgrade radmoe-integrations, or {_WAY_OUT}"
        )
    for name, entry in description["files"].items():
        if name != schema.TOKENIZER_JSON and not _NAME.fullmatch(name):
            raise InputError(f"{path} lists {name!r:.80}, which is no file of such a data set: {_WAY_OUT}")
        if not isinstance(entry, dict) or not entry.items() >= layout.entry(directory / name).items():
            raise InputError(f"{directory / name} is not the file that {layout.DESCRIPTION} lists: {_WAY_OUT}")
    return description


def _vocab(directory: Path, description: dict[str, Any]) -> Vocab:
    path = directory / schema.TOKENIZER_JSON
    if schema.TOKENIZER_JSON not in description["files"]:
        raise InputError(f"{directory} has no {schema.TOKENIZER_JSON}: {_WAY_OUT}")
    vocab = Vocab.from_json(files.read_bytes(path), where=str(path))
    if vocab.fingerprint != description["vocab"]:
        raise InputError(f"{path} is another vocabulary than {layout.DESCRIPTION} names: {_WAY_OUT}")
    return vocab


def _fill(
    out: Path,
    description: dict[str, Any],
    vocab: Vocab,
    paths: list[Path],
    labels: list[dict[str, Any]],
    progress: Callable[[int, int], None],
) -> None:
    run, provenance = description["run"], description["provenance"]
    writer = PoolWriter(
        out,
        shape=RouterShape(*(description[name] for name in ("layers", "experts", "top_k"))),
        vocab=vocab,
        model=run["model"],
        task=run["task"],
        style=run["style"],
        sampling=run["sampling"],
        profile=Profile.from_json(run["profile"]),
        provenance=provenance[0] if len(provenance) == 1 else {"shards": provenance},
    )
    done = 0
    with writer:
        total = sum(int(entry.get("rows", 0)) for entry in description["files"].values()) - len(labels)
        for path in paths:
            for row in _rows(path, layout.fields(description)):
                where = f"{path}, rollout {row['rollout_index']} of problem {row['problem_id']!r:.60}"
                try:
                    if row["problem_id"] is None or row["rollout_index"] is None:
                        raise InputError("it lacks its name")
                    _add(writer, row, description)
                except PoolError:
                    raise
                except (RadmoeError, ValueError, TypeError, AttributeError) as error:
                    raise InputError(f"{where}: {(str(error) or type(error).__name__).splitlines()[0]}") from None
                done += 1
                progress(done, total)
    if labels:
        _write_labels(out, labels)


def _add(writer: PoolWriter, row: dict[str, Any], description: dict[str, Any]) -> None:
    found = {name: row[name].reshape(-1, *shape) for name, (_, shape) in layout.arrays(description["columns"]).items()}
    prompt_ids, prompt_weights = (found.pop(name, None) for name in ("prompt_expert_ids", "prompt_weights"))
    steps, given = row.get("steps") or (), row.get("given")
    prompt = None
    if prompt_ids is not None:
        prompt = _whole(prompt_ids, writer), None if prompt_weights is None else _whole(prompt_weights, writer)
    writer.add(
        row["problem_id"],
        Rollout(
            **found,
            steps=tuple(
                Step(tuple(given[number]) if given else (), step["start"], step["kept"])
                for number, step in enumerate(steps)
            ),
        ),
        kind=row["kind"],
        rollout_index=row["rollout_index"],
        problem_index=row["problem_index"],
        text=row.get("text"),
        prompt=row.get("prompt"),
        finish_reason=row["finish_reason"],
        extra=None if row.get("extra") is None else json.loads(row["extra"]),
        prompt_routing=prompt,
    )


def _whole(routing: np.ndarray[Any, Any], writer: PoolWriter) -> np.ndarray[Any, Any]:
    """Routing with all layers of the model, of which a writer keeps those that are there."""
    layers = writer.profile.layers
    if layers is None:
        return routing
    whole = np.zeros((len(routing), writer.shape.layers, writer.shape.top_k), routing.dtype)
    whole[:, list(layers)] = routing
    return whole


def _write_labels(out: Path, labels: list[dict[str, Any]]) -> None:
    names = [(row["problem_id"], row["rollout_index"]) for row in labels]
    pool = open_pool(out)
    there = {(problem, index) for problem in pool.problems for index in pool.rollout_indices(problem)}
    if len(set(names)) < len(names) or not there.issuperset(names) or None in [row["correct"] for row in labels]:
        raise InputError(f"the labels are not of these rollouts, each once, with a verdict: {_WAY_OUT}")
    write_labels(out, [Label(**row) for row in labels])


def _rows(path: Path, fields: pa.Schema) -> Iterator[dict[str, Any]]:
    """The rows of a file of rollouts; numbers are arrays."""
    with files.open_file(path) as raw:
        try:
            size = raw.seek(0, os.SEEK_END)
            with pq.ParquetFile(pa.PythonFile(raw, "r")) as parquet:
                stored = parquet.schema_arrow
                for field in fields:
                    if stored.names.count(field.name) != 1 or stored.field(field.name).type != field.type:
                        raise InputError(f"{path} has no column {field.name} of type {field.type}: {_WAY_OUT}")
                leaves = list(pages.read_leaves(path, raw, parquet.metadata, fields.names, size))
                groups = parquet.metadata.num_row_groups
                for group in range(groups):  # each has as many leaves
                    values = sum(
                        leaf.values
                        for leaf in leaves[group * len(leaves) // groups : (group + 1) * len(leaves) // groups]
                    )
                    check_claim(path, f"{values:,} values in a row group", _VALUE_BYTES * values, size)
                for batch in parquet.iter_batches(_ROWS, columns=fields.names, use_threads=False):
                    for at in range(len(batch)):
                        yield {field.name: _value(batch[field.name][at], field.type) for field in fields}
        except RadmoeError:
            raise
        except Exception as error:  # whatever pyarrow makes of a forged file
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"{path} cannot be read ({reason}): {_WAY_OUT}") from None


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type) and value.is_valid:
        if value.values.null_count:
            raise InputError("it has a null among its numbers")
        return value.values.to_numpy()
    return value.as_py()
