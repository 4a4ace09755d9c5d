"""`radmoe agent run | import | select | evaluate` as they are typed."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tiny_moe
from command_line import interrupted
from planted_trajectories import write_runs
from radmoe.cli import app
from radmoe.errors import RadmoeError
from radmoe.pool import open_pool
from radmoe_agent.candidates import CANDIDATES, Candidate, read_candidates, write_candidates
from radmoe_agent.commands import agent
from radmoe_agent.commands.screen import MOST_LINES, run_line, say_problems
from radmoe_agent.run import AgentRun
from unpacked import unpack

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def radmoe(*words: object) -> Result:
    """A command in this process: starting torch for each would take most of the time."""
    done = CliRunner(env={"COLUMNS": "120", "RADMOE_CACHE": os.devnull}).invoke(app, ["agent", *map(str, words)])
    assert done.exit_code == 0, (done.exception, done.output)
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny_moe.save(path, max_position_embeddings=2048)
    tokenizer = tiny_moe.PreTrainedTokenizerFast(
        tokenizer_object=tiny_moe.planted.tokenizer(), eos_token="<|im_end|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("issues")
    rows = [{"instance_id": f"i{k}", "problem_statement": "mend", "files": {"a.py": "x = 1\n"}} for k in range(3)]
    (path / "instances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "mini.yaml").write_text('agent: {system_template: "Mend.", instance_template: "{{task}}"}\n')
    return path


def options(model: Path, folder: Path, out: Path, *more: object) -> list[object]:
    run = ["--model", model, "--data", folder, "--config", folder / "mini.yaml", "--out", out, "--threads", 1]
    return ["run", *run, "--max-tokens", 16, "--steps", 3, "--batch-size", 4, *more]


@pytest.mark.slow
def test_a_sampled_run_is_selected_from_and_goes_on(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = json.loads(radmoe(*options(model, folder, out, "-n", 1, "--limit", 2, "--json")).stdout)
    assert (done["instances"], done["trajectories"], done["ran"], done["lost"]) == (2, 2, 2, 0)
    said = radmoe(*options(model, folder, out, "-n", 2)).stdout
    assert "3 issues x 2 trajectories, 4 of them run now" in said
    assert f"radmoe agent select {out}" in said
    assert open_pool(out / "pool").task == folder.name
    assert all(rollout.positions is not None for rollout in open_pool(out / "pool").group("i0").rollouts)
    chosen = radmoe("select", out, "--out", tmp_path / "preds.json")
    assert chosen.stderr.splitlines() == [
        f"radmoe: i{k}: no trajectory can be submitted: the patch is empty" for k in range(3)
    ]
    preds = json.loads((tmp_path / "preds.json").read_text())
    assert [row["model_patch"] for row in preds.values()] == [""] * 3
    assert len((out / "records.jsonl").read_text().splitlines()) == 3


def test_finished_trajectories_are_imported(model: Path, folder: Path, tmp_path: Path) -> None:
    answer = "<think>So</think>```mswea_bash_command\nls\n```"
    for run, patch in enumerate(("+1\n", "+2\n", "")):
        messages = [{"role": "user", "content": "mend"}, {"role": "assistant", "content": answer}]
        info = {"exit_status": "Submitted", "submission": patch, "config": {"model": {"model_name": "m"}}}
        path = tmp_path / f"r{run}" / "i0" / "i0.traj.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"messages": messages, "info": info}))
    runs = [tmp_path / f"r{run}" for run in range(3)]
    done = radmoe("import", *runs, "--model", model, "--out", tmp_path / "in", "--threads", 1)
    assert "1 issues, 3 trajectories, 3 steps; 3 replayed now, 0 cannot be used" in done.stdout
    assert done.stderr == "radmoe: i0, run 2: its patch is empty (it ended with Submitted)\n"
    row = json.loads(radmoe("select", tmp_path / "in", "--json").stdout)
    assert (row["run"], row["why"][:34]) == (0, "its patch has most in common with ")
    assert (tmp_path / "in" / "preds.json").is_file()


@pytest.mark.slow
def test_selectors_are_compared_by_verdicts(tmp_path: Path) -> None:
    verdicts = write_runs(tmp_path / "runs", issues=12)
    rows = [{"instance_id": name, "run": run, "resolved": right} for (name, run), right in verdicts.items()]
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    radmoe("select", tmp_path / "runs")
    done = radmoe("evaluate", tmp_path / "runs", "--labels", tmp_path / "v.jsonl", "--resamples", 200, "--jobs", 1)
    stored = dict(re.findall(r'base64" id="([\w-]+)">([^<]*)<', (tmp_path / "runs" / "patches.html").read_text()))
    shown = [table["title"] for table in unpack(base64.b64decode(stored["index"]))[0]["tables"]]
    assert shown[:2] == ["One patch of N: mixed issues and all", "Selectors on mixed issues"]
    assert f"192 trajectories have a verdict, {sum(verdicts.values())} of them resolve their issue" in done.stderr
    for words in ("One patch of N", "Selectors on mixed issues", "Is it the length?", "What RAD reads", "gpt-oss-120B"):
        assert words in done.stdout
    picks = radmoe("select", tmp_path / "runs", "--json").stdout
    (tmp_path / "runs" / "pool" / "labels.parquet").unlink()
    assert radmoe("select", tmp_path / "runs", "--json").stdout == picks


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["select", "none"], "none has no candidates.jsonl"),
        (["evaluate", "none", "--labels", "a", "--report", "b"], "give --labels or --report, not both"),
        (["import", "none", "--model", "none", "--out", "x"], "no model 'none'"),
        (["run", "--model", "none", "--out", "x"], "radmoe agent run needs --data: a folder with instances.jsonl"),
        (["run", "--model", "none", "--out", "x", "--data", "none"], "none has no instances.jsonl"),
    ],
)
def test_a_wrong_call_is_one_line(words: list[str], line: str) -> None:
    error = CliRunner().invoke(app, ["agent", *words]).exception
    assert isinstance(error, RadmoeError)
    assert line in str(error)


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = ["agent", *options(model, folder, out, "-n", 20)]
    code, _, stderr = interrupted(arguments, lambda: len(list(out.glob("run_*/*/*.traj.json"))) > 4)
    assert code == 130
    assert stderr.splitlines()[-1] == "radmoe: interrupted: what is finished is kept: run the same command to go on"
    radmoe(*options(model, folder, out, "-n", 20))
    assert len(open_pool(out / "pool")) == 60
    assert not [one for members in read_candidates(out).values() for one in members if one.status == "EngineError"]


@pytest.mark.parametrize("command", [["agent"], *(["agent", name] for name in ("run", "import", "select"))])
def test_help_shows_its_examples_in_eighty_columns(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    lines = [" ".join(line.split()) for line in CliRunner().invoke(app, [*command, "--help"]).stdout.splitlines()]
    assert [line for line in lines if line in agent.EXAMPLES] == list(agent.EXAMPLES)


def test_many_trajectories_that_cannot_be_submitted_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_candidates(tmp_path, [Candidate("i0", run, problem="its patch is empty") for run in range(MOST_LINES + 7)])
    say_problems(tmp_path)
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines == [f"radmoe: i0, run {run}: its patch is empty" for run in range(MOST_LINES)]
    assert last == f"radmoe: and 7 more, all in {tmp_path / CANDIDATES}"


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        ("ContextExceeded: a request of 9 tokens", "use a model with a longer context, or shorter prompts (--config)"),
        ("the server went away", "run the same command to try again"),
    ],
)
def test_a_run_that_left_no_routing_says_what_to_do(failure: str, advice: str) -> None:
    line = run_line(AgentRun("runs", 1, 1, 1, 0, 0, 1, 0, failure))
    assert line.endswith(f"1 left no routing ({failure}; {advice})")


def test_issues_whose_repository_is_not_given_are_named_and_a_page_says_why(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", issues=2, n=3)
    rows = [{"instance_id": "issue-000", "problem_statement": "mend <it>", "image_name": "x"}]
    (tmp_path / "instances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = radmoe("select", tmp_path / "runs", "--data", tmp_path, "--page", tmp_path / "why.html")
    assert f"{tmp_path} does not have 1 of 2 issues, such as issue-001: their patches are not checked" in done.stderr
    assert f"and in {tmp_path / 'why.html'}, which a browser opens" in done.stdout
    assert (tmp_path / "why.html").read_text().count('id="problem-') == 2
    assert '"issue": "mend <it>"' in (tmp_path / "runs" / "records.jsonl").read_text()
    radmoe("select", tmp_path / "runs", "--method", "rad")
    assert (tmp_path / "runs" / "patches.html").is_file()
