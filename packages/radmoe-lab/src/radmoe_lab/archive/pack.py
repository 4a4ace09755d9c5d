"""Grade and pack sampled rollouts: `python -m radmoe_lab.archive.pack FILE.npz ... --out DIR`.

The files are those of `radmoe_lab.sample`, of each configuration one, or several with other tasks. Each is graded here, in the sandbox where answers are
programs, and packed beside what DIR holds already. The manifest is written last.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from radmoe.errors import InputError, RadmoeError
from radmoe.grading.grade import answer_key, grade_texts
from radmoe.problems.gold import load_problems
from radmoe.system.printing import say
from radmoe_lab.archive.files import Packed, PackedTask, write_archive
from radmoe_lab.archive.source import check_checkpoint, texts
from radmoe_lab.models import model_named
from radmoe_lab.sample import Sampled, read_sampled
from radmoe_lab.tokenizer import fast_tokenizer

_Made = tuple[Packed, dict[str, Any]]

_COPIED = ("command", "device", "batch_size", "versions", "router", "tokens", "seconds")  # of the sampling, as it said


def pack(paths: Sequence[Path], out: Path, *, jobs: int = 2) -> None:
    """Grade and pack files of rollouts into a directory. `jobs` programs are judged at once."""
    configurations: dict[str, _Made] = {}
    for path in paths:
        sampled = read_sampled(path)
        settings = sampled.header["settings"]
        name = f"{settings['model']}-{settings['style']}"
        check_checkpoint(settings["model"], settings["checkpoint"], str(path))
        tokenizer = fast_tokenizer(model_named(settings["model"]).tokenizer)
        tasks = {task: graded(sampled, task, tokenizer, jobs) for task in sampled.tasks}
        packed = Packed(tasks, np.sort(sampled.expert_ids, -1).astype(np.uint8))
        made = packed, _entry(sampled, packed)
        configurations[name] = _joined(configurations[name], made, path) if name in configurations else made
        marks = np.concatenate([task.correct.ravel() for task in tasks.values()])
        say(f"{name}: {len(marks):,} rollouts graded, {marks.mean():.1%} of them right")
    write_archive(out, configurations)
    sizes = [file.stat().st_size for file in out.glob("*.npz.xz")]
    say(f"{out}: {len(sizes)} configurations in {sum(sizes):,} bytes")


def graded(sampled: Sampled, task: str, tokenizer: Any, jobs: int) -> PackedTask:
    """Grade the rollouts of a task and return them with their labels."""
    settings, rollouts = sampled.header["settings"], sampled.tasks[task]
    problem_ids = settings["problems"][task]
    known = load_problems(task, seed=settings["sampling"]["seed"])
    keys = {problem_id: answer_key(known[problem_id]) for problem_id in problem_ids}
    ungraded = PackedTask(
        rollouts.tokens,
        rollouts.lengths.astype(np.uint16),
        rollouts.finish_reasons,
        rollouts.logprobs.astype(np.float32),
        np.zeros(rollouts.lengths.shape, bool),
        {},
    )
    spelled = [
        (problem_id, index, text)
        for place, problem_id in enumerate(problem_ids)
        for index, text in enumerate(texts(ungraded, place, tokenizer))
    ]
    labels = grade_texts(keys, spelled, jobs=jobs)
    correct = np.array([label.correct for label in labels]).reshape(rollouts.lengths.shape)
    places = np.ndindex(*rollouts.lengths.shape)
    answers = {
        (place[0], place[1]): label.answer
        for place, label, (problem_id, _, text) in zip(places, labels, spelled, strict=True)
        if label.answer is not None and label.answer != keys[problem_id].extract(text)
    }
    return replace(ungraded, correct=correct, answers=answers)


def _entry(sampled: Sampled, packed: Packed) -> dict[str, Any]:
    """The manifest's entry for a configuration: how it was sampled, and its results."""
    settings = sampled.header["settings"]
    return (
        {name: settings[name] for name in ("model", "style", "n", "sampling", "dtype", "checkpoint")}
        | {name: sampled.header[name] for name in _COPIED}
        | {
            "tasks": {
                task: {
                    "problems": len(each.lengths),
                    "rollouts": each.lengths.size,
                    "tokens": len(each.tokens),
                    "right": int(each.correct.sum()),
                }
                for task, each in packed.tasks.items()
            }
        }
    )


def _joined(one: _Made, other: _Made, path: Path) -> _Made:
    """Join two parts of a configuration. The routing of the first is kept."""
    (packed, entry), (more, added) = one, other
    alike = all(entry[name] == added[name] for name in ("n", "sampling", "dtype", "checkpoint"))
    if not alike or set(packed.tasks) & set(more.tasks):
        raise InputError(
            f"{path} is of the same configuration as another of the files: they must have other tasks and the same settings"
        )
    sums = {name: entry[name] + added[name] for name in ("tokens", "seconds")}
    sums |= {"tasks": entry["tasks"] | added["tasks"], "command": f"{entry['command']} && {added['command']}"}
    return replace(packed, tasks=packed.tasks | more.tasks), entry | sums


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m radmoe_lab.archive.pack", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.npz", help="what radmoe_lab.sample wrote")
    parser.add_argument("--out", type=Path, required=True, help="the directory of the packed files and their manifest")
    parser.add_argument("--jobs", type=int, default=2, help="programs judged at once")
    options = parser.parse_args(arguments)
    try:
        pack(options.files, options.out, jobs=options.jobs)
    except RadmoeError as error:
        say(f"radmoe: error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
