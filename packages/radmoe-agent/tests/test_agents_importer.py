"""Finished trajectories of model classes that are not ours get the routing of a local model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output

from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe_agent.candidates import Candidate, read_candidates
from radmoe_agent.confined import ConfinedEnvironment
from radmoe_agent.importer import ReplayRequest, RequestSource, import_requests, import_trajectories
from scripted_agents import BUG, CONFIG, FORGETFUL, SUBMIT, engine, mend, run_script, step

pytestmark = pytest.mark.slow

ANSWERS = {
    0: [mend(""), step(SUBMIT)],
    1: [step("cat sums.py"), mend(" + 0"), step(SUBMIT)],
    2: [step(SUBMIT)],  # an empty patch
}


def theirs(path: Path, answers: list[str], *, model: str = "other") -> dict[str, Any]:
    """A trajectory by mini-swe-agent's own DeterministicModel."""
    outputs = [make_output(text, [{"command": text.split("\n")[2]}]) for text in answers]
    agent = DefaultAgent(
        DeterministicModel(
            outputs=outputs, model_name=model, observation_template=CONFIG["model"]["observation_template"]
        ),
        ConfinedEnvironment(files=BUG),
        cost_limit=0.0,
        output_path=path,
        **CONFIG["agent"],
    )
    agent.run("total adds 1")
    written: dict[str, Any] = json.loads(path.read_text())
    return written


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("theirs")
    for run, answers in ANSWERS.items():
        theirs(base / f"r{run}" / "one" / "one.traj.json", answers)
    return [base / f"r{run}" for run in ANSWERS]


def edited(runs: list[Path], out: Path, run: int, change: Any) -> list[Path]:
    """Copies of the run directories, of which one trajectory is changed."""
    copies = []
    for number, directory in enumerate(runs):
        body = json.loads((directory / "one" / "one.traj.json").read_text())
        if number == run:
            body = change(body) or body
        copy = out / directory.name / "one" / "one.traj.json"
        copy.parent.mkdir(parents=True)
        copy.write_text(body if isinstance(body, str) else json.dumps(body))
        copies.append(out / directory.name)
    return copies


def test_an_import_is_the_run_itself_where_the_texts_are_the_same(runs: list[Path], tmp_path: Path) -> None:
    done = import_trajectories(runs, engine(), tmp_path / "in")
    assert (done.instances, done.trajectories, done.replayed, done.refused, done.steps) == (1, 3, 3, 0, 6)
    run_script(tmp_path / "ours", {"one": list(ANSWERS.values())})
    imported, ours = open_pool(tmp_path / "in" / "pool"), open_pool(tmp_path / "ours" / "pool")
    assert imported.verify() == []
    assert imported.sampling["tokens"] == "retokenised"
    for a, b in zip(imported.group("one").rollouts, ours.group("one").rollouts, strict=True):
        assert np.array_equal(a.token_ids, b.token_ids)
        assert a.steps == b.steps
    assert imported.texts("one") == ours.texts("one")
    listed = read_candidates(tmp_path / "in")["one"]
    assert [one.status for one in listed] == ["Submitted"] * 3
    assert [one.problem for one in listed] == [None, None, "its patch is empty (it ended with Submitted)"]


def test_each_step_is_a_request_of_its_own_where_reasoning_is_dropped(runs: list[Path], tmp_path: Path) -> None:
    import_trajectories(runs, engine(FORGETFUL), tmp_path / "in")
    steps = open_pool(tmp_path / "in" / "pool").group("one").rollouts[1].steps
    assert [one.kept is None for one in steps] == [True, False, False]


def test_reasoning_in_a_field_of_its_own_is_put_back(runs: list[Path], tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        for message in body["messages"]:
            if message["role"] == "assistant":
                message["content"] = message["content"].partition("</think>")[2]
                message["reasoning_content"] = "So"

    import_trajectories(edited(runs, tmp_path / "runs", 0, change), engine(), tmp_path / "in")
    pool = open_pool(tmp_path / "in" / "pool")
    text = pool.vocab.decode_bytes(pool.group("one").rollouts[0].token_ids).decode()
    assert text.count("<think>\nSo\n</think>\n\n```mswea_bash_command") == 2


TOOLS = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}{% for call in m.tool_calls or [] %}({{ call.function.arguments }}){% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def test_tool_calls_are_rendered_by_the_chat_template(runs: list[Path], tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        for message in body["messages"]:
            if message["role"] == "assistant":
                call = {"function": {"name": "bash", "arguments": '{"command": "ls"}'}}
                message |= {"content": None, "reasoning_content": "Now", "tool_calls": [call]}

    copies = edited(runs, tmp_path / "runs", 0, change)
    import_trajectories(copies, engine(TOOLS), tmp_path / "in", task="mine")
    pool = open_pool(tmp_path / "in" / "pool")
    text = pool.vocab.decode_bytes(pool.group("one").rollouts[0].token_ids).decode()
    assert text == '<think>Now</think>({"command": "ls"})<|im_end|>' * 2
    assert pool.task == "mine"


def test_a_refused_answer_is_a_step_too(runs: list[Path], tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        extra = {"interrupt_type": "FormatError", "model_response": "<think>Now</think>no command"}
        body["messages"].insert(2, {"role": "user", "content": "0 commands", "extra": extra})

    done = import_trajectories(edited(runs, tmp_path / "runs", 0, change), engine(), tmp_path / "in")
    assert done.steps == 7
    pool = open_pool(tmp_path / "in" / "pool")
    text = pool.vocab.decode_bytes(pool.group("one").rollouts[0].token_ids).decode()
    assert text.startswith("<think>Now</think>no command<|im_end|><think>So</think>")


def forget(body: dict[str, Any]) -> None:
    for message in body["messages"]:
        message["content"] = message["content"].replace("</think>", "")


def rename(body: dict[str, Any]) -> None:
    body["info"]["config"]["model"]["model_name"] = "another"


def lengthen(body: dict[str, Any]) -> None:
    body["messages"][1]["content"] = "long " * 3000


def odd(number: int, **fields: Any) -> Any:
    """A trajectory one of whose messages has other fields."""
    return lambda body: body["messages"][number].update(fields)


MALFORMED = {
    "content that is a number": odd(1, content=5),
    "content that is an object": odd(2, content={"text": "x"}),
    "content of half a character": odd(2, content="<think>\ud800</think>ls"),
    "a role that is a list": odd(1, role=["user"]),
    "an extra that is a text": odd(2, extra="text"),
    "an extra that is a list": odd(2, extra=[1]),
    "a response that is a text": odd(2, extra={"interrupt_type": "FormatError", "model_response": 7}),
    "tool calls that are a number": odd(2, tool_calls=3),
    "tool calls of nothing": odd(2, tool_calls=[{}]),
    "a number of 5,000 digits": lambda body: json.dumps(body).replace('"info"', '"x": ' + "9" * 5_000 + ', "info"'),
    "deep": lambda body: "[" * 100_000,
}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda body: json.dumps(body)[:300], "the trajectory is truncated or no JSON"),
        (lambda body: "[]", "the file has no messages and info"),
        (forget, "its reasoning was not kept: none of its 3 answers has </think> or reasoning_content"),
        (rename, "it was run by another, and most of this cohort by other: a cohort has one model"),
        (lambda body: body | {"messages": body["messages"][:2]}, "it has no answer of a model, so there is no routing"),
        (lengthen, "tokens, and the context of tiny is 2048"),
    ],
)
def test_what_cannot_be_used_is_listed_and_the_rest_goes_on(
    runs: list[Path], tmp_path: Path, change: Any, line: str
) -> None:
    done = import_trajectories(edited(runs, tmp_path / "runs", 1, change), engine(), tmp_path / "in")
    assert (done.replayed, done.refused) == (2, 1)
    problem = read_candidates(tmp_path / "in")["one"][1].problem
    assert problem is not None
    assert line in problem
    assert open_pool(tmp_path / "in" / "pool").rollout_indices("one") == [0, 2]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_trajectory_costs_no_other(runs: list[Path], tmp_path: Path, name: str) -> None:
    """What a template makes a text of is replayed; the other cases ended the whole import."""
    done = import_trajectories(edited(runs, tmp_path / "runs", 1, MALFORMED[name]), engine(), tmp_path / "in")
    assert (done.replayed + done.refused, done.trajectories) == (3, 3)
    assert {0, 2} <= set(open_pool(tmp_path / "in" / "pool").rollout_indices("one"))
    problem = read_candidates(tmp_path / "in")["one"][1].problem
    assert (problem is not None) == bool(done.refused)
    assert "\n" not in str(problem)


def test_a_fifo_and_a_name_of_no_text_are_listed(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "one.traj.json")
    strange = os.fsencode(tmp_path / "odd") + b"/\xff.traj.json"
    Path(os.fsdecode(strange)).write_bytes(next(runs[0].rglob("*.traj.json")).read_bytes())
    done = import_trajectories([runs[0], tmp_path / "odd"], engine(), tmp_path / "in")
    assert (done.replayed, done.refused) == (1, 3)
    problems = [one.problem for members in read_candidates(tmp_path / "in").values() for one in members]
    assert sum("not a regular file" in str(problem) for problem in problems) == 1
    assert sum("surrogates not allowed" in str(problem) for problem in problems) == 1


def test_a_patch_that_is_no_text_is_kept_as_it_is(runs: list[Path], tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["info"]["submission"] = "+\udcff\n"

    import_trajectories(edited(runs, tmp_path / "runs", 0, change), engine(), tmp_path / "in")
    assert read_candidates(tmp_path / "in")["one"][0].patch == "+\udcff\n"
    assert open_pool(tmp_path / "in" / "pool").verify() == []


@pytest.mark.parametrize(
    ("status", "ended"), [(None, "BrokeOff"), ("ContextWindowExceededError", "ContextWindowExceededError")]
)
def test_a_trajectory_that_broke_off_or_overflowed_is_recognised(
    status: str | None, ended: str, runs: list[Path], tmp_path: Path
) -> None:
    def change(body: dict[str, Any]) -> None:
        body["info"]["exit_status"] = status
        body["messages"].pop()

    done = import_trajectories(edited(runs, tmp_path / "runs", 0, change), engine(), tmp_path / "in")
    assert (done.replayed, done.unfinished) == (3, 1)
    assert read_candidates(tmp_path / "in")["one"][0].status == ended


def test_a_missing_trajectory_is_listed(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    import_trajectories([runs[0], tmp_path / "empty", runs[1]], engine(), tmp_path / "in")
    assert [one.problem for one in read_candidates(tmp_path / "in")["one"]] == [None, "there is no trajectory", None]


def test_nothing_to_import_is_one_line(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run directory"):
        import_trajectories([tmp_path / "none"], engine(), tmp_path / "in")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there is no trajectory \(\*.traj.json, \*tape.jsonl\)"):
        import_trajectories([tmp_path / "empty"], engine(), tmp_path / "in")
    with pytest.raises(InputError, match="none of 1 trajectories can be imported: its reasoning was not kept"):
        import_trajectories(edited(runs[:1], tmp_path / "runs", 0, forget), engine(), tmp_path / "in")


def test_requests_whose_tokens_are_known_are_replayed_as_they_are(runs: list[Path], tmp_path: Path) -> None:
    requests = {
        ("one", 0): [ReplayRequest([5, 6], [7, 8, 9]), ReplayRequest([5, 6, 7, 8, 9, 10], [11])],
        ("one", 2): [ReplayRequest([5, 6], [12])],
    }
    listed = [Candidate("one", run, "Submitted", f"+{run}", "tiny") for run in range(3)]
    source = RequestSource(listed, {"one": [0, 2]}, lambda *names: requests[names], {"source": "x"}, task="repo")
    done = import_requests(source, engine(), tmp_path)
    assert (done.trajectories, done.replayed, done.refused, done.steps) == (3, 2, 1, 3)
    pool = open_pool(tmp_path / "pool")
    assert (pool.task, pool.sampling["tokens"]) == ("repo", "sampled")
    assert pool.rollout_indices("one") == [0, 2]
    assert pool.texts("one") == ["+0", "+2"]
    (first, _) = pool.group("one").rollouts
    assert [(step.given, step.kept) for step in first.steps] == [((5, 6), None), ((10,), None)]
    ids, _ = engine().teacher_forced([5, 6, 7, 8, 9, 10])
    assert np.array_equal(first.expert_ids, ids[[1, 2, 3, 5]])
