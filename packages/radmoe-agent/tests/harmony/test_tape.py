"""A real transcript of gpt-oss, of 40 steps on an issue of Django. It is read where ../shared has it, and is no part of this project.

It ends before its first patch, so patches are made here of the lines that it shows. `test_harmony_steps.py` and
`test_harmony_agent.py` hold the same on steps of our own, in every form that it has.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vocabularies
from available import needs_namespaces
from radmoe_agent.candidates import Exchange
from radmoe_agent.confined import ConfinedEnvironment
from radmoe_agent.harmony.messages import START
from radmoe_agent.harmony.openai import harmony_for
from radmoe_agent.harmony.repository import Repository
from radmoe_agent.harmony.steps import Reply, read_step
from radmoe_agent.harmony.tools import Call, read_call, use
from radmoe_agent.harmony.transcripts import read_tape, requests_of_tape
from radmoe_agent.trajectory import steps_of
from scripted_harmony import tokenizer

TAPE = next(
    (
        up / "shared/harmony/tape.jsonl.xz"
        for up in Path(__file__).parents
        if (up / "shared/harmony/tape.jsonl.xz").is_file()
    ),
    None,
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(TAPE is None, reason="../shared/harmony is not on this machine")]
CUT = 10_000  # characters of an answer that the public harness shows: its first
OPEN = "repo_browser.open_file"
LINES = "".join(f"def f{n}(group_by, ordering):  # get_order_by\n    return {n}\n" for n in range(1_500))


@pytest.fixture(scope="module")
def asked() -> tuple[Exchange, ...]:
    assert TAPE is not None
    tape = read_tape(TAPE, "", "")
    assert (len(tape.exchanges), tape.malformed, tape.status) == (38, 2, "BrokeOff")
    return tape.exchanges


def step(text: str) -> Reply:
    vocab = vocabularies.vocab("gpt-oss")
    return read_step(harmony_for(vocab), vocab, vocabularies.encode("gpt-oss", text))


def every_step() -> list[Reply]:
    """All 40, with the two that the public harness refused and sampled again."""
    assert TAPE is not None
    return [step(json.loads(line)["response"]) for line in lzma.open(TAPE, "rt", encoding="utf-8")]


def test_every_step_is_read_as_a_call_with_a_boundary(asked: tuple[Exchange, ...]) -> None:
    replies = every_step()
    assert len(replies) == 40
    assert all(reply.call is not None for reply in replies)
    assert all(one.response.count(START) == 1 for one in asked)


@needs_namespaces
def test_its_tools_run_on_a_stand_in_repository() -> None:
    """Every file that it opens or searches is there, with lines enough and the words that it looks for."""
    calls = [reply.call for reply in every_step()]
    paths = {str(call.arguments["path"]) for call in calls if call is not None and "path" in call.arguments}
    files = {path: LINES for path in paths if path.endswith(".py")} | {"tests/a.py": LINES}
    place = ConfinedEnvironment(files=files)
    try:
        repository = Repository(place.run)
        answers = [(call.tool, use(call, repository)) for call in calls if call is not None]
    finally:
        place.cleanup()
    browsed = [(tool, one) for tool, one in answers if tool != "container.exec"]
    assert len(browsed) >= 20
    failed = [(tool, one.text) for tool, one in browsed if one.code != 0 and one.text != "no line matches"]
    assert failed == []
    assert not [one for _, one in answers if one.stopped]
    assert not [one for _, one in answers if re.search(r"tree|rg: command not found", one.text) and one.code == 127]


def opened(asked: tuple[Exchange, ...]) -> list[tuple[Call, str]]:
    """Every call that opens a file, with the numbered lines that the public harness answered."""
    calls = [call for one in asked if (call := step(one.response).call) and call.tool == OPEN]
    answers = re.findall(
        r"<\|start\|>repo_browser\.open_file.*?<output>\n(.*?)\n</output>", asked[-1].prompt, re.DOTALL
    )
    return list(zip(calls, answers, strict=True))


@pytest.fixture
def shown(asked: tuple[Exchange, ...]) -> Iterator[Repository]:
    """A stand-in repository with the lines that the transcript shows, each in its place."""
    files: dict[str, list[str]] = {}
    for call, answer in opened(asked):
        lines = files.setdefault(call.arguments["path"], [""] * 3_000)
        for line in answer.split("\n"):
            number, text = line.split("\t", 1)
            lines[int(number) - 1] = text
    place = ConfinedEnvironment(files={path: "\n".join(lines) + "\n" for path, lines in files.items()})
    yield Repository(place.run)
    place.cleanup()


@needs_namespaces
def test_files_are_opened_as_the_public_harness_shows_them(asked: tuple[Exchange, ...], shown: Repository) -> None:
    windows = opened(asked)
    assert len(windows) == 12
    for call, answer in windows:
        text = use(call, shown).text
        assert text[:CUT] == answer
        assert len(answer) == CUT or text == answer


@needs_namespaces
def test_patches_of_the_lines_that_it_shows_apply(asked: tuple[Exchange, ...], shown: Repository) -> None:
    """One for every file that it opened, with the lines as a model copies them: their blanks may be others."""
    assert not [one for one in asked if "*** Begin Patch" in one.response]
    for number, (call, _) in enumerate(opened(asked)):
        lines = [line.split("\t", 1)[1] for line in use(call, shown).text.split("\n")]
        at = next(k for k, line in enumerate(lines) if line.startswith("    ") and lines.count(line) == 1)
        copied = [line.strip() if number % 2 else line for line in lines[at : at + 3]]
        patch = [f"-{copied[0]}", f"+# patch {number}", *(f" {line}" for line in copied[1:])]
        text = "\n".join(["*** Begin Patch", f"*** Update File: {call.arguments['path']}", *patch, "*** End Patch"])
        answered = use(read_call("repo_browser.apply_patch", json.dumps({"patch": text})), shown)
        assert (answered.code, answered.text) == (0, f"The patch was applied:\nM {call.arguments['path']}")
    assert sum(line.startswith("+# patch ") for line in shown.diff().split("\n")) == 12


def test_what_it_costs_to_rebuild_requests(asked: tuple[Exchange, ...]) -> None:
    """The figures of docs/agents.md."""
    assert asked[-1].prompt.count("tree: command not found") == 3
    assert asked[-1].prompt.count("rg: command not found") == 10
    engine: Any = SimpleNamespace(vocab=vocabularies.vocab("gpt-oss"), tokenizer=tokenizer())
    requests = requests_of_tape(asked, engine)
    steps = steps_of(requests)
    before = [0, *(len(prompt) + len(answer) for prompt, answer in requests)]
    again = [before[number] - step.kept for number, step in enumerate(steps) if step.kept is not None]
    assert (len(again), len(steps) - 1, sum(again), before[-1]) == (34, 37, 1083, 20_001)


def test_the_next_prompt_is_the_one_that_we_rebuild(asked: tuple[Exchange, ...]) -> None:
    """Up to the tool's answer, which is ours: the calls are shown in the form in which the public harness shows them."""
    harmony = harmony_for(vocabularies.vocab("gpt-oss"))
    differ = []
    for number, (one, following) in enumerate(pairwise(asked)):
        shown = vocabularies.vocab("gpt-oss").decode_bytes(harmony.render(step(one.response).messages)).decode()
        if not following.prompt.startswith(one.prompt + shown.removeprefix(f"{START}assistant")):
            differ.append(number)
    assert differ == [16]  # which it shows with two channels, as it was sampled
