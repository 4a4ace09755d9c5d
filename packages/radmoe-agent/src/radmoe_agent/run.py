"""N trajectories of every instance by mini-swe-agent or the Harmony harness, with their routing, into run directories and a pool."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe.pool import PoolWriter, Profile
from radmoe.pool.files import write_atomic
from radmoe.system.plugins import attribute
from radmoe_agent.candidates import (
    POOL,
    SUFFIX,
    Candidate,
    candidate,
    find_trajectories,
    read_trajectory,
    write_candidates,
)
from radmoe_agent.instances import Instance
from radmoe_agent.responder import Responder
from radmoe_agent.trajectory import Solved, joined

STEP_LIMIT = 50  # App. "Agentic best-of-N"
COMMAND_SECONDS = 60
LOG = "minisweagent.log"
CONFINED = "confined"
MINI, HARMONY = "mini-swe-agent", "harmony"
HARNESSES = {MINI: "radmoe_agent.mini.solve", HARMONY: "radmoe_agent.harmony.agent.solve"}
_STOCK = "benchmarks/swebench_backticks.yaml"  # mini-swe-agent's own text mode
REBUILT, KEPT = "rebuilt", "kept"


@dataclass(frozen=True)
class AgentPlan:
    """n trajectories of every instance, `workers` at a time.

    `harness` is one of `HARNESSES`. `config` is a configuration in mini-swe-agent's form (`load_config`); what it says of the model is replaced. Commands run confined
    (`ConfinedEnvironment`), or in another of mini-swe-agent's environments, such as docker, with the settings of `config`.
    Limits that are not given are those of `config`, or else the paper's. `profile` says what the pool keeps of the routing, and `template_arguments` go to the chat template.
    `prompts` says how the Harmony harness makes a step's request: "rebuilt" from its messages, or with the sampled tokens "kept".
    """

    instances: Sequence[Instance]
    responder: Responder
    config: dict[str, Any]
    n: int = 16
    workers: int = 8
    step_limit: int | None = None
    command_seconds: int | None = None
    memory_mb: int = 1024
    profile: Profile = field(default_factory=Profile)
    weights: bool = True
    task: str | None = None
    environment: str = CONFINED
    template_arguments: dict[str, object] = field(default_factory=dict)
    harness: str = MINI
    prompts: str = REBUILT

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("harness", self.harness, HARNESSES),
            ("prompts", self.prompts, (REBUILT, KEPT)),
        ):
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        if self.harness == HARMONY:
            from radmoe_agent.harmony.openai import harmony_for
            from radmoe_agent.harmony.prompts import effort_of

            harmony_for(self.responder.engine.vocab)  # refuses a vocabulary that has none of its tokens
            effort_of(self.template_arguments)
        agent, environment = self.config.get("agent"), self.config.get("environment")
        if not isinstance(agent, dict) or not {"system_template", "instance_template"} <= agent.keys():
            raise InputError("the configuration has no agent with system_template and instance_template")
        seconds = environment.get("timeout") if isinstance(environment, dict) else None
        for name, own, otherwise in (
            ("step_limit", agent.get("step_limit"), STEP_LIMIT),
            ("command_seconds", seconds, COMMAND_SECONDS),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, own or otherwise)
        for name in ("n", "workers", "step_limit", "command_seconds", "memory_mb"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.instances:
            raise InputError("a plan needs at least one instance, got none")
        bare = next((one for one in self.instances if one.repository is None and not one.files), None)
        if self.environment == CONFINED and bare is not None:
            raise InputError(
                f"{bare.instance_id} has neither repository nor files, which confined commands need: name mini-swe-agent's "
                "environment that has them, such as docker"
            )


class AgentProgress(NamedTuple):
    """How far a run is: trajectories finished in this call and wanted in it, steps taken in it."""

    finished: int
    of: int
    steps: int


@dataclass(frozen=True)
class AgentRun:
    """The result of a run.

    `ran` are the trajectories of this call, and `lost` are those that left no routing; `failure` is the first reason
    for that in this call. `retokenised` counts the requests that did not go on from the one before.
    """

    directory: str
    instances: int
    trajectories: int
    ran: int
    steps: int
    submitted: int
    lost: int
    retokenised: int
    failure: str | None


def load_config(*sources: str | Path, harness: str = MINI) -> dict[str, Any]:
    """A configuration from files in mini-swe-agent's form, merged in their order; the harness's own where none is given."""
    if harness == HARMONY and not sources:
        from radmoe_agent.harmony.prompts import CONFIG

        return CONFIG
    silence()
    from minisweagent.config import get_config_from_spec
    from minisweagent.utils.serialize import recursive_merge

    try:
        config: dict[str, Any] = recursive_merge(*(get_config_from_spec(str(one)) for one in sources or (_STOCK,)))
    except FileNotFoundError as error:
        raise InputError(f"there is no configuration {sources}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # whatever a YAML parser makes of a file
        raise InputError(f"the configuration {sources} cannot be read: {str(error).splitlines()[0]}") from None
    return config


def run_agents(
    plan: AgentPlan, out: str | Path, *, progress: Callable[[AgentProgress], None] = lambda progress: None
) -> AgentRun:
    """Run the trajectories that the pool in `out` lacks.

    `out` gets a run directory per trajectory number, as mini-swe-agent's batch runner writes them (`preds.json`,
    `INSTANCE/INSTANCE.traj.json`), the pool, and the list of candidates. A trajectory is safe once it is finished, so an
    interrupted run goes on; one that left no routing because its request could not be answered is tried again.
    """
    silence()
    if plan.environment == CONFINED:
        from radmoe_agent.confined import check_confinement

        check_confinement()
    out = Path(out)
    work = _Work(plan, out)
    wanted = []
    with work.writer:
        for run in range(plan.n):
            _complete_predictions(run_directory(out, run))
            wanted += [(one, run) for one in plan.instances if not work.writer.has(one.instance_id, run)]
        _run_all(work, wanted, progress)
    members = [work.described(one, run) for one in plan.instances for run in range(plan.n)]
    write_candidates(out, members)
    return AgentRun(
        str(out),
        len(plan.instances),
        len(members),
        len(wanted),
        work.steps,
        sum(one.status == "Submitted" for one in members),
        sum(not work.writer.has(one.instance_id, one.run) for one in members),
        work.retokenised,
        work.failure,
    )


def run_directory(out: Path, run: int) -> Path:
    return out / f"run_{run:02d}"


def _complete_predictions(directory: Path) -> None:
    """Write the `preds.json` of a run directory again, from its trajectories, if a kill cut it short.

    mini-swe-agent writes that file in place, and cannot go on from half of one.
    """
    path = directory / "preds.json"
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        rows = {}
        for name, file in find_trajectories(directory).items():
            with suppress(InputError):  # one that was cut short too will be run again
                one = read_trajectory(file)
                rows[name] = {"model_name_or_path": one.model, "instance_id": name, "model_patch": one.patch}
        write_atomic(path, json.dumps(rows, indent=2).encode())


class _Work:
    """One call of `run_agents`: the pool it writes to, and how far it is."""

    def __init__(self, plan: AgentPlan, out: Path) -> None:
        self.plan, self.out = plan, out
        self.steps = self.retokenised = 0
        self.stopped = False
        self.failure: str | None = None
        self._places = {one.instance_id: place for place, one in enumerate(plan.instances)}
        self._lock = threading.Lock()
        engine = plan.responder.engine
        self.writer = PoolWriter(
            out / POOL,
            shape=engine.shape,
            vocab=engine.vocab,
            model=engine.model_name,
            task=plan.task,
            sampling=asdict(plan.responder.sampling)
            | {"raw": False, "engine": engine.name, "dtype": engine.dtype, "agent": _identity(plan)},
            profile=plan.profile,
            provenance=engine.provenance(),
        )

    def __call__(self, instance: Instance, run: int) -> None:
        """Run one trajectory by the harness, and put it into the pool."""
        if self.stopped:
            return
        directory = run_directory(self.out, run)
        directory.mkdir(parents=True, exist_ok=True)
        session: Solved = attribute(HARNESSES[self.plan.harness])(self.plan, instance, run, directory)
        if session.failure is None and session.turns:
            self._keep(instance, run, session)
        elif self.failure is None:
            self.failure = self._reason(instance.instance_id, run, session.failure)

    def described(self, instance: Instance, run: int) -> Candidate:
        """The candidate that describes a trajectory."""
        try:
            made = candidate(instance.instance_id, run, read_trajectory(self._path(instance.instance_id, run)))
        except InputError as error:
            return Candidate(instance.instance_id, run, model=self.plan.responder.engine.model_name, problem=str(error))
        if made.usable and not self.writer.has(instance.instance_id, run):
            return replace(made, problem="it has no step, so there is no routing to compare")
        return made

    def _reason(self, instance_id: str, run: int, failure: BaseException | None) -> str:
        """The reason that a trajectory has no routing."""
        if failure is not None:
            return str(failure) or type(failure).__name__
        try:
            trajectory = read_trajectory(self._path(instance_id, run))
        except InputError:  # the agent did not come to its first message
            return f"see {self.out / LOG}"
        return f"{trajectory.status}: {trajectory.error}" if trajectory.error else trajectory.status

    def _keep(self, instance: Instance, run: int, session: Solved) -> None:
        trajectory = read_trajectory(self._path(instance.instance_id, run))
        rollout = joined(session.turns)
        with self._lock:
            self.steps += len(session.turns)
            self.retokenised += session.retokenised
            self.writer.add(
                instance.instance_id,
                rollout if self.plan.weights else replace(rollout, weights=None),
                kind="agent",
                rollout_index=run,
                problem_index=self._places[instance.instance_id],
                text=trajectory.patch or None,
                finish_reason=session.turns[-1].finish_reason,
                extra={"exit_status": trajectory.status, "retokenised": session.retokenised},
            )

    def _path(self, instance_id: str, run: int) -> Path:
        return run_directory(self.out, run) / instance_id / f"{instance_id}{SUFFIX}"


def _run_all(work: _Work, wanted: Sequence[tuple[Instance, int]], progress: Callable[[AgentProgress], None]) -> None:
    """Run trajectories in parallel. An interrupt starts no more of them and gives up those under way."""
    from radmoe_agent.confined import stop_commands

    with _logged(work.out), ThreadPoolExecutor(work.plan.workers, "radmoe-agent") as pool:
        under_way: set[Future[None]] = {pool.submit(work, *one) for one in wanted}
        finished = 0
        try:
            while under_way:
                done, under_way = wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
                finished += len(done)
                progress(AgentProgress(finished, len(wanted), work.steps))
        except BaseException:
            work.stopped = True
            for one in under_way:
                one.cancel()
            work.plan.responder.close()
            stop_commands()
            raise


def _identity(plan: AgentPlan) -> dict[str, Any]:
    """The settings that must be the same when a run goes on: the harness, its prompts and its limits."""
    prompts = json.dumps([plan.config.get(part) for part in ("agent", "model", "run")], sort_keys=True, default=str)
    if plan.harness == HARMONY:
        harness = {"harness": HARMONY, "prompts": plan.prompts}
    else:
        from minisweagent import __version__

        harness = {"harness": f"{MINI} {__version__}"}
    return harness | {
        "config": hashlib.sha256(prompts.encode()).hexdigest(),
        "step_limit": plan.step_limit,
        "command_seconds": plan.command_seconds,
        "memory_mb": plan.memory_mb,
        "environment": plan.environment,
        "template_arguments": plan.template_arguments,
    }


def silence() -> None:
    """Keep mini-swe-agent from greeting and from printing its log; `_logged` writes it to a file."""
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    try:
        import minisweagent  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f"this needs {error.name}: pip install radmoe-agent") from None


@contextmanager
def _logged(out: Path) -> Iterator[None]:
    """mini-swe-agent's log goes to a file in `out`, and nowhere else, while the context lasts."""
    out.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(out / LOG)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    logger = logging.getLogger("minisweagent")
    before, propagates = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagates
        handler.close()
