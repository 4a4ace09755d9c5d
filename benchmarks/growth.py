"""How cost and memory grow with a pool: 100 to 100,000 problems of a few rollouts each, opened, and every problem selected
(with --select N about N of each pool, whose time stands for all).

    python -m benchmarks.growth [--most 100000] [--select N] [--picture docs/images/growth.png]

A shard of 100 planted problems is linked again and again, and the table of runs names its rollouts by other problems, so that the
largest pool takes little disk. Each pool is read by a process of its own, whose CPU time and peak memory are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from radmoe.pool import PoolWriter, Profile, files, open_pool, schema
from radmoe.pool.completion import write_manifest
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted

RECIPE = Planted(shape=RouterShape(12, 32, 4), problems=100, rollouts=4, tokens=30)
PROFILE = Profile(readouts=("delimiter@16",))
SIZES = (100, 1_000, 10_000, 100_000)
_READ = """
import json, re, sys, time
from pathlib import Path
from radmoe import open_pool, select
def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) / 1024
for group in open_pool(sys.argv[1]).groups(): select(group)
before, start = peak(), time.process_time()
pool = open_pool(sys.argv[2])
opened, held = time.process_time(), peak()
problems = pool.problems[:: max(1, len(pool.problems) // int(sys.argv[3]))]
picked = sum(select(pool.group(problem)).index is not None for problem in problems)
spent = (time.process_time() - opened) / len(problems) * len(pool.problems)
print(json.dumps({"problems": len(pool.problems), "selected": len(problems), "open_s": opened - start, "open_mb": held - before, "select_s": spent,
                  "select_mb": peak() - held, "picked": picked}))
"""  # VmHWM is read because ru_maxrss is inherited from this process


def first(path: Path) -> None:
    """A pool of one shard."""
    with PoolWriter(path, shape=RECIPE.shape, vocab=planted.vocab(), model="planted", profile=PROFILE) as writer:
        for made in planted.groups(RECIPE):
            for rollout in made.group.rollouts:
                writer.add(made.group.problem_id, rollout, kind=made.group.kind)


def repeated(source: Path, path: Path, copies: int) -> None:
    """A pool of as many shards, each of them linked to that of the source and named as other problems."""
    pool = open_pool(source)
    (shard,) = (shard.path for shard in pool.shards.values())
    table, tables = pool.runs(), []
    path.mkdir()
    for name in (schema.TOKENIZER_JSON, schema.VOCAB_TABLE):
        files.copy(source / name, path / name)
    for copy in range(copies):
        directory = path / schema.shard_name(copy)
        directory.mkdir()
        for file in shard.iterdir():
            files.copy(file, directory / file.name)
        names = pc.binary_join_element_wise(f"{copy:04d}", table["problem_id"], "-")
        numbers = pa.array([copy] * len(table), pa.int32())
        own = table.set_column(table.column_names.index("problem_id"), "problem_id", names)
        own = own.set_column(own.column_names.index("shard"), "shard", numbers)
        runs = pa.array(range(copy * len(table), (copy + 1) * len(table)), pa.int64())
        tables.append(own.set_column(own.column_names.index("run_id"), "run_id", runs))
    write_manifest(
        path, {name: value for name, value in pool.meta.items() if name != "crc32"}, pa.concat_tables(tables)
    )


def read(warm: Path, path: Path, most: int) -> dict[str, Any]:
    """What a process that has selected from a small pool needs for this one, by about `most` of its problems."""
    environment = os.environ | {"RADMOE_MEMORY_LIMIT": "64G"}  # a table of this size is refused unless it is trusted
    command = [sys.executable, "-c", _READ, str(warm), str(path), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout))


def draw(rows: list[dict[str, Any]], target: Path) -> None:
    """Seconds and megabytes by the number of problems, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    cost, memory = figure.subplots(1, 2)
    problems = [row["problems"] for row in rows]
    cost.plot(problems, [row["select_s"] for row in rows], "o-", label="select every problem")
    cost.plot(problems, [row["open_s"] for row in rows], "o-", label="open the pool")
    memory.plot(problems, [row["select_mb"] for row in rows], "o-", label="select every problem")
    memory.plot(problems, [row["open_mb"] for row in rows], "o-", label="open the pool")
    for axes, title in ((cost, "CPU seconds"), (memory, "MB of memory added")):
        axes.set(xscale="log", xlabel="problems", title=title)
        axes.legend(frameon=False)
    cost.set_yscale("log")
    memory.set_yscale("symlog", linthresh=1)
    memory.set_ylim(bottom=0)
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument(
        "--select", type=int, default=SIZES[-1], help="of each pool so many problems, evenly, stand for all"
    )
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "one"
        first(source)
        print("| problems | open, CPU s | + MB | selected | all, CPU s | + MB | ms per problem |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for problems in (size for size in SIZES if size <= options.most):
            path = Path(scratch) / f"pool-{problems}"
            repeated(source, path, problems // RECIPE.problems)
            row = read(source, path, options.select)
            rows.append(row)
            cells = [
                f"{row['open_s']:.2f}",
                f"{row['open_mb']:.0f}",
                f"{row['select_s']:.2f}",
                f"{row['select_mb']:.1f}",
            ]
            each = 1e3 * row["select_s"] / row["problems"]
            print(f"| {row['problems']:,} | " + " | ".join(cells) + f" | {each:.2f} |", flush=True)
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
