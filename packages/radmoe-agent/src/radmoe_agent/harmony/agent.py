"""One trajectory under the Harmony harness: a request, the step that the model makes of it, the tool's answer, and so on to its end."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minisweagent.run.benchmarks.swebench import get_sb_environment

from radmoe.errors import EngineError
from radmoe.pool.files import write_atomic
from radmoe_agent.candidates import OVERFLOW, SUFFIX
from radmoe_agent.harmony.messages import CALL, Malformed, Message
from radmoe_agent.harmony.openai import harmony_for
from radmoe_agent.harmony.prompts import effort_of, first_messages
from radmoe_agent.harmony.repository import Repository, environment_shell
from radmoe_agent.harmony.steps import Reply, action_tokens, opening, read_step
from radmoe_agent.harmony.tools import use
from radmoe_agent.mini import environment_config, row
from radmoe_agent.responder import Responder
from radmoe_agent.run import KEPT
from radmoe_agent.trajectory import Solved, Turn, joined

if TYPE_CHECKING:
    from radmoe_agent.instances import Instance
    from radmoe_agent.run import AgentPlan

FORMAT = "radmoe-harmony-1"
SUBMITTED, LIMIT, MALFORMED = "Submitted", "LimitsExceeded", "RepeatedFormatError"  # mini-swe-agent's own words
ATTEMPTS = 10  # at a step


class HarmonyAgent:
    """An agent at its work. `run` fills `messages`, `turns`, and `malformed`, the reasons for which steps were sampled again.

    With `kept` a request goes on from the tokens that were sampled; otherwise it is rendered from the messages, as the
    public harness does. `timeouts` counts the commands that were stopped, and `reason` says more of how it ended.
    """

    def __init__(
        self,
        responder: Responder,
        repository: Repository,
        *,
        key: str,
        rollout_index: int,
        step_limit: int,
        kept: bool = False,
    ) -> None:
        self._responder, self._repository, self._kept = responder, repository, kept
        self._key, self._rollout_index, self._step_limit = key, rollout_index, step_limit
        self._vocab = responder.engine.vocab
        self._harmony = harmony_for(self._vocab)
        self.messages: list[Message] = []
        self.turns: list[Turn] = []
        self.malformed: list[str] = []
        self.timeouts = 0
        self.reason = ""

    def run(self, messages: Sequence[Message]) -> str:
        """Work from the first messages to the end. Returns how it ended, in mini-swe-agent's words."""
        self.messages = list(messages)
        before, opened = self._harmony.render(messages), opening(self._harmony, self._vocab)
        for _ in range(self._step_limit):
            reply = self._step([*before, *opened])
            if isinstance(reply, str):
                return reply
            self.messages += reply.messages
            if reply.call is None:
                return SUBMITTED
            answer = use(reply.call, self._repository)
            self.timeouts += answer.stopped
            said = Message("tool", answer.content, reply.call.tool, reply.messages[-1].channel, "assistant")
            self.messages.append(said)
            if self._kept:
                sampled = action_tokens(self._vocab, self.turns[-1].rollout.token_ids.tolist())
                before += [*opened, *sampled, self._vocab.added[CALL]]
            else:
                before += self._harmony.render(reply.messages)
            before += self._harmony.render([said])
        return LIMIT

    def _step(self, request: list[int]) -> Reply | str:
        """The next step, or how the trajectory ends where there is none. The sample that it broke off in is a turn as well."""
        context = self._responder.engine.context
        if context is not None and len(request) >= context:
            self.reason = f"a request of {len(request):,} tokens, and the model's context is {context:,}"
            return OVERFLOW
        for attempt in range(ATTEMPTS):
            key = "/".join(map(str, (self._key, len(self.turns), attempt)[: 3 if attempt else 2]))
            done = self._responder.respond(request, key=key, rollout_index=self._rollout_index)
            turn = Turn(tuple(request), done.rollout, done.finish_reason)
            try:
                if done.finish_reason == "length":
                    if context is not None and len(request) + len(done.rollout) >= context:
                        self.turns.append(turn)
                        return OVERFLOW
                    raise Malformed(f"it did not end within {len(done.rollout):,} tokens")
                reply = read_step(self._harmony, self._vocab, done.rollout.token_ids.tolist())
            except Malformed as error:
                self.malformed.append(f"step {len(self.turns) + 1}: {error}")
                continue
            self.turns.append(turn)
            return reply
        self.turns.append(turn)
        return MALFORMED


def solve(plan: AgentPlan, instance: Instance, run: int, directory: Path) -> Solved:
    """Run one trajectory, and write it into a run directory, in the form of mini-swe-agent's files."""
    name = instance.instance_id
    path = directory / name / f"{name}{SUFFIX}"
    agent: HarmonyAgent | None = None
    failure: Exception | None = None
    status, patch = "", ""
    said: dict[str, str] = {}
    try:
        config = {"environment": environment_config(plan, instance), "run": plan.config.get("run", {})}
        environment = get_sb_environment(config, row(instance))
        try:
            shell = getattr(environment, "run", None) or environment_shell(environment)
            repository = Repository(shell, environment.config.cwd)
            agent = HarmonyAgent(
                plan.responder,
                repository,
                key=name,
                rollout_index=run,
                step_limit=plan.step_limit or 0,
                kept=plan.prompts == KEPT,
            )
            variables = environment.get_template_vars() | {"task": instance.problem_statement}
            status = agent.run(first_messages(plan.config["agent"], effort_of(plan.template_arguments), variables))
            patch, reason = _patch(repository)
            said = {"exception_str": reason or agent.reason}
        finally:
            getattr(environment, "cleanup", lambda: None)()
    except Exception as error:  # of an engine, a container or a template, each with errors of its own
        failure, status = error, type(error).__name__
        said = {"exception_str": str(error), "traceback": traceback.format_exc()}
    described = _described(agent, {"exit_status": status, "submission": patch, **said}, plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(described | {"instance_id": name}, indent=2).encode())
    turns = agent.turns if agent is not None else []
    retokenised = sum(step.kept is not None for step in joined(turns).steps) if turns else 0
    return Solved(turns, retokenised, failure)


def _patch(repository: Repository) -> tuple[str, str]:
    """The patch of a work tree; empty, with git's reason, where it cannot be read: that is this trajectory's fault alone."""
    try:
        return repository.diff(), ""
    except EngineError as error:
        return "", str(error)


def _described(agent: HarmonyAgent | None, info: dict[str, Any], plan: AgentPlan) -> dict[str, Any]:
    """A trajectory as its file has it."""
    config = {"model": {"model_name": plan.responder.engine.model_name}, "prompts": plan.prompts}
    messages = [] if agent is None else agent.messages
    if agent is not None:
        info |= {"timeouts": agent.timeouts, "malformed": agent.malformed}
    return {
        "trajectory_format": FORMAT,
        "info": info | {"config": config},
        "messages": [{key: value for key, value in asdict(one).items() if value is not None} for one in messages],
    }
