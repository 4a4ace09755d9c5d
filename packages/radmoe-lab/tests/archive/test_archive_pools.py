"""Pools from packed rollouts: those that capture writes, up to rounding; resumed, enlarged, and never out of tolerance."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from radmoe.capture import Plan, capture_pool, sampling_for
from radmoe.engines import EngineOptions, open_engine
from radmoe.engines.base import Engine
from radmoe.errors import InputError, PoolMismatch
from radmoe.grading import grade_pool
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool, schema
from radmoe.problems import load_questions
from radmoe_lab.archive.files import Archive, ArchiveError, Packed, PackedTask, open_archive, write_archive
from radmoe_lab.archive.pools import EXPERT_SETS, MEDIAN_TOLERANCE, WORST_TOLERANCE, PoolBuilder, WantedPool
from radmoe_lab.archive.source import PackedSource

pytestmark = pytest.mark.slow

NAME = "lab-qwen-thinking"
TASKS = ("math-1", "code", "explain")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine("transformers", "lab-qwen", EngineOptions())


@pytest.fixture(scope="module")
def pools(archive_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pools of the archive. No test may change them."""
    out = tmp_path_factory.mktemp("pools")
    builder = PoolBuilder(open_archive(archive_path), out)
    for wanted in builder.wanted():
        builder.build(wanted)
    return out


def one_pool(archive: Archive, out: Path, task: str = "math-1", **options: int) -> tuple[PoolBuilder, WantedPool]:
    builder = PoolBuilder(archive, out)
    (wanted,) = builder.wanted([NAME], [task], **options)
    return builder, wanted


def altered(archive_path: Path, out: Path, alter: Callable[[Packed], Packed]) -> Archive:
    """An archive whose rollouts were altered, and packed as if nothing was."""
    archive = open_archive(archive_path)
    entry = {key: value for key, value in archive.configurations[NAME].items() if key not in ("sha256", "bytes")}
    write_archive(out, {NAME: (alter(archive.read(NAME)), entry)})
    return open_archive(out)


def with_task(rollouts: Packed, name: str, change: Callable[[PackedTask], PackedTask]) -> Packed:
    return replace(rollouts, tasks=rollouts.tasks | {name: change(rollouts.tasks[name])})


@pytest.mark.parametrize("task", TASKS)
def test_a_pool_is_what_capture_writes(task: str, pools: Path, engine: Engine, tmp_path: Path) -> None:
    questions, _ = load_questions(task, limit=3)
    settings = sampling_for(engine, max_tokens=160)
    capture_pool(Plan(questions, engine, settings, n=4, task=task, style="thinking"), tmp_path / "p")
    ours, theirs = open_pool(pools / f"{NAME}-{task}"), open_pool(tmp_path / "p")
    assert (ours.model, ours.task, ours.style, ours.kinds) == (theirs.model, theirs.task, theirs.style, theirs.kinds)
    columns = ["problem_id", "problem_index", "kind", "rollout_index", "tokens", "finish_reason", "text", "prompt"]
    order = [("problem_index", "ascending"), ("rollout_index", "ascending")]
    assert ours.runs(columns).sort_by(order) == theirs.runs(columns).sort_by(order)
    sets, weights, logprobs = [], [], []
    for mine, other in zip(ours.groups(), theirs.groups(), strict=True):
        for a, b in zip(mine.rollouts, other.rollouts, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids)
            sets.append((np.sort(a.expert_ids, -1) == np.sort(b.expert_ids, -1)).all(-1).mean())
            weights.append(np.abs(np.sort(a.weights, -1) - np.sort(b.weights, -1)).max())
            logprobs += [np.abs(a.sampled_logprobs - b.sampled_logprobs).max()]
            logprobs += [np.abs(a.topk_logprobs - b.topk_logprobs).max()]
    assert min(sets) > EXPERT_SETS
    assert np.median(weights) < 1e-3
    assert np.median(logprobs) < 1e-3
    assert ours.verify() == []


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_those_of_grading_the_pool(task: str, pools: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(pools / f"{NAME}-{task}", tmp_path / "p"))
    before = read_labels(copy)
    (copy / schema.LABELS).unlink()
    grade_pool(copy)
    assert read_labels(copy) == before
    assert sum(map(len, before.values())) == 12


def test_an_answer_that_is_packed_stands_even_if_it_is_empty(archive_path: Path, tmp_path: Path) -> None:
    def alter(rollouts: Packed) -> Packed:
        return with_task(rollouts, "math-1", lambda task: replace(task, answers={(0, 1): "", (0, 2): "1/2"}))

    builder, wanted = one_pool(altered(archive_path, tmp_path / "a", alter), tmp_path / "out", limit=1)
    builder.build(wanted)
    labels = read_labels(wanted.path)["math-1-000"]
    assert [labels[1].answer, labels[2].answer] == ["", "1/2"]


def test_the_record_names_the_packed_file(pools: Path, archive_path: Path) -> None:
    entry = open_archive(archive_path).configurations[NAME]
    pool = open_pool(pools / f"{NAME}-math-1")
    assert pool.sampling["source"] == {"archive": NAME, "sha256": entry["sha256"]}
    assert (pool.sampling["sampled"], pool.sampling["engine"]) == (entry["sampling"], "replay")


def test_a_pool_that_is_there_is_not_made_again(pools: Path, archive_path: Path) -> None:
    builder = PoolBuilder(open_archive(archive_path), pools)
    wanted = builder.wanted()
    assert [pool.path.name for pool in wanted] == [f"{NAME}-{task}" for task in TASKS]
    stamps = [(file, file.stat().st_mtime_ns) for file in sorted(pools.rglob("*"))]
    assert builder.estimate(wanted) == {}
    built = [builder.build(pool) for pool in wanted]
    assert [(pool.rollouts, pool.replayed) for pool in built] == [(12, 0)] * 3
    assert "12 rollouts are there already" in str(built[0])
    assert [(file, file.stat().st_mtime_ns) for file in sorted(pools.rglob("*"))] == stamps
    smaller = PoolBuilder(open_archive(archive_path), pools)
    assert [smaller.missing(pool) for pool in smaller.wanted(n=2, limit=1)] == [0, 0, 0]


def test_a_pool_grows_with_n_and_limit(pools: Path, archive_path: Path, tmp_path: Path) -> None:
    archive = open_archive(archive_path)
    for n, limit, new in ((2, 1, 2), (3, 2, 4), (4, 3, 6), (1, 1, 0)):
        builder, wanted = one_pool(archive, tmp_path, n=n, limit=limit)
        assert builder.missing(wanted) == new
        assert builder.build(wanted).replayed == new
    ours, whole = open_pool(tmp_path / f"{NAME}-math-1"), open_pool(pools / f"{NAME}-math-1")
    assert ours.problems == whole.problems
    assert [ours.rollout_indices(problem) for problem in ours.problems] == [[0, 1, 2, 3]] * 3
    assert [ours.texts(problem) for problem in ours.problems] == [whole.texts(problem) for problem in whole.problems]
    assert read_labels(ours.path) == read_labels(whole.path)
    assert ours.verify() == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}-math-1"]


def test_an_estimate_is_measured_on_rollouts_that_stay(archive_path: Path, tmp_path: Path) -> None:
    builder = PoolBuilder(open_archive(archive_path), tmp_path, threads=1)
    wanted = builder.wanted()
    left = builder.estimate(wanted)
    assert list(left) == wanted
    assert [remainder.rollouts for remainder in left.values()] == [
        4,
        12,
        12,
    ]  # two problems of the first were replayed, the second to measure it
    assert left[wanted[1]].tokens == wanted[1].tokens
    assert all(remainder.seconds > 0 and remainder.disk_bytes > 0 for remainder in left.values())
    assert not wanted[0].path.exists()
    built = builder.build(wanted[0])
    assert (built.rollouts, built.replayed) == (12, 12)
    grown = sum(file.stat().st_size for file in wanted[0].path.rglob("*"))
    assert 0.2 < left[wanted[0]].disk_bytes / grown < 2


def test_a_kill_in_the_middle_loses_nothing(pools: Path, archive_path: Path, tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from radmoe_lab.archive.files import open_archive
from radmoe_lab.archive.pools import PoolBuilder
builder = PoolBuilder(open_archive(Path({str(archive_path)!r})), Path({str(tmp_path)!r}))
(wanted,) = builder.wanted(tasks=["math-1"])
builder.build(wanted, lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 6 else None)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    archive = open_archive(archive_path)
    builder, wanted = one_pool(archive, tmp_path)
    assert not wanted.path.exists()
    assert builder.missing(wanted) == 6
    built = builder.build(wanted)
    assert (built.rollouts, built.replayed) == (12, 6)
    whole = open_pool(pools / f"{NAME}-math-1")
    for mine, other in zip(open_pool(wanted.path).groups(), whole.groups(), strict=True):
        for a, b in zip(mine.rollouts, other.rollouts, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids)
            assert np.allclose(a.sampled_logprobs, b.sampled_logprobs, atol=1e-2)
    assert read_labels(wanted.path) == read_labels(whole.path)


def shifted(by: float, places: slice) -> Callable[[Packed], Packed]:
    """Rollouts whose sums of log-probabilities are said to be others."""

    def alter(rollouts: Packed) -> Packed:
        logprobs = rollouts.tasks["math-1"].logprobs.copy()
        logprobs.ravel()[places] += by
        return with_task(rollouts, "math-1", lambda task: replace(task, logprobs=logprobs))

    return alter


def other_experts(rollouts: Packed) -> Packed:
    return replace(rollouts, expert_ids=(rollouts.expert_ids + 1) % 32)


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (shifted(2 * MEDIAN_TOLERANCE, slice(None)), r"log-probabilities differ from those of the sampling by 0\.002"),
        (shifted(1.1 * WORST_TOLERANCE, slice(5, 6)), r"the worst by 3\).*rounding does no more than 0\.001 \(3\)"),
        (shifted(np.nan, slice(5, 6)), "log-probabilities differ from those of the sampling by nan"),
        (other_experts, r"% of expert sets are those of the sampling, and at least 99\.90% must be"),
    ],
    ids=["every sum", "one sum", "no number", "experts"],
)
def test_a_replay_outside_its_tolerance_is_one_line_and_the_pool_is_left_unchecked(
    alter: Callable[[Packed], Packed], message: str, archive_path: Path, tmp_path: Path
) -> None:
    archive = altered(archive_path, tmp_path / "a", alter)
    for _ in range(2):  # the second time nothing is replayed, and it is said again
        builder, wanted = one_pool(archive, tmp_path / "out")
        with pytest.raises(ArchiveError, match=rf"{wanted.unchecked}: .*{message}.*The pool is left there") as error:
            builder.build(wanted)
        assert "\n" not in str(error.value)
        assert not wanted.path.exists()
        assert open_pool(wanted.unchecked).problems
        assert not (wanted.unchecked / schema.LABELS).exists()


@pytest.mark.parametrize("alter", [shifted(0.5, slice(5, 6)), shifted(MEDIAN_TOLERANCE / 2, slice(None))])
def test_what_rounding_may_do_is_tolerated(
    alter: Callable[[Packed], Packed], archive_path: Path, tmp_path: Path
) -> None:
    builder, wanted = one_pool(altered(archive_path, tmp_path / "a", alter), tmp_path / "out")
    assert builder.build(wanted).differences.tolerable


def test_bfloat16_is_outside_the_tolerance(archive_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder, wanted = one_pool(open_archive(archive_path), tmp_path)
    rounded = open_engine("transformers", "lab-qwen", EngineOptions(dtype="bfloat16"))
    monkeypatch.setattr(builder, "_engine", lambda model: rounded)
    with pytest.raises(ArchiveError, match=r"log-probabilities differ|expert sets"):
        builder.build(wanted)


def test_a_pool_of_other_rollouts_is_not_written_over(pools: Path, archive_path: Path, tmp_path: Path) -> None:
    archive = altered(archive_path, tmp_path / "a", shifted(1e-4, slice(None)))
    copy = Path(shutil.copytree(pools, tmp_path / "out"))
    stamps = [(file, file.stat().st_mtime_ns) for file in sorted(copy.rglob("*"))]
    builder, wanted = one_pool(archive, copy)
    for work in (lambda: builder.estimate([wanted]), lambda: builder.build(wanted)):
        with pytest.raises(PoolMismatch, match=r"was not made from these rollouts: use another --out, or remove it"):
            work()
    assert [(file, file.stat().st_mtime_ns) for file in sorted(copy.rglob("*"))] == stamps
    wanted.path.rename(wanted.unchecked)
    with pytest.raises(PoolMismatch, match="sha256"):
        builder.build(wanted)
    assert open_pool(wanted.unchecked).verify() == []


def test_a_pool_beside_an_unchecked_one_is_refused(pools: Path, archive_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(pools, tmp_path / "out"))
    builder, wanted = one_pool(open_archive(archive_path), copy)
    shutil.copytree(wanted.path, wanted.unchecked)
    with pytest.raises(PoolMismatch, match=r"both .*math-1 and .*math-1\.unchecked are there: remove one of them"):
        builder.build(wanted)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["lab-x"], []), {}, f"no configuration 'lab-x' is packed: use one of {NAME}"),
        (([], ["math-2"]), {}, "no rollouts of task 'math-2' are packed: use one of math-1, code, explain"),
        (([], ["aime_2024"]), {}, "no rollouts of task 'aime_2024' are packed"),
        (([], []), {"n": 5}, "-n must lie between 1 and 4, the rollouts that were sampled of a problem, got 5"),
        (([], []), {"n": 0}, "-n must lie between 1 and 4"),
        (([], []), {"limit": 0}, "--limit must be at least 1, got 0"),
    ],
)
def test_what_is_not_packed_cannot_be_wanted(
    arguments: tuple[list[str], list[str]],
    options: dict[str, int],
    message: str,
    archive_path: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=message):
        PoolBuilder(open_archive(archive_path), tmp_path).wanted(*arguments, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_other_weights_and_another_tokenizer_are_refused(file: str, archive_path: Path, tmp_path: Path) -> None:
    archive = open_archive(archive_path)
    archive.configurations[NAME]["checkpoint"][file] = "0" * 64
    with pytest.raises(ArchiveError, match=rf"^{file} of lab-qwen is not the one that sampled {NAME}: install"):
        PoolBuilder(archive, tmp_path).wanted()


def test_a_source_gives_as_many_rollouts_as_are_asked_for(archive_path: Path, engine: Engine) -> None:
    archive = open_archive(archive_path)
    packed = archive.read(NAME)
    source = PackedSource(archive, NAME, packed, "code", engine.tokenizer, n=3, limit=2)
    assert (source.problems, source.has_logprobs) == (["code-000", "code-001"], False)
    members = list(source.rollouts("code-001"))
    assert [one.rollout_index for one in members] == [0, 1, 2]
    assert [one.captured for one in members] == [None] * 3  # routing is packed of the first task's first problem only
    first = PackedSource(archive, NAME, packed, "math-1", engine.tokenizer)
    assert [one.captured is not None for problem in first.problems for one in first.rollouts(problem)] == [True] * 4 + [
        False
    ] * 8
