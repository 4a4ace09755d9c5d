"""Rollouts for shipping: those of capture, sampled where there is little but torch, in a file that appears whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from radmoe.capture import Plan, capture_pool, sampling_for
from radmoe.engines import EngineOptions, open_engine
from radmoe.errors import InputError
from radmoe.pool import Pool, open_pool
from radmoe.problems import load_questions
from radmoe_lab import sample as sampling
from radmoe_lab.models import MODELS, weights
from radmoe_lab.sample import FINISH_REASONS, checksums, main, read_header, read_sampled, sample

pytestmark = pytest.mark.slow

TASKS = ("math-1", "code")
OPTIONS = {"n": 3, "limit": 2, "seed": 5, "batch_size": 8, "max_tokens": 120}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample(
        "lab-qwen", "instruct", tmp_path_factory.mktemp("sampled"), tasks=TASKS, command="as typed", **OPTIONS
    )


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pool]:
    """The same rollouts by capture, with another batch size."""
    out = tmp_path_factory.mktemp("captured")
    engine = open_engine("transformers", "lab-qwen", EngineOptions())
    for task in TASKS:
        questions, _ = load_questions(task, seed=5, limit=2)
        settings = sampling_for(engine, seed=5, max_tokens=120)
        capture_pool(Plan(questions, engine, settings, n=3, task=task, style="instruct", batch_size=3), out / task)
    return {task: open_pool(out / task) for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_rollouts_are_those_of_capture(task: str, file: Path, captured: dict[str, Pool]) -> None:
    pool, rollouts = captured[task], read_sampled(file).tasks[task]
    groups = list(pool.groups())
    tokens = [one.token_ids for group in groups for one in group.rollouts]
    assert read_header(file)["settings"]["problems"][task] == pool.problems
    assert rollouts.lengths.ravel().tolist() == list(map(len, tokens))
    assert np.array_equal(rollouts.tokens, np.concatenate(tokens))
    sums = [one.sampled_logprobs.sum(dtype=np.float64) for group in groups for one in group.rollouts]
    assert np.allclose(rollouts.logprobs.ravel(), sums, atol=1e-3, rtol=0)
    assert [FINISH_REASONS[reason] for reason in rollouts.finish_reasons.ravel()] == pool.runs(["finish_reason"])[
        "finish_reason"
    ].to_pylist()


def test_the_routing_of_the_first_problem_is_kept_as_captured(file: Path, captured: dict[str, Pool]) -> None:
    sampled = read_sampled(file)
    members = next(iter(captured["math-1"].groups())).rollouts
    ids = np.concatenate([one.expert_ids for one in members])
    assert sampled.expert_ids.shape == sampled.weights.shape == ids.shape
    equal = (np.sort(sampled.expert_ids, -1) == np.sort(ids, -1)).all(-1)
    assert equal.mean() > 0.999


def test_the_header_says_how_it_was_sampled(file: Path) -> None:
    header = read_header(file)
    assert header["settings"]["sampling"] == {
        "temperature": MODELS["lab-qwen"].temperature,
        "top_p": MODELS["lab-qwen"].top_p,
        "max_tokens": 120,
        "seed": 5,
        "topk_logprobs": 20,
    }
    assert header["settings"]["checkpoint"] == checksums(weights("lab-qwen"))
    assert (header["command"], header["router"], header["settings"]["dtype"]) == ("as typed", [11, 32, 8], "float32")
    assert header["tokens"] == sum(len(task.tokens) for task in read_sampled(file).tasks.values())
    assert header["tokens_per_second"] == pytest.approx(header["tokens"] / header["seconds"])


def test_a_file_of_the_same_settings_is_kept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    again = sample("lab-qwen", "instruct", file.parent, tasks=TASKS, **OPTIONS | {"batch_size": 2})
    assert (again, file.read_bytes()) == (file, before)
    assert "is there already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "name"), [({"n": 2}, "n"), ({"seed": 6}, "problems"), ({"max_tokens": 9}, "sampling")]
)
def test_a_file_of_other_settings_is_refused_and_stays(change: dict[str, int], name: str, file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(InputError, match=rf"was sampled with other settings \({name}\): use another --out"):
        sample("lab-qwen", "instruct", file.parent, tasks=TASKS, **OPTIONS | change)
    assert file.read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"no archive at all"])
def test_a_file_that_holds_no_rollouts_is_one_line(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lab-qwen-instruct.npz"
    path.write_bytes(damage)
    for read in (read_header, read_sampled):
        with pytest.raises(InputError, match=r"holds no rollouts that can be read .*: sample it again"):
            read(path)


def test_half_a_file_is_refused(file: Path, tmp_path: Path) -> None:
    path = tmp_path / file.name
    path.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(InputError, match="holds no rollouts"):
        read_sampled(path)


def test_a_write_that_fails_leaves_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sampling.np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        sampling.write_sampled(tmp_path / "x.npz", read_sampled(file))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lab-x", "--style", "low"], "unknown lab model 'lab-x'"),
        (["lab-qwen", "--style", "low"], "lab-qwen has no style 'low'"),
        (["lab-qwen", "--style", "thinking", "--task", "aime_2024"], "unknown task 'aime_2024'"),
        (["lab-qwen", "--style", "thinking", "-n", "0"], "-n must lie between 1 and 255, got 0"),
        (["lab-qwen", "--style", "thinking", "--limit", "0"], "limit must be at least 1"),
        (["lab-qwen", "--style", "thinking", "--device", "toaster"], "device 'toaster' cannot be used here"),
        (["lab-qwen", "--style", "thinking", "--device", "cpu", "--weights", "nowhere"], "nowhere is no checkpoint"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--out", str(tmp_path / "out")])
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("radmoe: error: ")
    assert message in line
    assert not (tmp_path / "out").exists()


def test_it_runs_where_only_torch_transformers_and_numpy_are_and_names_no_directory(tmp_path: Path) -> None:
    """The machines with a GPU have none of these packages."""
    code = """
import sys
hidden = {"pyarrow", "blosc2", "typer", "click", "scipy", "sklearn", "rich", "pandas"}
class Without:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name): return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
from radmoe_lab.sample import main
main()
"""
    arguments = ["lab-qwen", "--style", "thinking", "--task", "math-1", "-n", "2", "--limit", "1", "--max-tokens", "40"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--device", "cpu", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "2 rollouts" in done.stdout.splitlines()[-1]
    assert "tokens/s" in done.stdout.splitlines()[-1]
    header = read_header(tmp_path / "out" / "lab-qwen-thinking.npz")
    assert header["command"] == (
        "python -m radmoe_lab.sample lab-qwen --style thinking --task math-1 -n 2 --limit 1 --max-tokens 40 "
        "--out out --device cpu"
    )
    assert str(tmp_path) not in json.dumps(header)
