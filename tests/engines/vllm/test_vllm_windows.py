"""What leaves the worker is what the pool keeps, and the pool is that of a full capture."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from radmoe.engines.base import Completion, Sampling
from radmoe.engines.vllm.plugin import STATUS
from radmoe.engines.vllm.plugin.payload import decode
from radmoe.errors import InputError
from radmoe.pool import PoolWriter, Profile, open_pool, schema
from radmoe.types import Kind
from vllm_parts import OPTIONS, shipped

pytestmark = pytest.mark.skipif(shipped("lab-qwen") is None, reason="random weights write no anchors")
GREEDY = Sampling(temperature=0, max_tokens=120, topk_logprobs=0)
ROW = 8 * 3  # bytes of a layer: top-8, an id and a weight


class Sampled(NamedTuple):
    """Rollouts, and the bytes of each payload that left the worker for them."""

    done: list[Completion]
    sent: list[int]


def sample(engine: Any, profile: Profile | None, kind: Kind = "math") -> Sampled:
    """Rollouts of lab problems, and of one prompt that leads nowhere; a request each."""
    from radmoe.engines.vllm import engine as vllm
    from radmoe_lab.tasks import problems

    prompts = [engine.encode(p.prompt) for p in problems("math-2", limit=5)] + [[3, 1, 4]]
    sizes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm, "decode", lambda payload: sizes.append(len(payload)) or decode(payload))
        running = engine.generate(prompts, 1, sampling=GREEDY, kinds=[kind] * len(prompts), profile=profile)
        return Sampled(list(running), sizes)


def write(engine: Any, sampled: Sampled, path: Path, profile: Profile, kind: Kind = "math") -> dict[str, bytes]:
    """Write a pool; its files by their names."""
    with PoolWriter(path, shape=engine.shape, vocab=engine.vocab, model="lab", profile=profile) as writer:
        for c in sampled.done:
            writer.add(f"p{c.prompt_index}", c.rollout, kind=kind, rollout_index=c.rollout_index)
    assert open_pool(path).verify() == []
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def full(engine: Any) -> Sampled:
    return sample(engine, None)


@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        (Profile(readouts=("delimiter@16",)), "math"),
        (
            Profile(readouts=("delimiter@marker", "boundary@4", "trajectory:so@8", "pre-delim@16"), layers=(0, 3, 10)),
            "math",
        ),
        (Profile(readouts=("boundary: is@union", "boundary@union")), "agent"),
    ],
    ids=["headline", "several", "agent"],
)
def test_a_windowed_capture_is_the_full_one(
    engine: Any, full: Sampled, tmp_path: Path, profile: Profile, kind: Kind
) -> None:
    windowed = sample(engine, profile, kind)
    files = [
        write(engine, sampled, tmp_path / name, profile, kind) for name, sampled in (("part", windowed), ("full", full))
    ]
    assert files[0] == files[1]
    tokens = sum(len(c.rollout) for c in full.done)
    counts = [len(r.positions) for group in open_pool(tmp_path / "full").groups() for r in group.rollouts]
    assert sorted(counts) == sorted(len(c.rollout.expert_ids) for c in windowed.done)  # nothing else came
    print(f"{sum(counts)} of {tokens} rows, {sum(windowed.sent):,} of {sum(full.sent):,} bytes")
    assert 0 in counts  # a rollout without an anchor, dropped in the worker
    assert 0 < sum(counts) < tokens / 2
    assert len(windowed.sent) == len(full.sent) == 6
    row = 4 + 11 * ROW  # and the number of its token
    assert abs(sum(windowed.sent) - sum(counts) * row) < 6 * 500  # headers
    assert sum(full.sent) > tokens * row
    status = engine.llm.collective_rpc(STATUS)[0]
    assert status["requests"] == status["bytes"] == 0


@pytest.fixture(scope="module")
def shallow(checkpoint: Any) -> Iterator[Any]:
    from radmoe.engines.vllm.engine import VllmEngine

    made = VllmEngine(checkpoint("lab-qwen"), dtype="float32", layers="s0", enable_prefix_caching=True, **OPTIONS)
    yield made
    made.close()


@pytest.mark.parametrize("readouts", [None, ("delimiter@16",)])
def test_a_worker_that_captures_some_layers_makes_their_pool(
    engine: Any, full: Sampled, shallow: Any, tmp_path: Path, readouts: tuple[str, ...] | None
) -> None:
    profile = Profile(layers=(0,), readouts=readouts)
    assert shallow.layers == (0,)
    assert shallow.shape == engine.shape
    sampled = sample(shallow, profile)
    assert write(shallow, sampled, tmp_path / "shallow", profile) == write(engine, full, tmp_path / "full", profile)
    print(f"{sum(sampled.sent):,} of {sum(full.sent):,} bytes")
    assert sum(sampled.sent) < sum(full.sent) / 6


def test_layers_that_are_not_captured_cannot_be_kept(shallow: Any) -> None:
    for profile in (None, Profile(), Profile(layers=(0, 1))):
        with pytest.raises(InputError, match="only layers 0 are captured here"):
            shallow.generate([[1, 2, 3]], 1, profile=profile)


@pytest.mark.slow
def test_the_command_captures_windows_of_layers(checkpoint: Any, engine: Any, tmp_path: Path) -> None:
    """The pool of `radmoe capture --layers --readouts` has the rows of a full capture at temperature 0."""
    file = tmp_path / "prompts.jsonl"
    prompts = [f"Start with {i}. Add {7 * i}. What do you get?" for i in range(4)]
    file.write_text("\n".join(json.dumps({"id": f"p{i}", "prompt": prompt}) for i, prompt in enumerate(prompts)))
    options = (
        "-n 1 --temperature 0 --max-tokens 120 --dtype float32 --layers s0 --readouts delimiter@16 --kind math "
        f"--data {file}"
    )
    command = [sys.executable, "-m", "radmoe", "capture", "--engine", "vllm", "--model", str(checkpoint("lab-qwen"))]
    subprocess.run([*command, *options.split(), "--out", str(tmp_path / "pool")], check=True, capture_output=True)
    body = json.loads((tmp_path / "pool" / schema.POOL_JSON).read_text())
    assert (body["layers"], body["run"]["profile"]["layers"]) == (11, [0])
    pool, located = open_pool(tmp_path / "pool"), 0
    for done in engine.generate(prompts, 1, sampling=GREEDY):
        (stored,) = pool.group(f"p{done.prompt_index}").rollouts
        assert np.array_equal(stored.token_ids, done.rollout.token_ids)
        if len(stored.positions):
            located += 1
            start, stop = int(stored.positions[0]), int(stored.positions[-1]) + 1
            ids, weights = stored.rows(start, stop)
            assert np.array_equal(ids, done.rollout.expert_ids[start:stop, :1])
            assert np.allclose(weights, done.rollout.weights[start:stop, :1], atol=1e-3)
    assert located > 0
