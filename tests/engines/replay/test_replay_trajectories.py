"""A trajectory of several turns is replayed over everything the model was given and generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_moe
from radmoe.engines.replay import replay
from radmoe.engines.replay.run import passes
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import InputError
from radmoe.pool import Profile, open_pool
from radmoe.types import Step

GENERATED = [*range(20, 32)]
STEPS = [
    {"given": [5, 6, 7, 8], "start": 0},
    {"given": [9, 10, 11], "start": 5},
    {"given": [], "start": 9},  # a turn that was given nothing
    {"given": [12], "start": 11},
]
SEQUENCE = [5, 6, 7, 8, *GENERATED[:5], 9, 10, 11, *GENERATED[5:9], *GENERATED[9:11], 12, *GENERATED[11:]]
PLACES = [4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 19]  # of the generated tokens in it


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return tiny_moe.engine("qwen3-moe")


def file(path: Path, *records: dict[str, Any]) -> Path:
    known = {"id": "t", "kind": "agent", "token_ids": GENERATED, "steps": STEPS}
    path.write_text("\n".join(json.dumps(known | record) for record in records))
    return path


def test_rows_are_those_of_one_pass_over_the_whole_trajectory(engine: TransformersEngine, tmp_path: Path) -> None:
    assert [SEQUENCE[place] for place in PLACES] == GENERATED
    replay(file(tmp_path / "r.jsonl", {}), engine, tmp_path / "pool")
    pool = open_pool(tmp_path / "pool")
    (rollout,) = pool.group("t").rollouts
    ids, weights = engine.teacher_forced(SEQUENCE)
    before = np.array(PLACES) - 1
    assert np.array_equal(rollout.expert_ids, ids[before])
    assert np.allclose(rollout.weights, weights[before], atol=1e-3)
    assert rollout.token_ids.tolist() == GENERATED
    assert rollout.steps == tuple(Step(tuple(step["given"]), step["start"]) for step in STEPS)
    assert pool.kinds == {"t": "agent"}
    alone = engine.teacher_forced([5, 6, 7, 8, *GENERATED])[0][3:-1]  # as if nothing was given in between
    assert np.array_equal(alone[:5], rollout.expert_ids[:5])
    assert not np.array_equal(alone[5:], rollout.expert_ids[5:])


def test_a_pool_of_trajectories_is_replayed_without_a_prompts_text(engine: TransformersEngine, tmp_path: Path) -> None:
    replay(file(tmp_path / "r.jsonl", {}, {}), engine, tmp_path / "pool")
    done = replay(tmp_path / "pool", engine, tmp_path / "again")
    assert done.agreement is not None
    assert (done.agreement.same, done.agreement.of) == (2 * 12 * 3, 2 * 12 * 3)
    first, second = (open_pool(tmp_path / name).group("t").rollouts[1] for name in ("pool", "again"))
    assert np.array_equal(first.expert_ids, second.expert_ids)
    assert first.steps == second.steps


def test_windows_of_a_trajectory_end_the_pass(
    engine: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker in the second turn: the rows are those of the whole pass, and what comes after is not computed."""
    marker = engine.vocab.token_bytes(GENERATED[6]).decode()
    passes: list[int] = []
    whole = engine.force
    monkeypatch.setattr(
        engine,
        "force",
        lambda prompt, tails, **o: passes.append(len(prompt) + len(tails[0]) - 1) or whole(prompt, tails, **o),
    )
    source = file(tmp_path / "r.jsonl", {})
    replay(source, engine, tmp_path / "all")
    replay(source, engine, tmp_path / "part", profile=Profile(readouts=(f"boundary:{marker}@2",)), topk_logprobs=0)
    (full,), (part,) = (open_pool(tmp_path / name).group("t").rollouts for name in ("all", "part"))
    assert part.positions.tolist() == [6, 7]
    assert passes == [len(SEQUENCE) - 1, PLACES[7]]
    for a, b in zip(full.rows(6, 8), part.rows(6, 8), strict=True):
        assert np.array_equal(a, b)


def test_one_step_is_a_plain_rollout(engine: TransformersEngine, tmp_path: Path) -> None:
    replay(file(tmp_path / "s.jsonl", {"steps": STEPS[:1]}), engine, tmp_path / "step")
    replay(file(tmp_path / "p.jsonl", {"steps": [], "prompt_ids": [5, 6, 7, 8]}), engine, tmp_path / "plain")
    step, plain = (open_pool(tmp_path / name).group("t").rollouts[0] for name in ("step", "plain"))
    assert np.array_equal(step.expert_ids, plain.expert_ids)
    assert len(step.steps) == 1
    assert plain.steps == ()


@given(st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=4), st.integers(1, 4)), min_size=1, max_size=6))
def test_generated_tokens_are_where_the_sequence_says(turns: list[tuple[list[int], int]]) -> None:
    counts = [count for _, count in turns]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    steps = [Step(tuple(tokens), start) for (tokens, _), start in zip(turns, starts, strict=True)]
    generated = np.arange(1000, 1000 + sum(counts), dtype=np.int32)
    (one,) = passes(steps, generated)
    sequence, places = [*one.prompt, *one.tail], one.places + len(one.prompt)
    assert [sequence[place] for place in places] == generated.tolist()
    assert [token for token in sequence if token < 1000] == [token for tokens, _ in turns for token in tokens]
    for step in steps:  # what a turn was given comes directly before what it generated
        first = places[step.start]
        assert tuple(sequence[first - len(step.given) : first]) == step.given


def test_a_turn_that_drops_earlier_tokens_is_routed_as_its_own_request(
    engine: TransformersEngine, tmp_path: Path
) -> None:
    tokens = GENERATED
    steps = [{"given": [5, 6, 7, 8], "start": 0}, {"given": [9, 10], "start": 5, "kept": 3}]
    replay(file(tmp_path / "s.jsonl", {"steps": steps}), engine, tmp_path / "steps")
    apart = tmp_path / "apart.jsonl"
    apart.write_text(
        "".join(
            json.dumps({"problem_id": name, "prompt_ids": prompt, "token_ids": own}) + "\n"
            for name, prompt, own in (("a", [5, 6, 7, 8], tokens[:5]), ("b", [5, 6, 7, 9, 10], tokens[5:]))
        )
    )
    replay(apart, engine, tmp_path / "apart")
    pool = open_pool(tmp_path / "steps")
    (trajectory,) = pool.group("t").rollouts
    requests = [open_pool(tmp_path / "apart").group(name).rollouts[0] for name in ("a", "b")]
    assert np.array_equal(trajectory.expert_ids, np.concatenate([one.expert_ids for one in requests]))
    joined = np.concatenate([one.sampled_logprobs for one in requests])
    assert trajectory.sampled_logprobs == pytest.approx(joined, abs=1e-5)
    assert [step.kept for step in trajectory.steps] == [None, 3]
    assert trajectory.starts.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"steps": "x"}, "steps must be a list of objects with given and start, and kept, got x"),
        ({"steps": [{"given": [1]}]}, "steps must be a list of objects with given and start"),
        ({"steps": [{"given": [1], "start": "0"}]}, "start and kept of a step must be whole numbers"),
        ({"steps": [{"given": [], "start": 0}]}, r"given of step 0 must be token ids in \[0, 515\), at least one"),
        ({"steps": [{"given": [515], "start": 0}]}, "given of step 0 must be token ids"),
        ({"steps": [{"given": [1], "start": 1}]}, r"steps must start at offsets rising from 0 .* got \[1\]"),
        ({"steps": [*STEPS, {"given": [1], "start": 12}]}, "line 1: steps must start at offsets rising from 0"),
        ({"steps": [{"given": [1], "start": 0, "kept": 1}]}, "step 0 keeps 1 tokens of the one before it, which has 0"),
        ({"prompt_ids": [5, 6]}, "prompt_ids are not what the first step was given; leave them out"),
        ({"token_ids": None, "text": "so"}, "has steps, which are counted in tokens: it needs token_ids"),
        ({"steps": [{"given": [1] * 250, "start": 0}]}, r"has 250 \+ 12 tokens and the model's context is 256"),
    ],
)
def test_bad_steps_are_one_line(engine: TransformersEngine, tmp_path: Path, record: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        replay(file(tmp_path / "r.jsonl", record), engine, tmp_path / "pool")


def test_what_is_counted_in_tokens_is_not_retokenised(engine: TransformersEngine, tmp_path: Path) -> None:
    replay(file(tmp_path / "r.jsonl", {}), engine, tmp_path / "pool")
    with pytest.raises(InputError, match="is a trajectory, whose steps are counted in tokens"):
        replay(tmp_path / "pool", engine, tmp_path / "again", retokenise=True)
