"""From a pool on disk to what every method does on it, the cache, and processes."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ray_cluster
from planted_pools import write_pool
from pools import graded_pool, labels, registry_restored
from radmoe import select
from radmoe.errors import InputError
from radmoe.evaluation import GradedPool, build_report, cache, evaluate_pool, workers
from radmoe.evaluation.methods import METHODS, GradedProblem, Method
from radmoe.evaluation.methods.registry import score_method
from radmoe.evaluation.pools import NO_PICK, check_distinct
from radmoe.grading.labels import write_labels
from radmoe.pool import PoolWriter, Profile, merge_pools
from radmoe.selection.rule import Rule
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup


@pytest.fixture(scope="module")
def graded(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graded_pool(tmp_path_factory.mktemp("graded") / "pool", made, task="math-2", style="low")


def evaluate(path: Path, **options: Any) -> GradedPool:
    """An evaluated pool of one kind, without its cache."""
    (pool,) = evaluate_pool(path, **{"use_cache": False} | options)
    return pool


def plain(pool: GradedPool) -> dict[str, Any]:
    """What was measured, as numbers that can be compared."""
    return {
        part: {name: own if isinstance(own, str) else own.tolist() for name, own in values.items()}
        for part, values in pool.outcomes._asdict().items()
    }


def test_every_method_of_the_registry_is_measured(graded: Path) -> None:
    pool = evaluate(graded)
    on_request = {name for name in METHODS if "behaviour" in name.split("+")}
    measured = {name: method for name, method in METHODS.items() if name not in on_request}
    assert set(pool.outcomes.hits) == set(measured)
    assert set(pool.outcomes.picks) == {name for name, method in measured.items() if method.form != "draw"}
    assert set(pool.outcomes.missing) == on_request


def test_a_hit_is_whether_the_pick_is_right(graded: Path, made: list[PlantedGroup]) -> None:
    pool = evaluate(graded)
    for method, picks in pool.outcomes.picks.items():
        right = [one.answers[pick] == one.truth for one, pick in zip(made, picks, strict=True)]
        assert pool.outcomes.hits[method].tolist() == right, method


@pytest.mark.slow
def test_the_first_rollouts_are_evaluated_as_a_pool_of_their_own(
    graded: Path, made: list[PlantedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All methods and counts are as if nothing else had been sampled, in one process and in several."""
    monkeypatch.setattr(workers, "FEW", 0)
    few = [
        replace(
            one,
            group=replace(one.group, rollouts=one.group.rollouts[:7], rollout_indices=None),
            answers=one.answers[:7],
            texts=one.texts[:7],
        )
        for one in made
    ]
    alone = evaluate(graded_pool(tmp_path / "few", few, task="math-2", style="low"))
    for cut in (evaluate(graded, n=7), evaluate(graded, n=7, jobs=2)):
        assert {name: own.tolist() for name, own in cut.outcomes.picks.items()} == {
            n: own.tolist() for n, own in alone.outcomes.picks.items()
        }
        assert {name: own.tolist() for name, own in cut.outcomes.counts.items()} == {
            n: own.tolist() for n, own in alone.outcomes.counts.items()
        }
    assert cut.outcomes.counts["rollouts"].tolist() == [7] * len(made)


def test_the_number_of_rollouts_is_part_of_what_the_cache_is_asked_for(graded: Path) -> None:
    for _ in range(2):
        assert [evaluate(graded, use_cache=True, n=n).outcomes.counts["rollouts"][0] for n in (5, None)] == [5, 12]


def test_counts_are_those_of_the_labels_and_anchors(graded: Path, made: list[PlantedGroup]) -> None:
    pool = evaluate(graded)
    for at, one in enumerate(made):
        picked = select(one.group)
        votes = Counter(a for a in one.answers if a is not None)
        correct = np.array([a == one.truth for a in one.answers])
        expected = {
            "rollouts": 12,
            "right": correct.sum(),
            "answered": votes.total(),
            "plurality": max(votes.values()),
            "located": picked.located.sum(),
            "located_right": correct[picked.located].sum(),
            "basin": len(picked.basin),
        }
        assert {name: values[at] for name, values in pool.outcomes.counts.items()} == expected


def test_names_come_from_the_run_record_or_the_directory(
    graded: Path, made: list[PlantedGroup], tmp_path: Path
) -> None:
    pool = evaluate(graded)
    assert (pool.configuration, pool.dataset) == ("planted low", "math-2")
    assert evaluate(graded, dataset="mine").dataset == "mine"
    plain = evaluate(graded_pool(tmp_path / "folder", made))
    assert (plain.model, plain.family, plain.dataset) == ("planted", "planted", "folder")


def test_agents_are_read_at_every_boundary(made: list[PlantedGroup], tmp_path: Path) -> None:
    agents = [replace(one, group=replace(one.group, kind="agent")) for one in made]
    pool = evaluate(graded_pool(tmp_path / "agents", agents))
    assert (pool.setting.readout, pool.setting.k, pool.setting.kernel) == ("boundary@union", 4, "binary")
    assert pool.outcomes.picks["rad"].tolist() == [select(one.group).index for one in agents]
    assert pool.outcomes.missing["strict"] == "boundary@union has no marker-only form"


def test_the_window_of_confidence_is_a_parameter(graded: Path) -> None:
    """Planted rollouts have some 120 tokens: at the default window every scalar is the plain mean."""
    whole, short = evaluate(graded), evaluate(graded, rule=Rule(confidence_window=4))
    assert np.array_equal(whole.outcomes.picks["confident"], whole.outcomes.picks["self-certainty"])
    assert not np.array_equal(short.outcomes.picks["confident"], short.outcomes.picks["self-certainty"])
    assert (whole.setting.confidence_window, short.setting.confidence_window) == (2048, 4)
    with pytest.raises(InputError, match="window must be at least 1 token, got 0"):
        evaluate(graded, rule=Rule(confidence_window=0))


def test_a_pool_of_several_kinds_gives_records_for_each(made: list[PlantedGroup], tmp_path: Path) -> None:
    code = list(planted.groups(Planted(problems=3, rollouts=12, tokens=60, kind="code", seed=5)))
    code = [replace(one, group=replace(one.group, problem_id=f"code-{i}")) for i, one in enumerate(code)]
    path = graded_pool(tmp_path / "mixed", [made[0], code[0], made[1], *code[1:]], task="mixed")
    math, programs = evaluate_pool(path, use_cache=False)
    assert (math.dataset, programs.dataset) == ("mixed (math)", "mixed (code)")
    assert (math.setting.kind, programs.setting.kind) == ("math", "code")
    assert math.problem_ids == ("planted-0000", "planted-0001")
    assert programs.outcomes.picks["rad"].tolist() == [select(one.group).index for one in code]
    table = build_report([math, programs]).tables[0]
    assert [column.title for column in table.columns] == ["method", "reads", "mixed (math)", "mixed (code)"]


def test_a_pool_of_windows_alone_is_enough(made: list[PlantedGroup], graded: Path, tmp_path: Path) -> None:
    small = graded_pool(tmp_path / "small", made, profile=Profile(readouts=("delimiter@16",)))
    one, other = evaluate(graded), evaluate(small)
    assert all(np.array_equal(one.outcomes.picks[m], other.outcomes.picks[m]) for m in one.outcomes.picks)


def test_the_second_call_reads_no_rollout(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = evaluate_pool(graded)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the pool was read again")

    monkeypatch.setattr(workers, "map_problems", refuse)
    (again,) = evaluate_pool(graded, dataset="renamed")
    assert again.dataset == "renamed"
    assert plain(again) == plain(first)
    for options in ({"rule": Rule(k=3)}, {"rule": Rule(confidence_window=32)}, {"use_cache": False}):
        with pytest.raises(AssertionError, match="read again"):
            evaluate_pool(graded, **options)  # type: ignore[arg-type]


def test_a_method_that_is_added_later_is_not_hidden_by_the_cache(graded: Path) -> None:
    evaluate_pool(graded)
    with registry_restored():
        score_method("last", "the last one", reads=("nothing",), citation="none")(
            lambda problem: np.arange(len(problem))
        )
        (pool,) = evaluate_pool(graded)
        assert pool.outcomes.picks["last"].tolist() == [11] * 4
        others = next(table for table in build_report([pool]).tables if table.key == "baselines")
        assert "the last one" in [row.cells[0].value for row in others.rows]
    (pool,) = evaluate_pool(graded)
    assert "last" not in pool.outcomes.picks


def test_a_method_that_changes_is_measured_again(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate_pool(graded)
    before = cache.identity(graded)
    monkeypatch.setitem(METHODS, "longest", replace(METHODS["longest"], version=2))
    assert cache.identity(graded) != before


def test_new_labels_make_the_cache_stale(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    (before,) = evaluate_pool(path)
    write_labels(path, [label._replace(correct=not label.correct) for label in labels(made)])
    (after,) = evaluate_pool(path)
    assert np.array_equal(
        after.outcomes.counts["right"], after.outcomes.counts["rollouts"] - before.outcomes.counts["right"]
    )
    assert np.array_equal(after.outcomes.picks["rad"], before.outcomes.picks["rad"])


def test_another_radmoe_makes_the_cache_stale(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.identity(graded)
    monkeypatch.setattr(cache, "__version__", "999")
    assert cache.identity(graded) != key


@pytest.mark.slow
@pytest.mark.parametrize("garbage", [b"", b"PK", b"{}", b"\xff\xfe"])
def test_a_damaged_cache_is_made_anew(
    made: list[PlantedGroup], tmp_path: Path, garbage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    path = graded_pool(tmp_path / "pool", made)
    (first,) = evaluate_pool(path)
    (file,) = cache.directory().iterdir()
    content = file.read_bytes()
    file.write_bytes(garbage)
    assert plain(evaluate_pool(path)[0]) == plain(first)
    assert file.read_bytes() == content
    with np.load(file) as kept:
        arrays = {name: kept[name] for name in kept.files if name != "hits rad"}
    np.savez(file, **arrays)
    assert plain(evaluate_pool(path)[0]) == plain(first)


def test_where_no_cache_can_be_written_pools_are_evaluated_all_the_same(
    graded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("in the way")  # no folder can be made here, whoever runs this
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    assert plain(evaluate_pool(graded)[0]) == plain(evaluate(graded))
    assert (tmp_path / "cache").read_text() == "in the way"


def test_a_cache_that_came_with_the_pool_is_not_believed(
    made: list[PlantedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger evaluates the pool, doctors the pool, and gives them away beside the pool."""
    path = graded_pool(tmp_path / "pool", made)
    monkeypatch.setenv("RADMOE_CACHE", str(path))
    (honest,) = evaluate_pool(path)
    (file,) = cache.directory().iterdir()
    with np.load(file) as kept:
        np.savez(file, **{**kept, "hits rad": np.ones(4), "hits average": np.zeros(4)})
    (path / "evaluation.cache").mkdir()
    shutil.copy(file, path / "evaluation.cache" / file.name)
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "mine"))
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    for _ in range(2):
        assert plain(evaluate_pool(path)[0]) == plain(honest)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before  # evaluating writes nothing into it


def test_a_changed_shard_makes_the_cache_stale(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    key = cache.identity(path)
    file = path / "token_data_00000" / "moe_topk_expert_ids.int16.b2"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert cache.identity(path) != key


def test_other_code_makes_the_cache_stale(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.identity(graded)
    monkeypatch.setattr(cache, "_code", lambda: "another")
    assert cache.identity(graded) != key


@pytest.mark.slow
def test_processes_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FEW", 0)
    groups = list(planted.groups(Planted(problems=2 * workers.CHUNK + 3, rollouts=4, tokens=20)))
    path = graded_pool(tmp_path / "many", groups)
    calls: list[tuple[int, int]] = []
    alone = evaluate(path)
    together = evaluate(path, jobs=2, progress=lambda done, total: calls.append((done, total)))
    assert plain(together) == plain(alone)
    assert calls == [(4 * i, 4 * len(groups)) for i in range(1, len(groups) + 1)]  # rollouts


def local_method(problem: GradedProblem) -> int:
    return len(problem) - 1


@pytest.mark.slow
def test_processes_know_methods_that_this_one_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FEW", 0)
    groups = list(planted.groups(Planted(problems=workers.CHUNK + 1, rollouts=4, tokens=20)))
    path = graded_pool(tmp_path / "many", groups)
    monkeypatch.setitem(METHODS, "last", Method("last", "last", ("nothing",), "none", "pick", local_method))
    assert evaluate(path, jobs=2).outcomes.picks["last"].tolist() == [3] * len(groups)
    anywhere = Method("lambda", "lambda", ("nothing",), "none", "pick", lambda problem: 0)
    monkeypatch.setitem(METHODS, "lambda", anywhere)
    with pytest.raises(InputError, match=r"method 'lambda' cannot be sent to other processes.*--jobs 1"):
        evaluate(path, jobs=2)


def test_jobs_must_be_positive(graded: Path) -> None:
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        evaluate_pool(graded, jobs=0)


def test_abstaining_counts_as_wrong(made: list[PlantedGroup], tmp_path: Path) -> None:
    """One problem keeps a single located rollout: RAD has nobody to agree with."""
    first = made[0]
    lost = [i for i, answer in enumerate(first.answers) if answer is None]
    located = next(i for i, answer in enumerate(first.answers) if answer is not None)
    chosen = [located, *lost]
    group = replace(first.group, rollouts=[first.group.rollouts[i] for i in chosen], rollout_indices=None)
    alone = replace(
        first,
        group=group,
        texts=[first.texts[i] for i in chosen],
        answers=[first.answers[i] for i in chosen],
        truth=str(first.answers[located]),
    )
    pool = evaluate(graded_pool(tmp_path / "pool", [alone, made[1]]))
    assert pool.outcomes.picks["rad"][0] == NO_PICK
    assert not pool.outcomes.hits["rad"][0]
    assert pool.outcomes.hits["majority"][0]


def test_pools_that_share_rollouts_are_refused_by_their_content(
    made: list[PlantedGroup], graded: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(graded, tmp_path / "copy"))
    write_labels(copy, labels(made)[:3])  # other labels make no other rollouts of it
    (tmp_path / "link").symlink_to(graded)
    with pytest.raises(InputError, match="is given twice: give every pool once"):
        check_distinct([graded, graded])
    for again in (copy, tmp_path / "link", graded / ".." / graded.name):
        with pytest.raises(InputError, match=f"holds rollouts that are in {graded} too: give every pool once"):
            check_distinct([graded, again])


def test_a_pool_and_a_part_of_it_are_refused(made: list[PlantedGroup], tmp_path: Path) -> None:
    parts = [write_pool(tmp_path / f"part-{i}", made[i : i + 1]) for i in range(2)]
    whole = merge_pools(parts, tmp_path / "whole").path
    check_distinct(parts)
    with pytest.raises(InputError, match=f"{whole} holds rollouts that are in {parts[1]} too"):
        check_distinct([parts[1], whole])


def test_pools_of_other_run_records_and_empty_ones_are_distinct(made: list[PlantedGroup], tmp_path: Path) -> None:
    same = [write_pool(tmp_path / model, made[:1], model=model) for model in ("a", "b")]
    none = [tmp_path / "none-1", tmp_path / "none-2"]
    for path in none:
        PoolWriter(path, shape=made[0].group.shape, vocab=planted.vocab(), model="a").close()
    check_distinct([*same, *none])


@pytest.mark.parametrize(
    ("readout", "strict"), [("delimiter@span", "delimiter@marker"), ("closing@-16", None), ("all", None)]
)
def test_a_pool_is_evaluated_by_the_new_readouts(graded: Path, readout: str, strict: str | None) -> None:
    pool = evaluate(graded, rule=Rule(readout=readout))
    assert (pool.setting.readout, pool.setting.strict) == (readout, strict)
    assert "rad" in pool.outcomes.picks
    assert ("strict" in pool.outcomes.picks) == (strict is not None)


@pytest.mark.slow
def test_a_cluster_measures_the_same_numbers_to_the_last_digit(graded: Path) -> None:
    pytest.importorskip(
        "ray", reason="Ray is not installed (pip install 'radmoe[ray]'): evaluation on a cluster is left out"
    )
    with ray_cluster.cluster(2) as cluster:
        there = evaluate(graded, on=f"ray://{cluster.address}")
        assert plain(there) == plain(evaluate(graded))
