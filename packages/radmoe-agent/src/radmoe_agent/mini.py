"""mini-swe-agent, and the model that it drives, in its text mode: one thought and one bash command per answer.

mini-swe-agent makes one model object per instance, from plain configuration, so what the objects share lies in
`SESSIONS` under a name that the configuration carries.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minisweagent.exceptions import FormatError, LimitsExceeded
from minisweagent.models import GLOBAL_MODEL_STATS
from minisweagent.models.utils.actions_text import format_observation_messages, parse_regex_actions
from pydantic import BaseModel

from radmoe.engines.base import Completion
from radmoe.errors import InputError
from radmoe.selection.anchors import find_all, spec_for
from radmoe_agent.candidates import OVERFLOW
from radmoe_agent.conversation import Conversation
from radmoe_agent.responder import Responder
from radmoe_agent.trajectory import Solved, Turn

if TYPE_CHECKING:
    from radmoe_agent.instances import Instance
    from radmoe_agent.run import AgentPlan


_OBSERVATION = (
    "{% if output.exception_info %}<exception>{{output.exception_info}}</exception>\n{% endif %}"
    "<returncode>{{output.returncode}}</returncode>\n<output>\n{{output.output}}</output>"
)


@dataclass
class AgentSession:
    """The session of one agent: its responder, its key in the random numbers, and its turns so far."""

    responder: Responder
    key: str
    rollout_index: int
    template_arguments: dict[str, object] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    retokenised: int = 0
    failure: BaseException | None = None  # an answer that the responder could not give


SESSIONS: dict[str, AgentSession] = {}


class RoutedModelConfig(BaseModel):
    """The section `model` of mini-swe-agent's configuration; the defaults are those of its text mode."""

    model_name: str
    session: str
    action_regex: str = r"```mswea_bash_command\s*\n(.*?)\n```"
    format_error_template: str = (
        "Please always provide EXACTLY ONE action in triple backticks, found {{actions|length}} actions."
    )
    observation_template: str = _OBSERVATION
    multimodal_regex: str = ""


class RoutedModel:
    """Answers by the responder of its session and keeps the ids and the routing of every answer there.

    The command is looked for behind the last boundary, so that a block quoted in the reasoning is no command. As with
    mini-swe-agent's own models, an answer without exactly one command is not part of the history; it is a step of the
    trajectory all the same.
    """

    def __init__(self, **options: Any) -> None:
        self.config = RoutedModelConfig(**options)
        self._session = SESSIONS[self.config.session]
        engine = self._session.responder.engine
        self._tokenizer, self._vocab = engine.tokenizer, engine.vocab
        self._conversation = Conversation(self._tokenizer, self._session.template_arguments)

    def query(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """The model's answer as a message; FormatError where it has not exactly one command."""
        session = self._session
        prompt = self._conversation.prompt(messages)
        completion = self._answer(prompt)
        session.turns.append(Turn(tuple(prompt), completion.rollout, completion.finish_reason))
        session.retokenised = self._conversation.retokenised
        GLOBAL_MODEL_STATS.add(0.0)
        extra = {
            "cost": 0.0,
            "timestamp": time.time(),
            "response": {
                "finish_reason": completion.finish_reason,
                "prompt_tokens": len(prompt),
                "completion_tokens": len(completion.rollout),
            },
        }
        try:
            actions = parse_regex_actions(
                self._behind_boundary(completion),
                action_regex=self.config.action_regex,
                format_error_template=self.config.format_error_template,
                template_kwargs={"finish_reason": completion.finish_reason},
            )
        except FormatError as error:
            error.messages[0]["extra"] |= extra | {"model_response": completion.text}
            raise
        self._conversation.answered(completion.rollout.token_ids.tolist())
        return {"role": "assistant", "content": completion.text, "extra": {"actions": actions, **extra}}

    def _answer(self, prompt: list[int]) -> Completion:
        session = self._session
        engine = session.responder.engine
        if engine.context is not None and len(prompt) >= engine.context:
            raise LimitsExceeded(
                {
                    "role": "exit",
                    "content": f"The request has {len(prompt)} tokens and the model's context is {engine.context}.",
                    "extra": {"exit_status": OVERFLOW, "submission": ""},
                }
            )
        key = f"{session.key}/{len(session.turns)}"
        try:
            return session.responder.respond(prompt, key=key, rollout_index=session.rollout_index)
        except BaseException as error:
            session.failure = error
            raise

    def _behind_boundary(self, completion: Completion) -> str:
        """The part of an answer after its reasoning."""
        tokens = completion.rollout.token_ids
        boundaries = find_all(spec_for("boundary", "agent", self._vocab), tokens, self._vocab)
        if not boundaries:
            return completion.text
        behind = tokens[boundaries[-1].start + boundaries[-1].length :]
        return str(self._tokenizer.decode(behind.tolist(), skip_special_tokens=False))

    def format_message(self, **fields: Any) -> dict[str, Any]:
        return fields

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = format_observation_messages(
            outputs,
            observation_template=self.config.observation_template,
            template_vars=template_vars,
            multimodal_regex=self.config.multimodal_regex,
        )
        return messages

    def get_template_vars(self, **options: Any) -> dict[str, Any]:
        return self.config.model_dump()

    def serialize(self) -> dict[str, Any]:
        return {
            "info": {
                "config": {
                    "model": self.config.model_dump(mode="json"),
                    "model_type": f"{type(self).__module__}.{type(self).__name__}",
                }
            }
        }


def open_session(name: str, session: AgentSession) -> None:
    """Make a session known to the models that are configured with its name."""
    if name in SESSIONS:
        raise InputError(f"there is a session {name!r} already: an instance runs once at a time")
    SESSIONS[name] = session


def solve(plan: AgentPlan, instance: Instance, run: int, directory: Path) -> Solved:
    """Run one trajectory by mini-swe-agent, which writes it into a run directory."""
    from minisweagent.run.benchmarks.swebench import process_instance

    name = f"{run}/{instance.instance_id}"
    session = AgentSession(plan.responder, instance.instance_id, run, dict(plan.template_arguments))
    open_session(name, session)
    try:
        process_instance(row(instance), directory, _config(plan, instance, name), _Unwatched())
    finally:
        del SESSIONS[name]
    return Solved(session.turns, session.retokenised, session.failure)


def row(instance: Instance) -> dict[str, str]:
    """An instance as mini-swe-agent's batch runner takes it."""
    named = {"instance_id": instance.instance_id, "problem_statement": instance.problem_statement}
    return named if instance.image is None else named | {"image_name": instance.image}


def environment_config(plan: AgentPlan, instance: Instance) -> dict[str, Any]:
    """The section `environment` of mini-swe-agent's configuration: where the commands of a plan run."""
    own: dict[str, Any] = plan.config.get("environment", {})
    if plan.environment != "confined":
        return own | {"environment_class": plan.environment, "timeout": plan.command_seconds}
    return {
        "environment_class": "radmoe_agent.confined.ConfinedEnvironment",
        **{key: value for key, value in own.items() if key in ("env", "disk_mb")},
        "timeout": plan.command_seconds,
        "memory_mb": plan.memory_mb,
        "repository": "" if instance.repository is None else str(instance.repository),
        "files": dict(instance.files),
    }


def _config(plan: AgentPlan, instance: Instance, session: str) -> dict[str, Any]:
    model = {
        key: value
        for key, value in plan.config.get("model", {}).items()
        if key in ("action_regex", "format_error_template", "observation_template")
    }
    return {
        "agent": plan.config["agent"] | {"step_limit": plan.step_limit, "cost_limit": 0.0},
        "model": model
        | {
            "model_class": "radmoe_agent.mini.RoutedModel",
            "model_name": plan.responder.engine.model_name,
            "session": session,
        },
        "environment": environment_config(plan, instance),
        "run": {key: value for key, value in plan.config.get("run", {}).items() if key == "env_startup_command"},
    }


class _Unwatched:
    """mini-swe-agent reports the state of every instance; the bar counts finished ones."""

    def on_instance_start(self, instance_id: str) -> None: ...

    def update_instance_status(self, instance_id: str, message: str, cost_delta: float = 0.0) -> None: ...

    def on_instance_end(self, instance_id: str, exit_status: str | None) -> None: ...
