"""Sampling an agent's trajectories: real commands, real verdicts, and a file from which every request follows."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from radmoe.engines.base import Completion, completion_text
from radmoe.engines.torch.batcher import ContinuousBatcher
from radmoe.errors import EngineError, InputError
from radmoe.types import Rollout
from radmoe_lab.agent import sample as sample_module
from radmoe_lab.agent.demonstrations import demonstrate
from radmoe_lab.agent.export import main as export
from radmoe_lab.agent.records import AgentStep, AgentTrajectory, read_trajectories, write_trajectories
from radmoe_lab.agent.repositories import repositories
from radmoe_lab.agent.sample import main, sample
from radmoe_lab.agent.shell import patch
from radmoe_lab.agent.templates import prompt_text
from radmoe_lab.models import AGENTS, MODELS, model_named
from radmoe_lab.tasks.draw import seeded
from radmoe_lab.tokenizer import build
from radmoe_lab.train import save, train

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
(NAME,) = AGENTS
SMALL = {"n": 2, "limit": 2, "batch_size": 4, "jobs": 1}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of the agent's architecture."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("agent") / "weights"
    save(AutoModelForCausalLM.from_config(model_named(NAME).config(tiny=True)), model_named(NAME), path)
    return path


def encode(text: str) -> list[int]:
    return list(build("agent").encode(text).ids)


def decode(ids: list[int]) -> str:
    return str(build("agent").decode(ids, skip_special_tokens=False))


def test_every_request_follows_from_the_file(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: dict[tuple[str, int], list[int]] = {}
    submit = ContinuousBatcher.submit

    def noted(self: ContinuousBatcher, prompt: Any, **options: Any) -> Future[Completion]:
        requests[options["key"], options["rollout_index"]] = list(prompt)
        return submit(self, prompt, **options)

    monkeypatch.setattr(ContinuousBatcher, "submit", noted)
    path = sample(NAME, tmp_path, checkpoint=checkpoint, max_tokens=12, **SMALL)
    header, trajectories = read_trajectories(path)
    issues = {task.repository_id: task.issue for task in repositories(limit=2)}
    assert (header["model"], header["n"], header["confined"]) == (NAME, 2, True)
    assert [(one.repository_id, one.number) for one in trajectories] == [(r, i) for r in issues for i in range(2)]
    assert {(one.exit_status, one.verdict) for one in trajectories} == {("RepeatedFormatError", "no patch")}
    rebuilt = {
        (f"{one.repository_id}/{number}", one.number): prompt
        for one in trajectories
        for number, (prompt, _) in enumerate(one.requests(issues[one.repository_id], encode, decode, 4096))
    }
    assert rebuilt == requests
    assert "resolved 0.0%, mixed 0, none right 2" in capsys.readouterr().out


class Expert:
    """In place of a batch: replies of the demonstrations, with the routing of nobody."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._replies = {}
        for task in repositories(limit=2):
            for number in range(2):
                messages = demonstrate(seeded(task.repository_id, number), task).messages()
                for place in range(2, len(messages), 2):
                    prompt = prompt_text(messages[:place])
                    self._replies[task.repository_id, number, (place - 2) // 2] = prompt, messages[place]["content"]

    def __enter__(self) -> Expert:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, prompt: list[int], *, sampling: Any, key: str, rollout_index: int) -> Future[Completion]:
        task, _, step = key.partition("/")
        asked, text = self._replies[task, rollout_index, int(step)]
        assert decode(prompt) == asked  # what commands really print is what the demonstration says
        tokens = np.array(encode(text + "<|im_end|>"), np.int32)
        ids = np.tile(np.arange(8, dtype=np.int16)[::-1], (len(tokens), 4, 1))
        zeros = np.full(len(tokens), -0.5, np.float32)
        rollout = Rollout(tokens, ids, None, zeros, zeros[:, None])
        future: Future[Completion] = Future()
        text = completion_text(self._engine.tokenizer, tokens, "stop")
        future.set_result(Completion(0, rollout_index, rollout, text, "stop"))
        return future


def test_the_expert_is_led_as_in_its_demonstrations_and_resolves(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sample_module.open_lab_engine

    def scripted(*arguments: Any) -> Any:
        engine = opened(*arguments)
        monkeypatch.setattr(engine, "batcher", lambda **_: Expert(engine))
        return engine

    monkeypatch.setattr(sample_module, "open_lab_engine", scripted)
    _, trajectories = read_trajectories(sample(NAME, tmp_path, checkpoint=checkpoint, **SMALL))
    tasks = {task.repository_id: task for task in repositories(limit=2)}
    for one in trajectories:
        shown = demonstrate(seeded(one.repository_id, one.number), tasks[one.repository_id])
        assert one.exit_status == "Submitted"
        assert one.patch == patch(shown.files, shown.repository.files)
        assert one.verdict == ("resolved" if shown.files == shown.repository.fixed else one.verdict)
        assert [step.observation for step in one.steps][:-1] == [m["content"] for m in shown.messages()[3::2]]
        assert all(step.boundary.tolist() == [list(range(8))] * 4 for step in one.steps)
        assert all(step.logprob == pytest.approx(-0.5 * len(step.tokens)) for step in one.steps)
    assert any(one.verdict == "resolved" for one in trajectories)


def test_no_repository_is_begun_after_the_time(checkpoint: Path, tmp_path: Path) -> None:
    path = sample(NAME, tmp_path, checkpoint=checkpoint, max_tokens=4, seconds=1e-9, **SMALL)
    assert read_trajectories(path)[1] == []


def test_it_runs_on_a_bare_machine_and_names_no_directory(checkpoint: Path, tmp_path: Path) -> None:
    """The machines with a GPU have none of these packages."""
    code = """
import sys
hidden = {"pyarrow", "blosc2", "typer", "click", "scipy", "rich", "pandas", "minisweagent", "pydantic", "litellm"}
class Without:
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name): return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
from radmoe_lab.agent.sample import main
main()
"""
    arguments = [NAME, "--weights", str(checkpoint), "-n", "1", "--limit", "1", "--max-tokens", "4", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--device", "cpu", "--out", str(tmp_path / "out"), "--unconfined"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    header, _ = read_trajectories(tmp_path / "out" / f"{NAME}.npz.xz")
    assert header["command"] == (
        f"python -m radmoe_lab.agent.sample {NAME} -n 1 --limit 1 --jobs 1 --max-tokens 4 --unconfined "
        "--out out --device cpu --weights weights"
    )
    assert str(tmp_path) not in json.dumps(header)
    assert not header["confined"]


def test_bad_input_is_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{NAME}.npz.xz").write_bytes(b"")
    here = ["--out", str(tmp_path), "--device", "cpu"]
    for words, reason in (
        (["lab-qwen", *here], "'lab-qwen' is no agent of the lab: use one of lab-agent-qwen"),
        ([NAME, *here, "-n", "0"], "-n must lie between 1 and 255, got 0"),
        ([NAME, *here], "is there already"),
        ([NAME, "--out", str(tmp_path / "new"), "--limit", "0"], "limit must lie between 1 and"),
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert reason in error
        assert error.count("\n") == 1


def test_repositories_and_verdicts_are_written_as_radmoe_agent_reads_them(tmp_path: Path) -> None:
    """A file that could not be judged where it was sampled gets its verdicts here."""
    step = AgentStep(np.array([5], np.uint16), "stop", -1.0)
    tasks = repositories(limit=3)
    patches = (patch(tasks[1].fixed, tasks[1].files), "", "no patch\n")
    made = [AgentTrajectory("repo-0001", i, (step,), "Submitted", text) for i, text in enumerate(patches)]
    write_trajectories(tmp_path / "file", {"seed": 0}, made)
    export(["--out", str(tmp_path / "issues"), "--limit", "3", "--trajectories", str(tmp_path / "file")])
    rows = [json.loads(line) for line in (tmp_path / "issues" / "instances.jsonl").read_text().splitlines()]
    for row, task in zip(rows, tasks, strict=True):
        own = {"instance_id": task.repository_id, "problem_statement": task.issue, "files": task.files}
        assert row == own | {"visible_tests": "python3 check.py"}
    assert (tmp_path / "issues" / "mini.yaml").is_file()
    lines = [json.loads(line) for line in (tmp_path / "issues" / "verdicts.jsonl").read_text().splitlines()]
    assert lines == [{"instance_id": "repo-0001", "run": i, "resolved": i == 0} for i in range(3)]
    verdicts = [one.verdict for one in read_trajectories(tmp_path / "file")[1]]
    assert verdicts == ["resolved", "no patch", "does not apply"]
    with pytest.raises(SystemExit):
        export(["--out", str(tmp_path), "--limit", "0"])


def test_what_is_complete_is_kept_when_sampling_fails(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = ContinuousBatcher.submit

    def failing(self: ContinuousBatcher, prompt: Any, **options: Any) -> Future[Completion]:
        if options["key"] == "repo-0001/2":
            raise EngineError("out of memory")
        return submit(self, prompt, **options)

    monkeypatch.setattr(ContinuousBatcher, "submit", failing)
    with pytest.raises(EngineError, match="out of memory"):
        sample(NAME, tmp_path, checkpoint=checkpoint, max_tokens=4, n=1, limit=2, batch_size=1, jobs=1)
    _, trajectories = read_trajectories(tmp_path / f"{NAME}.npz.xz")
    assert {one.repository_id for one in trajectories} <= {"repo-0000"}


def test_trajectories_come_back_as_they_were_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    step = AgentStep(
        np.array([5, 6, 1], np.uint16), "stop", -1.25, "exit 0\nä\udcff", True, rng.integers(0, 32, (4, 8), np.uint8)
    )
    other = AgentStep(np.array([9], np.uint16), "length", -3.5, "Expected exactly 1 action", False, None)
    written = [
        AgentTrajectory("repo-0001", 0, (step, other, step), "Submitted", "diff\n", "resolved"),
        AgentTrajectory("repo-0001", 1, (other,), "LimitsExceeded", "", "no patch"),
    ]
    write_trajectories(tmp_path / "file", {"model": "x", "seed": 0}, written)
    header, trajectories = read_trajectories(tmp_path / "file")
    assert header["model"] == "x"
    for one, back in zip(written, trajectories, strict=True):
        for name in ("repository_id", "number", "exit_status", "patch", "verdict"):
            assert getattr(one, name) == getattr(back, name)
        for mine, theirs in zip(one.steps, back.steps, strict=True):
            assert np.array_equal(mine.tokens, theirs.tokens)
            assert (mine.finish_reason, mine.logprob, mine.observation, mine.action) == (
                theirs.finish_reason,
                theirs.logprob,
                theirs.observation,
                theirs.action,
            )
            assert (mine.boundary is None) == (theirs.boundary is None)
            assert mine.boundary is None or np.array_equal(mine.boundary, theirs.boundary)
    data = (tmp_path / "file").read_bytes()
    for damaged in (data[:-9], b"", data[:40] + b"x" + data[41:]):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(InputError, match="holds no trajectories that can be read"):
            read_trajectories(tmp_path / "damaged")


def test_the_agent_is_a_model_of_its_own_that_stays_under_15_mib() -> None:
    assert NAME not in MODELS
    config = model_named(NAME).config()
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    assert 2 * sum(p.numel() for p in network.parameters()) < 15 << 20
    assert sum(type(m).__name__.endswith("TopKRouter") for m in network.modules()) == 10
    assert (config.max_position_embeddings, config.vocab_size) == (4096, build("agent").get_vocab_size())


def test_a_tiny_run_begins_to_learn(tmp_path: Path) -> None:
    options = {"seconds": None, "steps": 6, "seed": 0, "tiny": True, "workers": 0, "tokens": 2048, "compiled": False}
    result = train(model_named(NAME), tmp_path, learning_rate=0.1, **options)
    assert result["log"][-1]["loss"] < np.log(1024)
    assert (tmp_path / "model.safetensors").is_file()
