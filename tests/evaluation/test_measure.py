"""From a pool on disk to its records: every method's pick, the cache, and processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from evaluation.pools import graded_pool, labels
from radmoe import baselines, medoid, open_pool, select, select_agent
from radmoe.confidence import rollout_confidence
from radmoe.errors import InputError
from radmoe.evaluation import Settings, cache, evaluate_pool, measure
from radmoe.evaluation.records import METHODS, NO_PICK
from radmoe.grading.labels import write_labels
from radmoe.lab import planted
from radmoe.lab.planted import Planted, PlantedGroup
from radmoe.pool import Profile


@pytest.fixture(scope="module")
def graded(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graded_pool(tmp_path_factory.mktemp("graded") / "pool", made, sampling={"task": "math-2", "style": "low"})


def test_every_pick_is_the_one_its_own_function_makes(graded: Path, made: list[PlantedGroup]) -> None:
    records = evaluate_pool(graded, use_cache=False)
    assert set(records.picks) == set(METHODS) - {"average"}
    for at, (group, one) in enumerate(zip(open_pool(graded).groups(), made, strict=True)):
        trust = [rollout_confidence(r.topk_logprobs) for r in group.rollouts]  # type: ignore[arg-type]
        lengths = [len(r) for r in group.rollouts]
        paragraphs = [text.count("\n\n") for text in one.texts]
        expected = {
            "rad": select(group).index,
            "rad+dc": select(group, confidence="conf50").index,
            "strict": select(group, readout="delimiter@marker").index,
            "strict+dc": select(group, readout="delimiter@marker", confidence="conf50").index,
            "medoid": medoid(group).index,
            "majority": baselines.majority(one.answers),
            "deepconf": baselines.weighted_vote(one.answers, trust),
            "deepconf-bottom-window-top10": baselines.filtered_vote(one.answers, trust),
            "confident": int(np.argmax(trust)),
            "longest": int(np.argmax(lengths)),
            "shortest": int(np.argmin(lengths)),
            "most-steps": int(np.argmax(paragraphs)),
            "fewest-steps": int(np.argmin(paragraphs)),
        }
        correct = [answer == one.truth for answer in one.answers]
        for method, index in expected.items():
            assert records.picks[method][at] == index, method
            assert records.hits[method][at] == correct[index], method  # type: ignore[index]
        assert records.hits["oracle"][at] == any(correct)


def test_counts_are_those_of_the_labels_and_anchors(graded: Path, made: list[PlantedGroup]) -> None:
    records = evaluate_pool(graded, use_cache=False)
    for at, one in enumerate(made):
        picked = select(one.group)
        votes = Counter(a for a in one.answers if a is not None)
        correct = np.array([a == one.truth for a in one.answers])
        expected = {
            "rollouts": 12,
            "right": correct.sum(),
            "answered": votes.total(),
            "distinct": len(votes),
            "plurality": max(votes.values()),
            "located": picked.located.sum(),
            "located_right": correct[picked.located].sum(),
            "basin": len(picked.basin),
        }
        assert {name: values[at] for name, values in records.counts.items()} == expected


def test_names_come_from_the_sampling_record_or_the_directory(
    graded: Path, made: list[PlantedGroup], tmp_path: Path
) -> None:
    records = evaluate_pool(graded, use_cache=False)
    assert (records.model, records.dataset) == ("planted low", "math-2")
    assert evaluate_pool(graded, use_cache=False, dataset="mine").dataset == "mine"
    plain = graded_pool(tmp_path / "folder", made)
    assert (evaluate_pool(plain).model, evaluate_pool(plain).dataset) == ("planted", "folder")


def test_agents_are_read_at_every_boundary(made: list[PlantedGroup], graded: Path) -> None:
    records = evaluate_pool(graded, Settings("agent", "boundary@union", 4, "binary"), use_cache=False)
    assert records.picks["rad"].tolist() == [select_agent(one.group).index for one in made]
    assert "strict" not in records.picks  # the union reads markers only


def test_a_pool_of_windows_alone_is_enough(made: list[PlantedGroup], graded: Path, tmp_path: Path) -> None:
    small = graded_pool(tmp_path / "small", made, profile=Profile(readouts=("delimiter@16",)))
    one, other = evaluate_pool(graded, use_cache=False), evaluate_pool(small, use_cache=False)
    assert all(np.array_equal(one.picks[m], other.picks[m]) for m in one.picks)


def test_the_second_call_reads_no_rollout(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluate_pool(graded)

    def refuse(*_: object) -> None:
        raise AssertionError("the pool was read again")

    monkeypatch.setattr(measure, "open_pool", refuse)
    again = evaluate_pool(graded, dataset="renamed")
    assert again.dataset == "renamed"
    assert again.to_json() == first.to_json()
    with pytest.raises(AssertionError, match="read again"):
        evaluate_pool(graded, Settings(k=3))
    with pytest.raises(AssertionError, match="read again"):
        evaluate_pool(graded, use_cache=False)


def test_new_labels_make_the_cache_stale(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    before = evaluate_pool(path)
    write_labels(path, [label._replace(correct=not label.correct) for label in labels(made)])
    after = evaluate_pool(path)
    assert np.array_equal(after.counts["right"], after.counts["rollouts"] - before.counts["right"])
    assert np.array_equal(after.picks["rad"], before.picks["rad"])


def test_another_radmoe_makes_the_cache_stale(graded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.identity(graded)
    monkeypatch.setattr(cache, "__version__", "999")
    assert cache.identity(graded) != key


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"identity": 1}', b"\xff\xfe"])
def test_a_damaged_cache_is_made_anew(made: list[PlantedGroup], tmp_path: Path, garbage: bytes) -> None:
    path = graded_pool(tmp_path / "pool", made)
    first = evaluate_pool(path)
    (file,) = (path / cache.FOLDER).iterdir()
    kept = file.read_bytes()
    file.write_bytes(garbage)
    assert evaluate_pool(path).to_json() == first.to_json()
    assert file.read_bytes() == kept
    body = json.loads(kept)
    del body["records"]["hits"]
    file.write_text(json.dumps(body))
    assert evaluate_pool(path).to_json() == first.to_json()


def test_a_pool_that_cannot_be_written_is_evaluated_all_the_same(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "pool", made)
    (path / cache.FOLDER).write_text("in the way")  # no folder can be made here, whoever runs this
    assert evaluate_pool(path).to_json() == evaluate_pool(path, use_cache=False).to_json()
    assert (path / cache.FOLDER).read_text() == "in the way"


@pytest.mark.slow
def test_processes_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "FEW", 0)
    groups = list(planted.groups(Planted(problems=2 * measure.CHUNK + 3, rollouts=4, tokens=20)))
    path = graded_pool(tmp_path / "many", groups)
    told: list[tuple[int, int]] = []
    alone = evaluate_pool(path, use_cache=False)
    together = evaluate_pool(path, use_cache=False, jobs=2, progress=lambda done, total: told.append((done, total)))
    assert together.to_json() == alone.to_json()
    assert told == [(i, len(groups)) for i in range(1, len(groups) + 1)]


def test_jobs_must_be_positive(graded: Path) -> None:
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        evaluate_pool(graded, jobs=0)


def test_abstaining_counts_as_wrong(made: list[PlantedGroup], tmp_path: Path) -> None:
    """One problem keeps a single located rollout: RAD has nobody to agree with."""
    from dataclasses import replace

    first = made[0]
    lost = [i for i, answer in enumerate(first.answers) if answer is None]
    located = next(i for i, answer in enumerate(first.answers) if answer is not None)
    kept = [located, *lost] if lost else [located]
    group = replace(first.group, rollouts=[first.group.rollouts[i] for i in kept])
    alone = replace(
        first,
        group=group,
        texts=[first.texts[i] for i in kept],
        answers=[first.answers[i] for i in kept],
        truth=str(first.answers[located]),
    )
    records = evaluate_pool(graded_pool(tmp_path / "pool", [alone, made[1]]), use_cache=False)
    assert records.picks["rad"][0] == NO_PICK
    assert not records.hits["rad"][0]
    assert records.hits["majority"][0]
