"""Evidence from real pools: what was read is what selection reads, once, and the cache is believed only for that pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool as make_pool
from radmoe.errors import InputError
from radmoe.evaluation.pools import open_graded
from radmoe.selection.kernels import weighted_jaccard
from radmoe.selection.readout import read
from radmoe.selection.selector import Setting, similarity
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.evidence import Panel, Request, gather, sampling_of

SIXTEEN, DENSE, COSINE = Request("delimiter@16"), Request("delimiter@16", k=5), Request("delimiter@16", "cosine")
EARLY = Request("trajectory:so@8", budget=100)


@pytest.fixture
def graded_pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path / "pool", list(planted.groups(Planted(problems=4, rollouts=12, tokens=120))))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))


def wanted(panel: Panel) -> list[Request]:
    return [SIXTEEN, DENSE, COSINE, EARLY]


def test_similarities_and_densities_are_those_of_selection(graded_pool: Path) -> None:
    evidence = gather([graded_pool])
    evidence.read(wanted)
    (panel,) = evidence.panels
    for row, problem in enumerate(open_graded(graded_pool)[0]):
        S, reading = problem.similarity("delimiter@16")
        read = panel.read(SIXTEEN)
        located = read.located[row]
        assert np.array_equal(located[: len(problem)], reading.located)
        assert np.array_equal(read.values[row][np.ix_(located, located)], S)
        assert int(np.nanargmax(panel.density(SIXTEEN)[row])) == problem.selection.index
        assert np.array_equal(panel.correct[row, : len(problem)], problem.correct)
    assert panel.density(DENSE).shape == panel.here.shape
    assert float(np.nanmax(panel.read(COSINE).values)) <= 1.0


def test_what_was_read_once_is_not_read_again(graded_pool: Path) -> None:
    first = gather([graded_pool])
    first.read(wanted)
    first.read(wanted)
    rollouts = int(first.panels[0].here.sum())
    assert first.windows == 2 * rollouts  # three requests compare the same route vectors
    assert first.asked == 2 * 4 * rollouts
    second = gather([graded_pool])
    second.read(wanted)
    assert second.windows == 0
    assert second.kept == 4 * rollouts
    for request in wanted(first.panels[0]):
        for one, other in zip(first.panels[0].read(request), second.panels[0].read(request), strict=True):
            assert np.array_equal(one, other, equal_nan=True)


def test_kinds_of_one_pool_are_kept_apart_in_the_cache(tmp_path: Path) -> None:
    math = list(planted.groups(Planted(problems=3, rollouts=8, tokens=60)))
    code = list(planted.groups(Planted(problems=3, rollouts=8, tokens=60, kind="code", seed=5)))
    code = [replace(one, group=replace(one.group, problem_id=f"code-{i}")) for i, one in enumerate(code)]
    path = make_pool(tmp_path / "mixed", [*math, *code])
    first, second = gather([path]), gather([path])
    for evidence in (first, second):
        evidence.read(lambda panel: [SIXTEEN])
    assert [panel.kind for panel in second.panels] == ["math", "code"]
    assert second.windows == 0
    for one, other in zip(first.panels, second.panels, strict=True):
        assert np.array_equal(one.lengths, other.lengths)
        assert np.array_equal(one.read(SIXTEEN).values, other.read(SIXTEEN).values, equal_nan=True)
    assert not np.array_equal(*(panel.read(SIXTEEN).start for panel in second.panels))


def test_layer_subsets_of_one_reading_are_those_of_selection(graded_pool: Path) -> None:
    subsets = [
        Request("delimiter@16", kernel, layers) for kernel in ("weighted", "binary") for layers in ("s0", "c3", "x9")
    ]
    evidence = gather([graded_pool], use_cache=False)
    evidence.read(lambda panel: subsets)
    (panel,) = evidence.panels
    assert panel.layers == 12
    assert evidence.windows == 2 * int(panel.here.sum())  # one with weights, one without
    for request in subsets:
        for row, problem in enumerate(open_graded(graded_pool)[0]):
            setting = Setting("math", "delimiter@16", 10, request.kernel, layers=request.layers)
            S, reading = similarity(problem.group, setting)
            located = panel.read(request).located[row]
            assert np.array_equal(located[: len(problem)], reading.located)
            assert np.array_equal(panel.read(request).values[row][np.ix_(located, located)], S)


@pytest.mark.parametrize("readout", ["pre-delim@8", "rand@8", "boundary@union", "trajectory-before:so*@8"])
def test_readouts_whose_anchors_do_not_say_what_was_read_are_read_anew(graded_pool: Path, readout: str) -> None:
    requests = [Request(readout, kernel) for kernel in ("weighted", "binary")]
    evidence = gather([graded_pool], use_cache=False)
    evidence.read(lambda panel: requests)
    (panel,) = evidence.panels
    for request in requests:
        for row, problem in enumerate(open_graded(graded_pool)[0]):
            S, _ = similarity(problem.group, Setting("math", readout, 10, request.kernel))
            located = panel.read(request).located[row]
            assert np.array_equal(panel.read(request).values[row][np.ix_(located, located)], S)


def test_windows_at_the_anchors_of_another_readout(graded_pool: Path) -> None:
    wide, narrow = (
        Request("trajectory:so*@32", budget=90, whole=True),
        Request("trajectory:so*@1", budget=90, whole=True),
    )
    fixed = Request("trajectory:so*@1", budget=90, whole=True, at="trajectory:so*@32")
    leaking = Request("trajectory:so*@32", budget=90, at="trajectory:so*@1")
    evidence = gather([graded_pool], use_cache=False)
    evidence.read(lambda panel: [fixed, wide, narrow, leaking])
    (panel,) = evidence.panels
    assert np.array_equal(panel.read(fixed).start, panel.read(wide).start)
    assert np.array_equal(panel.read(leaking).start, panel.read(narrow).start)
    later = panel.read(narrow).start > panel.read(wide).start
    assert later.any()
    assert (panel.read(wide).start + 32 <= 90).all()
    assert (panel.read(leaking).start + 32 > 90).any()
    for row, problem in enumerate(open_graded(graded_pool)[0]):
        anchors = read(problem.group, "trajectory:so*@32", "math", budget=90, whole=True).anchors
        Z = read(problem.group, "trajectory:so*@1", "math", anchors=anchors).Z
        located = panel.read(fixed).located[row]
        assert np.array_equal(panel.read(fixed).values[row][np.ix_(located, located)], weighted_jaccard(Z))


def test_only_rollouts_that_another_readout_locates(graded_pool: Path) -> None:
    wide, narrow = (Request(f"trajectory:so*@{width}", budget=60, whole=True) for width in (40, 1))
    among = Request("trajectory:so*@1", budget=60, whole=True, among="trajectory:so*@40")
    evidence = gather([graded_pool], use_cache=False)
    evidence.read(lambda panel: [among, wide, narrow])
    (panel,) = evidence.panels
    located = panel.read(wide).located
    assert np.array_equal(panel.read(among).located, located)
    assert (panel.read(narrow).located & ~located).any()
    assert np.array_equal(panel.read(among).start[located], panel.read(narrow).start[located])
    for row, here in enumerate(located):
        inside = np.ix_([row], here, here)
        assert np.array_equal(panel.read(among).values[inside], panel.read(narrow).values[inside])


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="unknown kernel 'jaccard': use one of weighted, binary, cosine"):
        Request("delimiter@16", "jaccard")


def test_a_damaged_cache_is_read_anew(graded_pool: Path, tmp_path: Path) -> None:
    gather([graded_pool]).read(wanted)
    files = list((tmp_path / "cache").rglob("*.npz"))
    assert len(files) == 5  # four requests, and the scalars
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    again = gather([graded_pool])
    again.read(wanted)
    assert again.windows > 0


def test_processes_read_what_one_process_reads(graded_pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radmoe_studies.evidence._WORTH_PROCESSES", 0)
    alone, shared = (gather([graded_pool], jobs=jobs, use_cache=False) for jobs in (1, 2))
    for evidence in (alone, shared):
        evidence.read(wanted)
    for request in wanted(alone.panels[0]):
        for one, other in zip(alone.panels[0].read(request), shared.panels[0].read(request), strict=True):
            assert np.array_equal(one, other, equal_nan=True)


def test_one_call_judges_one_way_of_sampling(tmp_path: Path) -> None:
    ways = {
        "hot": {"temperature": 0.8, "top_p": 1.0, "seed": 0},
        "papers": {"temperature": 0.7, "top_p": 0.9, "seed": 0},
    }
    pools = {}
    for seed, (name, way) in enumerate(ways.items()):
        groups = list(planted.groups(Planted(problems=3, rollouts=4, tokens=60, seed=seed)))
        pools[name] = make_pool(tmp_path / name, groups, style="thinking", task="math-2", sampling={"sampled": way})
    assert sampling_of(pools["papers"]) == "temperature 0.7, top-p 0.9, seed 0"
    assert len(gather([pools["papers"]], use_cache=False).panels) == 1
    with pytest.raises(
        InputError, match=r"sampled at temperature 0\.8, top-p 1\.0 and at temperature 0\.7, top-p 0\.9: a study"
    ):
        gather(list(pools.values()), use_cache=False)
    other = list(planted.groups(Planted(problems=3, rollouts=4, tokens=60, seed=5)))
    again = make_pool(tmp_path / "again", other, style="thinking", task="math-2", sampling=ways["papers"] | {"seed": 9})
    assert len(gather([pools["papers"], again], use_cache=False).panels) == 2  # another seed is no other way
    assert sampling_of(again) == "temperature 0.7, top-p 0.9, seed 9"
