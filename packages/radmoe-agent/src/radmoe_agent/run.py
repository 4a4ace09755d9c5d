"""N trajectories of every instance by mini-swe-agent or the Harmony harness, with their routing, into run directories and a pool."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from radmoe.errors import EngineError, InputError
from radmoe.pool import PoolWriter, Profile, open_pool
from radmoe.pool.files import write_atomic
from radmoe.pool.work import Making, Name, Progress, fill
from radmoe.system.cluster import Crew, cluster
from radmoe.system.plugins import attribute
from radmoe.system.scratch import Scratch, remove_abandoned
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
_UNDER_WAY = ".under-way-"  # begins the name of a directory with what is not finished
_NO_STEP = "it has no step, so there is no routing to compare"
HARNESSES = {MINI: "radmoe_agent.mini.solve", HARMONY: "radmoe_agent.harmony.agent.solve"}
_STOCK = "benchmarks/swebench_backticks.yaml"  # mini-swe-agent's own text mode
REBUILT, KEPT = "rebuilt", "kept"


@dataclass(frozen=True)
class AgentPlan:
    """n trajectories of every instance, `batch_size` at a time.

    `harness` is one of `HARNESSES`. `config` is a configuration in mini-swe-agent's form (`load_config`); what it says of the model is replaced. Commands run confined
    (`ConfinedEnvironment`), or in another of mini-swe-agent's environments, such as docker, with the settings of `config`.
    Limits that are not given are those of `config`, or else the paper's. `profile` says what the pool keeps of the routing, and `template_arguments` go to the chat template.
    `prompts` says how the Harmony harness makes a step's request: "rebuilt" from its messages, or with the sampled tokens "kept".
    """

    instances: Sequence[Instance]
    responder: Responder
    config: dict[str, Any]
    n: int = 16
    batch_size: int = 8
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
        for name in ("n", "batch_size", "step_limit", "command_seconds", "memory_mb"):
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


@dataclass(frozen=True)
class AgentRun:
    """The result of a run.

    `ran` are the trajectories of this call, and `lost` are those that left no routing; `failure` is the reason of the first.
    `steps` are those of all trajectories, and `retokenised` counts the requests that did not go on from the one before.
    `given_up` says which workers of a cluster were given up and why.
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
    given_up: tuple[str, ...] = ()


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
    plan: AgentPlan, out: str | Path, *, progress: Callable[[Progress], None] = lambda progress: None
) -> AgentRun:
    """Run the trajectories that the pool in `out` lacks.

    `out` gets a run directory per trajectory number, as mini-swe-agent's batch runner writes them (`preds.json`,
    `INSTANCE/INSTANCE.traj.json`), the pool, and the list of candidates. A trajectory is safe once it is finished, so an
    interrupted run goes on; one that left no routing because its request could not be answered is tried again.
    """
    work = AgentWork(plan, out)
    tally = fill(work, work.out / POOL, progress)
    return _finished(out, work.names, tally.rollouts)


def run_agents_on(
    crew: Crew,
    make_plan: Callable[[], AgentPlan],
    names: Sequence[Name],
    out: str | Path,
    *,
    cpus: int | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> AgentRun:
    """Run these trajectories as `run_agents` does, by the workers of a cluster, which all see `out` under this path.

    Every worker builds the plan, and with it an engine of its own, by `make_plan`, which is sent to it by `pickle`.
    """
    make_work = partial(_work, make_plan, Path(out).absolute())
    made = cluster(crew.on).fill(make_work, Path(out) / POOL, crew, progress, cpus=cpus)
    return replace(_finished(out, names, made.sampled), given_up=made.given_up)


def _work(make_plan: Callable[[], AgentPlan], out: Path) -> AgentWork:
    return AgentWork(make_plan(), out)


def trajectory_names(instances: Sequence[Instance], n: int) -> list[Name]:
    """The names of n trajectories of every instance: the first ones of all, and so on."""
    return [(one.instance_id, run) for run in range(n) for one in instances]


def run_directory(out: Path, run: int) -> Path:
    return out / f"run_{run:02d}"


def _path(out: Path, instance_id: str, run: int) -> Path:
    return run_directory(out, run) / instance_id / f"{instance_id}{SUFFIX}"


class AgentWork:
    """The trajectories of a plan, to be run by one process or by several, with their files in `out` and their routing in its pool."""

    def __init__(self, plan: AgentPlan, out: str | Path) -> None:
        silence()
        if plan.environment == CONFINED:
            from radmoe_agent.confined import check_confinement

            check_confinement()
        for one in plan.instances:
            if one.repository is not None and not one.repository.is_dir():
                raise InputError(
                    f"{one.instance_id}: there is no {one.repository} here: give a --data that all nodes see"
                )
        self.plan, self.out, self.batch_size = plan, Path(out), plan.batch_size
        self.names: Sequence[Name] = trajectory_names(plan.instances, plan.n)
        engine = plan.responder.engine
        self.record: dict[str, Any] = {
            "shape": engine.shape,
            "vocab": engine.vocab,
            "model": engine.model_name,
            "task": plan.task,
            "sampling": asdict(plan.responder.sampling)
            | {"raw": False, "engine": engine.name, "dtype": engine.dtype, "agent": _identity(plan)},
            "profile": plan.profile,
            "provenance": engine.provenance(),
        }
        self._places = {one.instance_id: (place, one) for place, one in enumerate(plan.instances)}
        self._lock = threading.Lock()
        self._stopped = False

    def make(self, names: Sequence[Name], writer: PoolWriter) -> Making:
        """Run these trajectories and keep them. Who stops in the middle gives up those under way."""
        from radmoe_agent.confined import stop_commands

        scratch = Scratch(self.out, _UNDER_WAY)
        try:
            with _logged(self.out), ThreadPoolExecutor(self.batch_size, "radmoe-agent") as threads:
                under_way = {threads.submit(self._run, scratch.path, writer, *name): name for name in names}
                try:
                    for one in as_completed(under_way):
                        if (tokens := one.result()) is not None:
                            yield under_way[one], tokens
                except BaseException:
                    self._stopped = True
                    for one in under_way:
                        one.cancel()
                    self.plan.responder.close()
                    stop_commands()
                    raise
        finally:
            scratch.remove()

    def _run(self, scratch: Path, writer: PoolWriter, instance_id: str, run: int) -> int | None:
        """Run one trajectory by the harness, and put it into the pool. Returns its tokens; None if it left no routing.

        Harnesses write into a directory that is this process's own, because mini-swe-agent changes `preds.json` in place.
        """
        if self._stopped:
            return None
        path, made = _path(self.out, instance_id, run), _path(scratch, instance_id, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        run_directory(scratch, run).mkdir(exist_ok=True)
        place, instance = self._places[instance_id]
        session: Solved = attribute(HARNESSES[self.plan.harness])(self.plan, instance, run, run_directory(scratch, run))
        if made.exists():
            made.replace(path)
        if session.failure is not None or not session.turns:
            if (failures := self.plan.responder.failures) > self.batch_size and not self._stopped:
                raise EngineError(
                    f"{failures} requests in a row were not answered, the last one for: {session.failure}"
                )
            return None
        trajectory, rollout = read_trajectory(path), joined(session.turns)
        with self._lock:
            writer.add(
                instance_id,
                rollout if self.plan.weights else replace(rollout, weights=None),
                kind="agent",
                rollout_index=run,
                problem_index=place,
                text=trajectory.patch or None,
                finish_reason=session.turns[-1].finish_reason,
                extra={"exit_status": trajectory.status, "retokenised": session.retokenised},
            )
        return len(rollout)


def _finished(out: str | Path, names: Sequence[Name], made: int) -> AgentRun:
    """Write the predictions of every run and the candidates, and say what became of a run that made so many trajectories."""
    root = Path(out)
    remove_abandoned(root, _UNDER_WAY)
    pool = open_pool(root / POOL)
    table = pool.runs(["problem_id", "rollout_index", "steps"]).to_pylist()
    routed = {(row["problem_id"], row["rollout_index"]): row["steps"] or [] for row in table}
    members = [_described(root, name, name in routed, pool.model) for name in names]
    write_candidates(root, members)
    for run in {run for _, run in names}:
        _write_predictions(run_directory(root, run), {one.instance_id: one for one in members if one.run == run})
    steps = [routed[name] for name in names if name in routed]
    lost = [name for name in names if name not in routed]
    return AgentRun(
        str(out),
        len({name for name, _ in names}),
        len(names),
        made + len(lost),
        sum(map(len, steps)),
        sum(one.status == "Submitted" for one in members),
        len(lost),
        sum(step["kept"] is not None for each in steps for step in each),
        _reason(root, *lost[0]) if lost else None,
    )


def _described(out: Path, name: Name, routed: bool, model: str) -> Candidate:
    """The candidate that describes a trajectory."""
    try:
        made = candidate(*name, read_trajectory(_path(out, *name)))
    except InputError as error:
        return Candidate(*name, model=model, problem=str(error))
    return replace(made, problem=_NO_STEP) if made.usable and not routed else made


def _reason(out: Path, instance_id: str, run: int) -> str:
    """The reason that a trajectory has no routing."""
    try:
        trajectory = read_trajectory(_path(out, instance_id, run))
    except InputError:  # the agent did not come to its first message
        return f"see {out / LOG}"
    return f"{trajectory.status}: {trajectory.error}" if trajectory.error else trajectory.status


def _write_predictions(directory: Path, known: dict[str, Candidate]) -> None:
    """Write the `preds.json` of a run directory, as mini-swe-agent does: for what is known, and other trajectories there."""
    directory.mkdir(exist_ok=True)
    rows = {}
    for name, file in find_trajectories(directory).items():
        with suppress(InputError):  # one that was cut short
            one = known.get(name) or read_trajectory(file)
            rows[name] = {"model_name_or_path": one.model, "instance_id": name, "model_patch": one.patch}
    write_atomic(directory / "preds.json", json.dumps(rows, indent=2).encode())


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
