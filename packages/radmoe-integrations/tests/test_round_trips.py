"""Rollouts of a captured pool, written out as each framework writes them and imported, are the same rollouts and picks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import framework_files as files
from command_line import radmoe
from framework_files import Sequence
from radmoe import select
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool

FORMS = ("slime", "verl", "verl dict", "prime-rl", "vllm", "sglang")
TOP = ("prime-rl", "vllm", "sglang")  # formats that carry the largest log-probabilities


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captured") / "pool"
    radmoe("capture", "--model", "lab-qwen", "--task", "math-2", "-n", 6, "--limit", 3, "--seed", 3, "--out", path)
    return path


@pytest.fixture(scope="module")
def every(captured: Path) -> list[Sequence]:
    return files.sequences(captured)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_import_gives_the_captured_rollouts_and_the_same_picks(
    form: str, captured: Path, every: list[Sequence], tmp_path: Path
) -> None:
    source, out = files.write(form, tmp_path, every), tmp_path / "pool"
    done = radmoe("import", form.split()[0], source, "--model", "lab-qwen", "--kind", "math", "--out", out)
    said = done.stdout.splitlines()
    right = int(sum(one.reward for one in every))
    assert said[0] == f"{out}: 3 problems, 18 rollouts, 18 imported now; {right} of 18 right by their rewards"
    assert "100.0% of expert sets agree at the token where two rollouts of a prompt part" in said[1]
    before, after = open_pool(captured), open_pool(out)
    assert not list(after.verify())
    names = dict(zip(before.problems, map(str, range(3)) if form == "slime" else before.problems, strict=True))
    assert after.problems == list(names.values())
    for problem, name in names.items():
        old, new = before.group(problem), after.group(name)
        for a, b in zip(old.rollouts, new.rollouts, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids)
            assert np.array_equal(a.rows(0, len(a))[0], b.rows(0, len(b))[0])
            assert np.array_equal(a.sampled_logprobs, b.sampled_logprobs)
            assert (b.topk_logprobs is not None) == (form in TOP)
            assert b.topk_logprobs is None or np.array_equal(a.topk_logprobs, b.topk_logprobs)
        assert before.texts(problem) == after.texts(name) or form.startswith("verl")  # verl does not say how it ended
        right_before, right_after = (read_labels(path)[one] for path, one in ((captured, problem), (out, name)))
        assert {i: one.correct for i, one in right_before.items()} == {i: one.correct for i, one in right_after.items()}
        assert {i: one.answer for i, one in right_before.items()} == {i: one.answer for i, one in right_after.items()}
        assert select(_without_weights(old)).index == select(new).index


def _without_weights(group):
    from dataclasses import replace

    from radmoe import Rollout

    return replace(group, rollouts=[Rollout(one.token_ids, one.rows(0, len(one))[0]) for one in group.rollouts])
