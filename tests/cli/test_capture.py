"""`radmoe capture`, from a checkpoint on disk to a pool on disk, through kills and interrupts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import radmoe.cli as cli
import tiny_moe
from planted_pools import faults_of
from radmoe.errors import PoolIncomplete
from radmoe.pool import Pool, merge_pools, open_pool, schema

Run = Callable[..., str]
PROBLEMS = 5


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_moe.save(tmp_path_factory.mktemp("models") / "tiny", chat=True)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    file.write_text("".join(f'{{"id": "q{i}", "prompt": "So the sum is {i}"}}\n' for i in range(PROBLEMS)))
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process: stdout, or the one error line when a failure is expected."""

    def call(*arguments: object, expect: int = 0) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["radmoe", "capture", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        assert (exit_.value.code or 0) == expect, said.out + said.err
        if not expect:
            assert said.err == ""
            return said.out
        (line,) = said.err.splitlines()
        return line

    return call


def settings(checkpoint: Path, prompts: Path, out: Path) -> list[object]:
    return ["--model", checkpoint, "--data", prompts, "--out", out, "-n", 4, "--max-tokens", 20, "--threads", 1]


def tokens(pool: Path) -> dict[tuple[str, int], list[int]]:
    opened = open_pool(pool)
    return {
        (p, i): opened.group(p).rollouts[k].token_ids.tolist()
        for p in opened.problems
        for k, i in enumerate(opened.rollout_indices(p))
    }


def test_a_pool_holds_every_rollout_with_its_routing(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    said = run(*settings(checkpoint, prompts, out), "--temperature", 0.9, "--batch-size", 6)
    assert "5 problems x 4 rollouts, router 3x8 top-4" in said
    assert faults_of(out) == []
    pool = open_pool(out)
    assert pool.problems == [f"q{i}" for i in range(PROBLEMS)]
    assert (pool.model, pool.task, pool.style) == ("tiny", "p", None)
    wanted = {"temperature": 0.9, "top_p": 1.0, "max_tokens": 20, "seed": 0, "topk_logprobs": 20, "raw": False}
    assert pool.sampling == wanted | {"engine": "transformers", "dtype": "float32"}
    (where,) = pool.provenance.values()
    assert set(where) == {"radmoe", "versions", "python", "host", "checkpoint"}
    assert set(where["versions"]) == {"torch", "transformers"}
    runs = pool.runs().to_pylist()
    assert {r["prompt"] for r in runs if r["problem_id"] == "q1"} == {"<think>user: So the sum is 1</think><think>"}
    assert {r["finish_reason"] for r in runs} <= {"stop", "length"}
    tokenizer = tiny_moe.tokenizer()
    engine = tiny_moe.engine("qwen3-moe")
    for problem in pool.problems[:2]:
        prompt = tokenizer(next(r["prompt"] for r in runs if r["problem_id"] == problem))["input_ids"]
        for rollout in pool.group(problem).rollouts:
            ids, _ = engine.teacher_forced(prompt + rollout.token_ids.tolist())
            rows = np.sort(ids[len(prompt) - 1 : -1], -1)
            assert np.array_equal(rows, np.sort(rollout.expert_ids, -1))
            assert rollout.topk_logprobs.shape == (len(rollout), 20)


@pytest.mark.slow
def test_compact_captures(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    base = [*settings(checkpoint, prompts, tmp_path / "ids"), "--limit", 2, "--seed", 3]
    run(*base, "--ids-only", "--no-logprobs", "--layers", "0,2", "--raw")
    pool = open_pool(tmp_path / "ids")
    assert not pool.has_weights
    rollout = pool.group("q0").rollouts[0]
    assert rollout.sampled_logprobs is None
    assert (np.diff(rollout.expert_ids, axis=-1) > 0).all()
    assert rollout.expert_ids.shape[1:] == (2, 4)
    assert pool.runs().to_pylist()[0]["prompt"] == "So the sum is 0"
    window = [*settings(checkpoint, prompts, tmp_path / "w"), "--limit", 1, "--readouts", "nonsense@4"]
    assert "unknown readout family 'nonsense'" in run(*window, expect=2)
    window[-1] = "delimiter@16, boundary@16"
    assert "depends on its kind: give a kind" in run(*window, expect=2)
    assert "unknown kind 'poetry'" in run(*window, "--kind", "poetry", expect=2)
    run(*window, "--kind", "code")
    pool = open_pool(tmp_path / "w")
    assert pool.profile.readouts == ("delimiter@16", "boundary@16")
    assert pool.kinds == {"q0": "code"}


def test_running_again_samples_nothing_more(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    first = json.loads(run(*settings(checkpoint, prompts, out), "--limit", 2, "--json"))
    before = tokens(out)
    again = json.loads(run(*settings(checkpoint, prompts, out), "--limit", 2, "--json"))
    assert (first["sampled"], again["sampled"], again["tokens"]) == (8, 0, 0)
    more = json.loads(run(*settings(checkpoint, prompts, out), "--json", "--batch-size", 3))
    assert more["sampled"] == 12
    assert tokens(out).items() >= before.items()
    line = run(*settings(checkpoint, prompts, out), "--seed", 1, expect=2)
    assert "was made with sampling.seed = 0, this writer has 1: use a new pool" in line


def test_n_may_be_raised(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    run(*settings(checkpoint, prompts, tmp_path / "at once"), "-n", 6)
    run(*settings(checkpoint, prompts, tmp_path / "pool"), "-n", 4)
    more = json.loads(run(*settings(checkpoint, prompts, tmp_path / "pool"), "-n", 6, "--json"))
    assert more["sampled"] == 2 * PROBLEMS
    assert tokens(tmp_path / "pool") == tokens(tmp_path / "at once")


@pytest.mark.slow
def test_parts_merge_into_what_one_worker_captures(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    run(*settings(checkpoint, prompts, tmp_path / "whole"))
    for part in (2, 1):
        run(*settings(checkpoint, prompts, tmp_path / f"part-{part}"), "--part", f"{part}/2")
    merged = merge_pools([tmp_path / "part-2", tmp_path / "part-1"], tmp_path / "merged")
    assert merged.problems == open_pool(tmp_path / "whole").problems
    assert tokens(tmp_path / "merged") == tokens(tmp_path / "whole")
    base = settings(checkpoint, prompts, tmp_path / "none")
    assert "--part 'half' is no share of the problems" in run(*base, "--part", "half", expect=2)
    assert "part 3 of 2 does not exist" in run(*base, "--part", "3/2", expect=2)


@pytest.mark.slow
def test_a_kind_is_recorded_as_the_lines_or_the_option_say(run: Run, checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    file.write_text('{"id": "a", "prompt": "x", "kind": "code"}\n{"id": "b", "prompt": "y"}\n')
    run(*settings(checkpoint, file, tmp_path / "pool"))
    assert open_pool(tmp_path / "pool").kinds == {"a": "code", "b": None}
    line = run(*settings(checkpoint, file, tmp_path / "other"), "--kind", "text", expect=2)
    assert "line 1 is of kind code, --kind text contradicts it" in line
    run(*settings(checkpoint, file, tmp_path / "other"), "--kind", "code")
    assert open_pool(tmp_path / "other").kinds == {"a": "code", "b": "code"}


def child(arguments: list[object]) -> subprocess.Popen[str]:
    code = (  # a shell's background jobs ignore SIGINT, and their children inherit that
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from radmoe.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "capture", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def wait_for_rollouts(out: Path, process: subprocess.Popen[str], size: int) -> None:
    """Until the child's journal holds this many bytes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if sum(f.stat().st_size for f in out.glob(f"token_data_*/{schema.JOURNAL}")) >= size:
            return
        time.sleep(0.005)
    process.kill()
    pytest.fail(f"no rollouts appeared: {process.communicate()}")


@pytest.mark.slow
def test_a_killed_capture_goes_on_with_the_missing_rollouts(
    run: Run, checkpoint: Path, prompts: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    size = ["-n", 12, "--max-tokens", 30, "--batch-size", 4]
    run(*settings(checkpoint, prompts, whole), *size)
    with child(settings(checkpoint, prompts, killed) + size) as process:
        wait_for_rollouts(killed, process, 60_000)
        process.send_signal(signal.SIGKILL)
    with pytest.raises(PoolIncomplete):
        open_pool(killed)
    told = json.loads(run(*settings(checkpoint, prompts, killed), *size, "--json"))
    assert 0 < told["sampled"] < 12 * PROBLEMS
    assert faults_of(killed) == []
    assert tokens(killed) == tokens(whole)


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on(checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    with child([*settings(checkpoint, prompts, out), "-n", 500, "--max-tokens", 40, "--batch-size", 4]) as process:
        wait_for_rollouts(out, process, 30_000)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
    (line,) = err.splitlines()
    match = re.search(r"interrupted: ([\d,]+) rollouts are safe in (\S+): run the same command to go on", line)
    assert match is not None, line
    assert match[2] == str(out)
    assert len(Pool.recover(out)) == int(match[1].replace(",", "")) > 0
    assert faults_of(out) == []


@pytest.mark.slow
def test_errors_are_one_line(run: Run, checkpoint: Path, prompts: Path, tmp_path: Path) -> None:
    base, out = settings(checkpoint, prompts, tmp_path / "pool"), tmp_path / "pool"
    assert "at least 1 rollout per problem, got n = 0" in run(*base, "-n", 0, expect=2)
    assert "batch_size must be at least 1" in run(*base, "--batch-size", 0, expect=2)
    assert "limit must be at least 1" in run(*base, "--limit", 0, expect=2)
    assert "temperature must be 0" in run(*base, "--temperature", -1, expect=2)
    line = run(*settings(Path("no/such-model"), prompts, out), expect=2)
    assert "no model 'no/such-model': use lab-qwen, lab-oss, lab-next, lab-agent-qwen, a checkpoint directory" in line
    assert "has no config.json" in run(*settings(tmp_path, prompts, out), expect=2)
    assert "layer subset '9' leaves" in run(*base, "--layers", "9", expect=2)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a"}\n{"prompt"\n')
    assert f"{bad} line 2 is not JSON" in run(*settings(checkpoint, bad, out), expect=2)
    bad.write_text(json.dumps({"id": "big", "prompt": "So " * 400}))
    assert "prompt 'big' has" in run(*settings(checkpoint, bad, out), expect=2)
    assert not out.exists()  # nothing was sampled, so nothing is left to stand in the way of the next try


def test_a_model_of_the_local_cache_is_found_by_name(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    from radmoe.engines.models import resolve_model

    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(checkpoint)
    refs = tmp_path / "models--someone--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert (resolve_model("someone/tiny") / "config.json").is_file()


@pytest.mark.slow
def test_importing_the_command_imports_nothing_heavy() -> None:
    code = "import sys, radmoe.cli.capture; print([m for m in ('numpy', 'torch', 'transformers', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_adaptive_capture_says_how_many_problems_stopped_and_why(
    run: Run, checkpoint: Path, prompts: Path, tmp_path: Path
) -> None:
    rule = ["--adaptive", "--min-n", 2, "--patience", 1, "--kind", "text"]
    said = run(*settings(checkpoint, prompts, tmp_path / "p"), *rule, "--json")
    body = json.loads(said)
    assert sum(body["stopped"].values()) == PROBLEMS
    pool = open_pool(tmp_path / "p")
    assert body["rollouts"] == len(pool)
    assert pool.sampling["adaptive"] == {"min_n": 2, "patience": 1, "preset": "paper"}
    again = run(*settings(checkpoint, prompts, tmp_path / "p"), *rule)
    assert f"{len(pool)} rollouts as needed" in again
    assert f"{len(pool)} of them from before" in again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-n", 4], "--min-n belongs to --adaptive"),
        (["--patience", 4], "--patience belongs to --adaptive"),
        (["--preset", "best"], "--preset belongs to --adaptive"),
        (["--adaptive", "--patience", 0], "patience must be a whole number of rollouts from 1 up, got 0"),
        (["--adaptive"], "'q0' looks like: give its kind"),
        (["--adaptive", "--kind", "math", "--readouts", "boundary@4"], "keep delimiter@16 too"),
    ],
)
def test_an_adaptive_capture_that_cannot_be_is_refused(
    run: Run, checkpoint: Path, prompts: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    assert message in run(*settings(checkpoint, prompts, tmp_path / "p"), *options, expect=2)
