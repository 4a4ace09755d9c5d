"""Our conversation loop against the real mini-swe-agent: the same messages, the same end, the same patch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from radmoe_lab.agent import loop as loop_module
from radmoe_lab.agent import workplace
from radmoe_lab.agent.demonstrations import demonstrate
from radmoe_lab.agent.loop import LabConversation
from radmoe_lab.agent.repositories import BuggyRepository, repositories
from radmoe_lab.agent.shell import patch
from radmoe_lab.agent.templates import COMMAND_S, CONFIG, FORMAT_ERRORS, STEP_LIMIT, SUBMIT, opening, prompt_text, reply
from radmoe_lab.agent.workplace import Workplace
from radmoe_lab.tasks.draw import seeded
from radmoe_lab.tokenizer import build, fast_tokenizer

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
pytest.importorskip("minisweagent")

SETTINGS: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
TWO = "<think>\nBoth.\n</think>\n\n```mswea_bash_command\nls\n```\n```mswea_bash_command\npwd\n```"
NONE = "<think>\nWell.\n</think>\n\nThere is nothing to do."


def scripts() -> dict[str, list[str]]:
    (repository,) = repositories(limit=1)
    shown = demonstrate(seeded("loop"), repository)
    solved = [message["content"] for message in shown.messages()[2::2]]
    return {
        "solved": solved,
        "format errors on the way": [solved[0], NONE, TWO, *solved[1:]],
        "format errors to the end": [solved[0], NONE, TWO, NONE, solved[1]],
        "format errors that are forgotten": [NONE, NONE, solved[0], NONE, NONE, solved[0], SUBMITTING],
        "failing commands": [reply("?", "cat none.py"), reply("?", "nonesuch"), reply("?", "exit 3"), SUBMITTING],
        "a command that hangs": [reply("?", "echo begun; sleep 30"), SUBMITTING],
        "much output": [reply("?", "seq 1 2000"), reply("?", "seq 1 460"), SUBMITTING],
        "no end": [reply("?", "ls")] * (STEP_LIMIT + 3),
        "a submission that fails": [reply("?", f"{SUBMIT} && false"), reply("?", "echo no && " + SUBMIT), SUBMITTING],
        "odd text": [reply("?", "printf '\\xff\\n'; echo 'äö <|im_end|>'"), SUBMITTING],
    }


SUBMITTING = reply("Done.", SUBMIT)


def by_us(repository: BuggyRepository, script: Sequence[str]) -> LabConversation:
    tokenizer = build("agent")
    conversation = LabConversation(repository.issue, lambda text: tokenizer.encode(text).ids, 1 << 20)
    with Workplace(repository.files) as works:
        for text in script:
            if conversation.prompt() is None:
                break
            command = conversation.reply(text, [*tokenizer.encode(text).ids, 1], ended=True)
            if command is not None:
                conversation.observe(**works.run(command)._asdict())
    conversation.prompt()
    return conversation


def by_mini(repository: BuggyRepository, script: Sequence[str]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments import get_environment
    from minisweagent.models.utils.actions_text import format_observation_messages, parse_regex_actions

    model_settings = SETTINGS["model"]

    class Scripted:
        """A model of mini-swe-agent's text mode whose replies are known."""

        def __init__(self) -> None:
            self.replies = iter(script)

        def query(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
            content = next(self.replies)
            found = parse_regex_actions(
                content,
                action_regex=model_settings["action_regex"],
                format_error_template=model_settings["format_error_template"],
            )
            return {"role": "assistant", "content": content, "extra": {"actions": found}}

        def format_message(self, **fields: Any) -> dict[str, Any]:
            return fields

        def format_observation_messages(
            self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any]
        ) -> list[dict[str, Any]]:
            template = model_settings["observation_template"]
            return format_observation_messages(outputs, observation_template=template, template_vars=template_vars)

        def get_template_vars(self) -> dict[str, Any]:
            return {}

        def serialize(self) -> dict[str, Any]:
            return {}

    settings = {"timeout": workplace.COMMAND_S, "files": dict(repository.files)}
    environment = get_environment(SETTINGS["environment"] | settings)
    agent = DefaultAgent(Scripted(), environment, **SETTINGS["agent"])
    end = agent.run(repository.issue)
    return [(m["role"], m["content"]) for m in agent.messages if m["role"] != "exit"], end


@pytest.mark.slow
@pytest.mark.parametrize("name", scripts())
def test_a_conversation_is_the_one_that_mini_swe_agent_leads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "COMMAND_S", 1 if "hangs" in name else 10)
    (repository,) = repositories(limit=1)
    script = scripts()[name]
    messages, end = by_mini(repository, script)
    ours = by_us(repository, script)
    assert [(m["role"], m["content"]) for m in ours.messages] == messages
    assert (ours.exit_status, ours.patch) == (end["exit_status"], end["submission"])
    if name == "solved":
        assert ours.patch == patch(repository.fixed, repository.files)


def test_the_configuration_says_what_the_templates_say() -> None:
    assert SETTINGS["agent"]["step_limit"] == STEP_LIMIT
    assert SETTINGS["agent"]["max_consecutive_format_errors"] == FORMAT_ERRORS
    assert SETTINGS["environment"]["timeout"] == COMMAND_S
    assert SETTINGS["environment"]["environment_class"] == "radmoe_agent.confined.ConfinedEnvironment"
    assert SUBMIT in SETTINGS["agent"]["instance_template"]


def test_a_request_goes_on_from_the_ids_that_were_sampled() -> None:
    tokenizer = build("agent")
    conversation = LabConversation("It fails.", lambda text: tokenizer.encode(text).ids, 4096)
    first = conversation.prompt()
    text = reply("I look.", "ls")
    letters = [tokenizer.token_to_id("<|im_end|>")]
    unusual = [i for character in text.replace("</think>", "\x00") for i in _spelled(tokenizer, character)] + letters
    conversation.reply(text, unusual, ended=True)
    conversation.observe("a.py\n", 0)
    second = conversation.prompt()
    assert first is not None
    assert second is not None
    assert second[: len(first) + len(unusual)] == first + unusual
    whole = prompt_text(conversation.messages)
    assert tokenizer.decode(second, skip_special_tokens=False) == whole
    assert tokenizer.encode(whole).ids != second


def _spelled(tokenizer: Any, character: str) -> list[int]:
    return list(tokenizer.encode("</think>" if character == "\x00" else character).ids)


def test_the_chat_template_gives_the_same_text() -> None:
    messages = [*opening("It fails."), {"role": "assistant", "content": reply("I look.", "ls")}]
    messages.append({"role": "user", "content": "exit 0\n"})
    fast = fast_tokenizer("agent")
    assert fast.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == prompt_text(messages)


def test_a_request_beyond_the_context_ends_the_conversation() -> None:
    conversation = LabConversation("It fails.", lambda text: list(range(len(text))), 10)
    assert conversation.prompt() is None
    assert conversation.exit_status == loop_module.CONTEXT_EXCEEDED
    assert conversation.prompt() is None


def test_a_command_quoted_in_the_reasoning_is_none() -> None:
    tokenizer = build("agent")
    conversation = LabConversation("It fails.", lambda text: tokenizer.encode(text).ids, 4096)
    conversation.prompt()
    text = reply("Not ```mswea_bash_command\nrm *\n``` but this.", "ls")
    assert conversation.reply(text, tokenizer.encode(text).ids, ended=False) == "ls"
