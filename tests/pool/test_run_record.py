"""What a pool knows of its rollouts: kinds, the order of problems, steps, and where each shard comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import InputError, PoolMismatch, PoolVersion, RolloutError
from radmoe.pool import Pool, PoolWriter, Profile, open_pool, schema
from radmoe.selection.selector import select
from radmoe.types import Rollout, RouterShape, Step
from radmoe_lab import planted

SHAPE = RouterShape(3, 8, 2)
BOXED = planted.tokenizer().encode("So it is</think> \\boxed{7} and that is all there is to say").ids


def rollout(seed: int = 0, shape: RouterShape = SHAPE) -> Rollout:
    rng = np.random.default_rng(seed)
    size = (len(BOXED), shape.layers, shape.experts)
    ids = np.argsort(rng.random(size), axis=-1)[..., : shape.top_k].astype(np.int16)
    weights = rng.dirichlet(np.ones(shape.top_k), size[:2]).astype(np.float16)
    return Rollout(np.array(BOXED, np.int32), ids, weights)


def writer(path: Path, **options: object) -> PoolWriter:
    return PoolWriter(path, shape=SHAPE, vocab=planted.tokenizer(), model="test", **options)  # type: ignore[arg-type]


def test_a_kind_is_kept_per_problem_and_comes_back_with_the_group(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w:
        w.add("a", rollout(1), kind="code")
        w.add("b", rollout(2), kind="math")
        w.add("a", rollout(3))  # the problem's kind is known by now
        w.add("c", rollout(4))
    pool = open_pool(tmp_path / "p")
    assert pool.kinds == {"a": "code", "b": "math", "c": None}
    assert [group.kind for group in pool.groups()] == ["code", "math", None]
    assert pool.runs(["problem_id", "kind"]).to_pydict()["kind"] == ["code", "math", "code", None]


def test_a_problem_has_one_kind(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w:
        w.add("a", rollout(1), kind="code")
        with pytest.raises(PoolMismatch, match="'a' as of kind code, this rollout is of kind math"):
            w.add("a", rollout(2), kind="math")
        with pytest.raises(InputError, match="unknown kind 'poetry': use one of math, choice, code, text, agent"):
            w.add("b", rollout(2), kind="poetry")  # type: ignore[arg-type]
    with writer(tmp_path / "p") as w, pytest.raises(PoolMismatch, match="of kind code"):
        w.add("a", rollout(2), kind="text")
    assert len(open_pool(tmp_path / "p")) == 1


def test_problems_keep_the_order_in_which_they_were_asked(tmp_path: Path) -> None:
    """Rollouts finish in any order, and a later capture may add problems in between."""
    with writer(tmp_path / "p") as w:
        for name, place in (("c", 7), ("a", 3), ("d", 9)):
            w.add(name, rollout(place), problem_index=place, rollout_index=0)
    with writer(tmp_path / "p") as w:
        w.add("unplaced", rollout(1), rollout_index=0)
        w.add("b", rollout(2), problem_index=5, rollout_index=0)
        w.add("a", rollout(3), problem_index=3, rollout_index=1)
    assert open_pool(tmp_path / "p").problems == ["a", "b", "c", "d", "unplaced"]


def test_the_pick_is_named_by_its_rollout_index(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w:
        for index in (4, 9, 11):
            w.add("a", rollout(index), kind="math", rollout_index=index)
    group = open_pool(tmp_path / "p").group("a")
    pick = select(group)
    assert group.rollout_indices == (4, 9, 11)
    assert pick.index is not None
    assert pick.rollout_index == (4, 9, 11)[pick.index]


def test_the_run_record_must_match_and_provenance_may_differ(tmp_path: Path) -> None:
    record = {"task": "math-2", "style": "thinking", "sampling": {"temperature": 1.0}}
    with writer(tmp_path / "p", **record, provenance={"host": "one", "versions": {"torch": "2.13.0"}}) as w:
        w.add("a", rollout(1))
    with writer(tmp_path / "p", **record, provenance={"host": "two", "versions": {"torch": "2.14.0"}}) as w:
        w.add("a", rollout(2))
    pool = open_pool(tmp_path / "p")
    assert (pool.task, pool.style, pool.sampling) == ("math-2", "thinking", {"temperature": 1.0})
    assert [where["host"] for where in pool.provenance.values()] == ["one", "two"]
    assert all("radmoe" in where for where in pool.provenance.values())
    for change, message in (
        ({"task": "math-3"}, "task = 'math-2', this writer has 'math-3'"),
        ({"style": None}, "style = 'thinking', this writer has None"),
        ({"sampling": {"temperature": 0.5}}, "sampling.temperature = 1.0, this writer has 0.5"),
        ({"profile": Profile(layers=(0,))}, "profile.layers = None"),
    ):
        with pytest.raises(PoolMismatch, match=message):
            writer(tmp_path / "p", **record | change)
    assert len(open_pool(tmp_path / "p")) == 2


def test_provenance_survives_a_killed_writer(tmp_path: Path) -> None:
    w = writer(tmp_path / "p", provenance={"host": "gone"})
    w.add("a", rollout(1))
    w.abandon()
    assert [where["host"] for where in Pool.recover(tmp_path / "p").provenance.values()] == ["gone"]


def test_steps_read_back_as_they_were_given(tmp_path: Path) -> None:
    steps = (Step((5, 6, 7), 0), Step((8,), 4), Step((), 9))
    with writer(tmp_path / "p") as w:
        w.add("a", replace(rollout(1), steps=steps), kind="agent")
        w.add("a", rollout(2))
    stored = open_pool(tmp_path / "p").group("a").rollouts
    assert [trace.steps for trace in stored] == [steps, ()]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([((1,), 1)], "rising from 0"),
        ([((1,), 0), ((2,), 5), ((3,), 5)], r"rising from 0 .* got \[0, 5, 5\]"),
        ([((1,), 0), ((2,), 400)], "below"),
        ([((-1,), 0)], "must not be negative"),
    ],
)
def test_steps_that_make_no_sense_are_refused(steps: list[tuple[tuple[int, ...], int]], message: str) -> None:
    with pytest.raises(RolloutError, match=message):
        replace(rollout(1), steps=tuple(Step(*step) for step in steps))


def test_tokens_a_step_was_given_must_be_of_the_vocabulary(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w, pytest.raises(RolloutError, match="to 99999, and the vocabulary ends at 514"):
        w.add("a", replace(rollout(1), steps=(Step((99_999,), 0),)))


def test_rows_that_were_not_captured_are_absent_and_the_pool_is_the_same(tmp_path: Path) -> None:
    """A rollout with just the rows and layers that the profile keeps makes the bytes that the whole one makes."""
    profile = Profile(layers=(0, 2), readouts=("delimiter@4",))
    whole, vocab = rollout(1), planted.vocab()
    rows = profile.kept_rows(whole.token_ids, vocab, "math")
    assert rows is not None
    assert 0 < len(rows) < len(whole)
    assert whole.weights is not None
    part = Rollout(whole.token_ids, whole.expert_ids[rows][:, [0, 2]], whole.weights[rows][:, [0, 2]], positions=rows)
    for name, one in (("whole", whole), ("part", part)):
        with writer(tmp_path / name, profile=profile) as w:
            w.add("a", one, kind="math")
    shards = [
        {f.name: f.read_bytes() for f in (tmp_path / n / "token_data_00000").iterdir()} for n in ("whole", "part")
    ]
    assert shards[0] == shards[1]
    with writer(tmp_path / "other", profile=Profile(readouts=("boundary@16",))) as w:
        missing = replace(part, expert_ids=whole.expert_ids[rows], weights=whole.weights[rows])
        with pytest.raises(RolloutError, match=f"has the routing of {len(rows)} of its tokens"):
            w.add("a", missing, kind="math")


def test_a_window_of_a_kind_needs_the_kind(tmp_path: Path) -> None:
    with (
        writer(tmp_path / "p", profile=Profile(readouts=("delimiter@16",))) as w,
        pytest.raises(InputError, match="which delimiter opens an answer depends on its kind"),
    ):
        w.add("a", rollout(1))


def test_a_pool_of_the_first_version_is_refused_in_one_line(pool_path: Path) -> None:
    body = schema.read_json(pool_path / schema.POOL_JSON) | {"schema_version": 1}
    (pool_path / schema.POOL_JSON).write_bytes(schema.seal_json(body))
    with pytest.raises(
        PoolVersion, match="schema version 1, this radmoe reads version 2: capture its rollouts again, or replay the"
    ):
        open_pool(pool_path)
    with pytest.raises(PoolVersion, match="schema version 1"):
        PoolWriter(pool_path, shape=SHAPE, vocab=planted.vocab(), model="planted")
