"""What a writer takes in, recovery gives back; a record that is no rollout is set aside, and costs no other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from malformed_journals import FIELDS, joined, malformed_journals, split
from planted_pools import faults_of
from pool_attacks import SHARD, abandoned_pool
from radmoe.cli import app
from radmoe.errors import InputError, PoolIncomplete, RadmoeError
from radmoe.pool import Pool, PoolWriter, open_pool
from radmoe.pool.schema import JOURNAL, REFUSED
from radmoe.types import Rollout, Step
from radmoe_lab import planted
from small_pools import SHAPE, rollout, same, writer

# -- whatever add accepts ----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ["\ud800", "a\udfffb", "\0", "\x1b[31m", "é\u202e", "x" * 70_000]
)
NUMBERS = st.sampled_from(
    [
        0,
        1,
        7,
        -1,
        2**31,
        2**62,
        2**63,
        2**70,
        True,
        0.5,
        1.0,
        math.nan,
        math.inf,
        "3",
        np.int64(5),
        np.float64(2),
        [1],
        b"1",
    ]
) | st.integers(-3, 9)
ODD = st.none() | TEXTS | NUMBERS | st.binary(max_size=3)
EXTRAS = st.none() | st.dictionaries(TEXTS, ODD | st.lists(ODD, max_size=2), max_size=2) | ODD


@st.composite
def steps(draw: st.DrawFn) -> tuple[Step, ...]:
    given_tokens = st.lists(st.sampled_from([0, 5, 500, 10**6, 2**31]), max_size=3)
    return tuple(
        Step(tuple(draw(given_tokens)), start, draw(st.none() | st.just(0)))
        for start in (0, 2)[: draw(st.integers(0, 2))]
    )


ADDED = st.fixed_dictionaries(
    {"problem_id": st.sampled_from(["a", "b"]) | TEXTS, "steps": steps()},
    optional={
        "kind": st.sampled_from([None, "math", "agent", "poem", 3]),
        "rollout_index": st.none() | NUMBERS,
        "problem_index": st.none() | NUMBERS,
        "text": ODD,
        "prompt": ODD,
        "finish_reason": ODD,
        "extra": EXTRAS,
    },
)


def logprobs(number: int) -> dict[str, Any]:
    """Log-probabilities of a rollout of five tokens, as a careless engine may hand them over."""
    values = [None, np.zeros(5, np.float32), np.full(5, -np.inf, np.float32)][number % 3]
    return {} if values is None else {"sampled_logprobs": values}


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(added=st.lists(ADDED, min_size=1, max_size=6), column=st.integers(0, 2), recovered=st.booleans())
def test_what_a_writer_accepts_is_sealed_and_recovered(
    tmp_path_factory: pytest.TempPathFactory, added: list[dict[str, Any]], column: int, recovered: bool
) -> None:
    path = tmp_path_factory.mktemp("odd") / "p"
    made, accepted = writer(path), []
    for number, fields in enumerate([{"problem_id": "first", "steps": ()}, *added]):
        own = dict(fields)
        problem, one = own.pop("problem_id"), rollout(5, number)
        try:
            whole = Rollout(one.token_ids, one.expert_ids, one.weights, steps=own.pop("steps"), **logprobs(column))
            made.add(problem, whole, **own)
        except RadmoeError:
            continue
        accepted.append((problem, whole, own))
    if recovered:
        made.abandon()
        with pytest.raises(PoolIncomplete, match=rf"{len(accepted)} rollouts are safe"):
            open_pool(path)
        assert Pool.recover(path).dropped == ()
    else:
        made.close()
    pool = open_pool(path)
    assert len(pool) == len(accepted) >= 1
    assert pool.verify() == []
    stored = {row["row"]: row for row in pool.runs().to_pylist()}
    for row, (problem, whole, own) in enumerate(accepted):
        assert stored[row]["problem_id"] == problem
        assert stored[row]["text"] == own.get("text")
        assert stored[row]["finish_reason"] == own.get("finish_reason")
        place = pool.rollout_indices(problem).index(stored[row]["rollout_index"])
        assert same(whole, pool.group(problem).rollouts[place])


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "\ud800"},
        {"text": 5},
        {"text": b"bytes"},
        {"prompt": "\udfff"},
        {"finish_reason": {"type": "stop"}},
        {"finish_reason": "\ud800"},
        {"rollout_index": "0"},
        {"rollout_index": 2**63},
        {"rollout_index": 0.5},
        {"rollout_index": True},
        {"problem_index": 2**63},
        {"problem_index": math.nan},
        {"extra": {"a": {1, 2}}},
    ],
    ids=lambda fields: f"{fields!r:.40}",
)
def test_what_a_reader_would_refuse_is_not_taken_in(tmp_path: Path, fields: dict[str, Any]) -> None:
    with writer(tmp_path / "p") as made:
        made.add("a", rollout(5), rollout_index=7)
        with pytest.raises(InputError, match="rollout of problem 'a': ") as error:
            made.add("a", rollout(6), **fields)
        assert len(str(error.value).splitlines()) == 1
        assert len(str(error.value)) < 300
        made.add("a", rollout(7), rollout_index=8)
    assert open_pool(tmp_path / "p").rollout_indices("a") == [7, 8]


def test_a_rollout_that_takes_more_memory_than_its_reader_may_take_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADMOE_MEMORY_LIMIT", "1M")
    with (
        writer(tmp_path / "p") as made,
        pytest.raises(InputError, match=r"rollout of problem 'a': .* the limit is 1\.0 MB"),
    ):
        made.add("a", rollout(5), text="x" * (1 << 20))


@pytest.mark.parametrize(
    "change",
    [
        {"model": "\ud800"},
        {"task": 3},
        {"style": "\udfff"},
        {"sampling": {"a": "\ud800"}},
        {"sampling": ["a"]},
        {"provenance": {"host": "\ud800"}},
        {"provenance": {"host": {1, 2}}},
    ],
    ids=repr,
)
def test_a_run_record_that_does_not_read_back_makes_no_pool(tmp_path: Path, change: dict[str, Any]) -> None:
    options = {"shape": SHAPE, "vocab": planted.vocab(), "model": "test"} | change
    with pytest.raises(InputError, match="must be JSON that reads back: "):
        PoolWriter(tmp_path / "p", **options)
    assert not (tmp_path / "p").exists()


def test_columns_of_no_width_make_no_pool(tmp_path: Path) -> None:
    one = rollout(5)
    with writer(tmp_path / "p") as made:
        with pytest.raises(InputError, match="tok_topk_logprobs of shape"):
            made.add("a", Rollout(one.token_ids, one.expert_ids, one.weights, None, np.zeros((5, 0), np.float32)))
        made.add("a", one)
    assert faults_of(tmp_path / "p") == []


def test_the_first_place_of_a_problem_stays(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as made:
        made.add("a", rollout(5), problem_index=3)
        made.add("a", rollout(6), problem_index=4)
    with writer(tmp_path / "p") as made:
        made.add("a", rollout(7), problem_index=5)
    assert open_pool(tmp_path / "p").runs(["problem_index"])["problem_index"].to_pylist() == [3, 3, 3]
    assert faults_of(tmp_path / "p") == []


# -- records that are no rollouts --------------------------------------------------------------------------------------------

BAD = [
    name
    for name in malformed_journals()
    if name.startswith((*FIELDS, "array", "weights", "bytes", "an expert", "a negative"))
]


@pytest.mark.parametrize("name", BAD[::4])
def test_a_record_that_is_no_rollout_costs_no_other(tmp_path: Path, name: str) -> None:
    """Of three rollouts the second is spoiled, with a checksum that fits."""
    journal = abandoned_pool(tmp_path / "p") / SHARD / JOURNAL
    records = split(journal.read_bytes())
    malformed_journals()[name](records)
    journal.write_bytes(joined(records))
    spoiled = split(journal.read_bytes())[2]
    pool = Pool.recover(tmp_path / "p")
    assert pool.texts("a") == ["text 0", "text 2"]
    (aside,) = pool.dropped
    assert str(aside).startswith(f"record 2 of {SHARD} is set aside in {SHARD}/{REFUSED}: ")
    assert split((tmp_path / "p" / SHARD / REFUSED).read_bytes()) == [spoiled]
    assert pool.verify() == []


def test_a_damaged_record_in_the_middle_costs_no_other(tmp_path: Path) -> None:
    journal = abandoned_pool(tmp_path / "p") / SHARD / JOURNAL
    content = bytearray(journal.read_bytes())
    content[content.index(b"text 1")] ^= 1
    journal.write_bytes(content)
    pool = Pool.recover(tmp_path / "p")
    assert pool.texts("a") == ["text 0", "text 2"]
    assert [str(one).partition(": ")[2] for one in pool.dropped] == ["its bytes are not the ones that were written"]


def test_a_journal_without_provenance_keeps_its_rollouts(tmp_path: Path) -> None:
    journal = abandoned_pool(tmp_path / "p") / SHARD / JOURNAL
    records = split(journal.read_bytes())
    records[0][0]["provenance"] = {"host": "\ud800"}
    journal.write_bytes(joined(records))
    assert len(Pool.recover(tmp_path / "p")) == 3


def test_a_writer_that_goes_on_says_what_it_set_aside(tmp_path: Path) -> None:
    journal = abandoned_pool(tmp_path / "p") / SHARD / JOURNAL
    records = split(journal.read_bytes())
    records[2][0]["text"] = "\ud800"
    journal.write_bytes(joined(records))
    with pytest.raises(PoolIncomplete, match="2 rollouts are safe"):
        open_pool(tmp_path / "p")
    with writer(tmp_path / "p") as made:
        assert [(one.shard, one.record) for one in made.set_aside] == [(SHARD, 2)]
        assert not made.has("a", 1)
        made.add("a", rollout(5), rollout_index=1)
    assert open_pool(tmp_path / "p").rollout_indices("a") == [0, 1, 2]


def test_verify_says_what_is_set_aside(tmp_path: Path) -> None:
    journal = abandoned_pool(tmp_path / "p") / SHARD / JOURNAL
    records = split(journal.read_bytes())
    records[2][0]["text"] = "\ud800"
    journal.write_bytes(joined(records))
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "p"), "--recover"])
    assert result.exit_code == 0, result.output
    assert "recovered 2 rollouts, and set 1 records aside" in result.stderr
    assert f"record 2 of {SHARD} is set aside in {SHARD}/{REFUSED}: 'utf-8' codec" in result.stderr
    assert f"{REFUSED} keeps records" in CliRunner().invoke(app, ["verify", str(tmp_path / "p")]).stdout
