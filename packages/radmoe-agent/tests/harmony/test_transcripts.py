"""Finished Harmony trajectories get the routing of a local model; what is wrong with one is said of it alone."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scripted_agents
from radmoe.errors import InputError
from radmoe.pool import Pool, open_pool
from radmoe_agent.candidates import read_candidates
from radmoe_agent.harmony.messages import START
from radmoe_agent.importer import ImportedTrajectories, import_trajectories
from radmoe_agent.patches import decide_all
from scripted_harmony import CONTEXT, FINAL, bash, call, engine, mend, run_script

pytestmark = pytest.mark.slow

RUNS: list[list[Any]] = [
    [bash("cat sums.py"), mend(""), FINAL],
    [["nothing", call("browser.open", {}), bash("ls")], mend(""), FINAL],
]
BROKEN = FINAL.replace("final", "analysis")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "out"
    run_script(path, {"one": RUNS})
    return path


def pool_of(directory: Path) -> Pool:
    return open_pool(directory / "pool")


def exchanges(ours: Path, run: int) -> list[dict[str, str]]:
    """A run as a tape of it would be: the texts of its requests, without the end tokens."""
    pool = pool_of(ours)
    rollout = pool.group("one").rollouts[run]
    ends = [*rollout.starts[1:].tolist(), len(rollout.token_ids)]
    told: list[int] = []
    rows = []
    for step, end in zip(rollout.steps, ends, strict=True):
        told = [*told[: step.kept], *step.given]
        answer = rollout.token_ids[step.start : end].tolist()
        prompt, response = (pool.vocab.decode_bytes(ids).decode() for ids in (told, answer[:-1]))
        rows.append({"prompt": prompt, "response": response, "finish_reason": "stop"})
        told += answer
    return rows


def write_tape(path: Path, rows: list[dict[str, str]], cut: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    content = content[: len(content) - cut]
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)


@pytest.fixture
def tapes(ours: Path, tmp_path: Path) -> list[Path]:
    """Two run directories of tapes; the second run was asked twice for its first step."""
    for run in (0, 1):
        rows = exchanges(ours, run)
        again = [rows[0] | {"response": "nothing"}, rows[0] | {"response": BROKEN}] if run else []
        write_tape(tmp_path / f"r{run}" / "one" / "tape.jsonl.xz", [*again, *rows])
        (tmp_path / f"r{run}" / "preds.json").write_bytes((ours / f"run_{run:02d}" / "preds.json").read_bytes())
    return [tmp_path / "r0", tmp_path / "r1"]


def imported(runs: list[Path], out: Path, **options: Any) -> ImportedTrajectories:
    return import_trajectories(runs, engine(**options), out)


def test_tapes_are_replayed_as_the_requests_that_they_were(ours: Path, tapes: list[Path], tmp_path: Path) -> None:
    done = imported(tapes, tmp_path / "in")
    assert (done.trajectories, done.replayed, done.refused, done.unfinished, done.steps) == (2, 2, 0, 0, 6)
    assert pool_of(tmp_path / "in").verify() == []
    for a, b in zip(pool_of(tmp_path / "in").group("one").rollouts, pool_of(ours).group("one").rollouts, strict=True):
        assert np.array_equal(a.token_ids, b.token_ids)
        assert a.steps == b.steps
    first, second = read_candidates(tmp_path / "in")["one"]
    assert (first.status, first.model, first.problem, first.notes) == ("Submitted", "tiny-oss", None, ())
    assert second.notes == ("2 malformed steps were sampled again",)
    assert first.patch == read_candidates(ours)["one"][0].patch
    (decision,) = decide_all(tmp_path / "in", method="rad")
    assert [one.boundaries for one in decision.candidates] == [3, 3]


def test_messages_are_rendered_as_the_public_harness_renders_them(
    ours: Path, tapes: list[Path], tmp_path: Path
) -> None:
    """Headers differ from what was sampled, but not what stands before a boundary: its routing is the same."""
    done = imported([ours / "run_00", ours / "run_01"], tmp_path / "in")
    assert (done.replayed, done.refused, done.steps) == (2, 0, 6)
    imported(tapes, tmp_path / "taped")
    for name in ("in", "taped"):
        assert pool_of(tmp_path / name).vocab.added[START]
    for a, b in zip(*(pool_of(tmp_path / name).group("one").rollouts for name in ("in", "taped")), strict=True):
        rows = [one.expert_ids[one.token_ids == pool_of(ours).vocab.added[START]] for one in (a, b)]
        assert len(rows[0]) == 3
        assert np.array_equal(*rows)


def test_messages_of_openai_harmony_are_read(ours: Path, tmp_path: Path) -> None:
    """harmonyagent writes them in mini-swe-agent's envelope, with a system message made of settings."""
    from openai_harmony import Message, Role, SystemContent

    path = ours / "run_00" / "one" / "one.traj.json"
    body = json.loads(path.read_text())
    for message in body["messages"]:
        message["content"] = [{"type": "text", "text": message["content"]}]
    body["messages"][0] = Message.from_role_and_content(Role.SYSTEM, SystemContent.new()).to_dict()
    body["info"] |= {"exit_status": "MaxContextWindowOverflow"}
    copy = tmp_path / "r0" / "trajs" / "one" / "one.traj.json"
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps(body))
    done = imported([tmp_path / "r0"], tmp_path / "in")
    assert (done.replayed, done.unfinished, done.steps) == (1, 1, 3)
    step = pool_of(tmp_path / "in").group("one").rollouts[0].steps[0]
    told = pool_of(tmp_path / "in").vocab.decode_bytes(step.given).decode()
    assert told.startswith("<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.")
    assert "\n# Valid channels: analysis, commentary, final." in told


def cut_short(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return rows[:-1]


def overflowing(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [*rows[:-1], rows[-1] | {"response": "<|channel|>analysis<|message|>So", "finish_reason": "length"}]


def hung(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [*rows[:-1], rows[-1] | {"response": "<|channel|>analysis<|message|>So<|end|><|start|>assistant<|chann"}]


@pytest.mark.parametrize(
    ("change", "cut", "status", "said"),
    [
        (cut_short, 0, "BrokeOff", "it broke off before it was done (it ended with BrokeOff)"),
        (hung, 0, "BrokeOff", "it broke off before it was done (it ended with BrokeOff)"),
        (list, 40, "BrokeOff", "it broke off before it was done (it ended with BrokeOff)"),
        (
            overflowing,
            0,
            "LengthExceeded",
            "it ran out of tokens, of a step or of the context, before it was done (it ended with LengthExceeded)",
        ),
    ],
)
def test_a_tape_that_broke_off_or_overflowed_is_recognised(
    change: Any, cut: int, status: str, said: str, ours: Path, tapes: list[Path], tmp_path: Path
) -> None:
    write_tape(tapes[0] / "one" / "tape.jsonl.xz", change(exchanges(ours, 0)), cut)
    done = imported(tapes, tmp_path / "in")
    assert (done.replayed, done.unfinished) == (2, 1)
    assert read_candidates(tmp_path / "in")["one"][0].status == status
    (decision,) = decide_all(tmp_path / "in")
    assert [one.problem for one in decision.candidates] == [said, None]
    assert decision.run == 1


CHATML = [
    {"prompt": "<|im_start|>user\nMend<|im_end|>\n<|im_start|>assistant\n", "response": "So", "finish_reason": "stop"}
]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the tape is empty"),
        (b"nothing", "line 1 of the tape is no JSON"),
        (b'{"prompt": 1}\n', "line 1 of the tape has no prompt and response"),
        (b'{"prompt": "a", "response": "b"}\n{\n{}\n', "line 2 of the tape is no JSON"),
        (b"[" * 100_000, "line 1 of the tape is no JSON"),
        (json.dumps(CHATML[0]).encode(), "the prompt of step 1 does not end with <|start|>assistant, so it is not in Harmony"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_tape_costs_its_trajectory_alone(
    content: bytes, reason: str, tapes: list[Path], tmp_path: Path
) -> None:
    (tapes[0] / "one" / "tape.jsonl.xz").unlink()
    (tapes[0] / "one.tape.jsonl").write_bytes(content)
    done = imported(tapes, tmp_path / "in")
    assert (done.replayed, done.refused) == (1, 1)
    assert [one.problem for one in read_candidates(tmp_path / "in")["one"]] == [reason, None]
    (decision,) = decide_all(tmp_path / "in")
    assert decision.run == 1


def test_a_transcript_in_another_vocabulary_costs_itself_alone(ours: Path, tapes: list[Path], tmp_path: Path) -> None:
    scripted_agents.run_script(tmp_path / "chatml", {"one": [[scripted_agents.step(scripted_agents.SUBMIT)]]})
    path = tmp_path / "chatml" / "run_00" / "one" / "one.traj.json"
    path.write_text(path.read_text().replace('"model_name": "tiny"', '"model_name": "tiny-oss"'))
    done = imported([tmp_path / "chatml" / "run_00", *tapes], tmp_path / "in")
    assert (done.replayed, done.refused) == (2, 1)
    problem = read_candidates(tmp_path / "in")["one"][0].problem
    assert problem == "it is written in ChatML, and tiny-oss has the tokens of Harmony"
    with pytest.raises(InputError, match="it is written in Harmony, and tiny has the tokens of ChatML"):
        import_trajectories(tapes, scripted_agents.engine(), tmp_path / "other")


def test_a_step_that_does_not_fit_the_model_costs_its_trajectory_alone(tapes: list[Path], tmp_path: Path) -> None:
    rows = [{"prompt": "a " * 2 * CONTEXT + "<|start|>assistant", "response": FINAL, "finish_reason": "stop"}]
    write_tape(tapes[0] / "one" / "tape.jsonl.xz", rows)
    imported(tapes, tmp_path / "in")
    first, second = read_candidates(tmp_path / "in")["one"]
    assert first.problem is not None
    assert first.problem.endswith("tokens, and the context of tiny-oss is 131072")
    assert second.usable


def test_a_tape_without_thoughts_has_no_boundary_to_read(tapes: list[Path], tmp_path: Path) -> None:
    rows = [{"prompt": "<|start|>assistant", "response": "<|channel|>final<|message|>Done", "finish_reason": "stop"}]
    write_tape(tapes[0] / "one" / "tape.jsonl.xz", rows)
    imported(tapes, tmp_path / "in")
    problem = read_candidates(tmp_path / "in")["one"][0].problem
    assert problem == "its reasoning was not kept: none of its 1 answers has a thought before its action"
