"""`radmoe agent` runs or imports N trajectories of a coding agent per issue, and picks the patch to submit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from radmoe.cli.common import IdsOnly, Json, limited, option, progress, takes, takes_crew, takes_engine, takes_rule
from radmoe.errors import InputError
from radmoe.system.printing import bar, json_text, say, say_json
from radmoe_agent.commands.screen import run_line, say_problems, show_decisions
from radmoe_agent.defaults import METHOD, TEST_SECONDS

if TYPE_CHECKING:
    from radmoe.engines import EngineOptions
    from radmoe.engines.base import Engine
    from radmoe.pool import Profile
    from radmoe.pool.work import Progress
    from radmoe_agent.instances import Instance
    from radmoe_agent.run import AgentPlan

HEADING = "Serve"
HELP = "Pick one patch out of N trajectories of a coding agent."
EXAMPLES = (
    "radmoe agent run --model MODEL --data issues/ -n 16 --out runs/",
    "radmoe agent run --harness harmony --model MODEL --data issues/ --out runs/",
    "radmoe agent run --model MODEL --data issues/ --on ray --workers 2 --out runs/",
    "radmoe agent import theirs/run_* --model MODEL --out runs/",
    "radmoe agent select runs/ --out preds.json",
)
SAMPLING = {  # temperature, top-p and tokens per step, where the model suggests none: App. "Agentic best-of-N"
    "mini-swe-agent": (0.6, 0.95, 2048),
    "harmony": (1.0, 1.0, 65_536),
}
BOUNDARIES = "step@union"  # the rows that a selection reads, and those it may fall back on

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="RUNS", help="A directory that radmoe agent run or import wrote.", show_default=False, exists=False
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="A folder with instances.jsonl: issues and their repositories.", show_default=False),
]
_TRACE: dict[str, Any] = {
    "style": option(
        str,
        "--style",
        "thinking or instruct (Qwen); low, medium or high (gpt-oss).",
        "the chat template's; harmony: high",
    ),
    "every_row": option(bool, "--every-row", "Keep the routing of every token; by default that of the boundaries."),
    "ids_only": IdsOnly,
    "topk_logprobs": option(int, "--topk-logprobs", "Logprobs kept per token; 0: none.", "20"),
}


class Traced(NamedTuple):
    """How requests are rendered, and what is kept of their tokens."""

    style: str | None = None
    every_row: bool = False
    ids_only: bool = False
    topk_logprobs: int = 20

    def profile(self, engine: Engine) -> Profile:
        """The routing that is kept of a token."""
        from radmoe.engines.kept_rows import profile_for

        readouts = None if self.every_row else (BOUNDARIES,)
        return profile_for(engine, weights=not self.ids_only, readouts=readouts)

    def template_arguments(self) -> dict[str, object]:
        from radmoe.engines.prompts import template_arguments

        return {} if self.style is None else template_arguments(self.style)


takes_traced = takes("traced", Traced, _TRACE)


@takes_traced
@takes_crew
@takes_engine("url", "dtype", "device", "threads")
def run_command(
    model: Annotated[str, typer.Option("--model", help="A checkpoint directory, or a name of the local cache.")],
    out: Annotated[Path, typer.Option("--out", help="Run directories, the pool and the candidates go there.")],
    crew: Any,
    data: Data = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config", help="Prompts in mini-swe-agent's YAML; several are merged.", show_default="the harness's own"
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Trajectories per issue.")] = 16,
    harness: Annotated[
        str, typer.Option("--harness", help="mini-swe-agent, or harmony for gpt-oss models.")
    ] = "mini-swe-agent",
    prompts: Annotated[
        str,
        typer.Option(
            "--prompts",
            help="Of harmony: each request rebuilt from messages, or kept: what was sampled stays as it is.",
        ),
    ] = "rebuilt",
    engine: Annotated[str, typer.Option("--engine", help="transformers, vllm-http, sglang-http, ...")] = "transformers",
    options: Any = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="0 is greedy.", show_default="the model's own, or 0.6; harmony: 1"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", help="Nucleus; 1 is off.", show_default="the model's own, or 0.95; harmony: 1"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", help="Tokens per step, at most.", show_default="the model's own, or 2048; harmony: 65536"
        ),
    ] = None,
    traced: Any = None,
    environment: Annotated[
        str, typer.Option("--environment", help="Where commands run: confined here, or mini-swe-agent's docker, ...")
    ] = "confined",
    step_limit: Annotated[
        int | None,
        typer.Option("--steps", help="Steps per trajectory, at most.", show_default="the configuration's, or 50"),
    ] = None,
    command_seconds: Annotated[
        int | None,
        typer.Option(
            "--command-seconds", help="Seconds per command, at most.", show_default="the configuration's, or 60"
        ),
    ] = None,
    memory: Annotated[int, typer.Option("--command-memory", help="MB of memory per process of a command.")] = 1024,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Trajectories under way at a time; with --on: of each worker.")
    ] = 16,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first issues.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed: other trajectories.")] = 0,
    as_json: Json = False,
) -> None:
    """Run mini-swe-agent, or the Harmony harness, n times on every issue, with routing.

    Each command is confined, and the routing of every step is kept. A trajectory is safe on disk once finished: run the same command again to go on, or with a higher -n for more. Nothing
    is graded. With --on the workers of a Ray cluster share the trajectories; --data and --out lie where all of them see them (docs/scale.md).
    """
    from radmoe_agent.instances import load_instances
    from radmoe_agent.run import load_config, run_agents, run_agents_on, silence, trajectory_names

    silence()
    if harness not in SAMPLING:
        raise InputError(f"harness must be one of {', '.join(SAMPLING)}, got {harness!r}")
    if prompts != "rebuilt" and harness != "harmony":
        raise InputError(f"--prompts {prompts} is of the Harmony harness: add --harness harmony")
    if data is None:
        raise InputError("radmoe agent run needs --data: a folder with instances.jsonl")
    instances = limited(limit, load_instances(data))
    settings = load_config(*(config or ()), harness=harness)
    make_plan = partial(
        _plan,
        instances,
        settings,
        engine,
        str(Path(model).absolute()) if Path(model).exists() else model,  # workers have other current directories
        options,
        traced,
        {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed},
        n=n,
        batch_size=batch_size,
        step_limit=step_limit,
        command_seconds=command_seconds,
        memory_mb=memory,
        task=data.resolve().name,
        environment=environment,
        harness=harness,
        prompts=prompts,
    )
    with bar("running agents", "trajectories") as update:

        def advance(now: Progress) -> None:
            crowd = "" if crew is None else f", {now.workers} of {crew.workers} workers"
            update(now.rollouts, now.of_rollouts, note=f"{now.tokens:,} tokens{crowd}")

        if crew is None:
            plan = make_plan()
            try:
                done = run_agents(plan, out, progress=advance)
            finally:
                plan.responder.close()
                plan.responder.engine.close()
        else:
            names = trajectory_names(instances, n)
            done = run_agents_on(crew, make_plan, names, out, cpus=options.threads, progress=advance)
    for line in done.given_up:
        say(f"radmoe: {line}", err=True)
    if as_json:
        say_json(asdict(done))
        return
    say(run_line(done))
    say(f"Now try:  radmoe agent select {quote(str(out))}")


def _plan(
    instances: Sequence[Instance],
    settings: dict[str, Any],
    engine: str,
    model: str | None,
    options: EngineOptions,
    traced: Traced,
    sampling: dict[str, Any],
    *,
    harness: str,
    batch_size: int,
    **plan: Any,
) -> AgentPlan:
    """The plan of a run, with an engine of this process."""
    from radmoe.engines import open_engine
    from radmoe.engines.base import sampling_for
    from radmoe_agent.responder import EngineResponder
    from radmoe_agent.run import AgentPlan

    opened = open_engine(engine, model, options)
    names = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_new_tokens"}
    for (name, theirs), otherwise in zip(names.items(), SAMPLING[harness], strict=True):
        if sampling[name] is None:
            sampling = sampling | {name: opened.suggested(theirs, otherwise)}
    sampled = sampling_for(opened, **sampling, topk_logprobs=traced.topk_logprobs)
    profile = traced.profile(opened)
    responder = EngineResponder(opened, sampled, batch_size=batch_size, profile=profile)
    try:
        return AgentPlan(
            instances,
            responder,
            settings,
            harness=harness,
            batch_size=batch_size,
            profile=profile,
            weights=not traced.ids_only,
            template_arguments=traced.template_arguments(),
            **plan,
        )
    except BaseException:
        responder.close()
        opened.close()
        raise


@takes_traced
@takes_engine("dtype", "device", "threads")
def import_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run directories of mini-swe-agent or harmonyagent, or a file that the lab sampled.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", help="The MoE model to replay through: the one that ran, as a rule.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The pool and the candidates go there.")],
    task: Annotated[str | None, typer.Option("--task", help="Name of the data set, for tables.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Of a file of the lab's: only the first issues.")] = None,
    traced: Any = None,
    options: Any = None,
    as_json: Json = False,
) -> None:
    """Give finished trajectories their routing.

    Each step is replayed as its own request through a local model. Run r of an issue is its trajectory in the r-th directory. What cannot be used is listed with its reason, and the rest
    goes on. Tokens of texts are those of the model's tokenizer, which may not be those that were sampled.
    """
    from radmoe.engines import open_engine
    from radmoe.system.plugins import added, attribute
    from radmoe_agent.importer import import_requests, import_trajectories

    opened = open_engine("transformers", model, options)
    with bar("replaying", "trajectories") as update:
        kept: dict[str, Any] = {
            "profile": traced.profile(opened),
            "weights": not traced.ids_only,
            "topk_logprobs": traced.topk_logprobs,
            "progress": update,
        }
        readers = [path for ending, path in added("trajectories").items() if runs[0].name.endswith(ending)]
        if len(runs) == 1 and runs[0].is_file() and readers:
            done = import_requests(attribute(readers[0])(runs[0], opened, limit=limit), opened, out, **kept)
        else:
            arguments = traced.template_arguments()
            done = import_trajectories(runs, opened, out, template_arguments=arguments, task=task, **kept)
    if as_json:
        say_json(asdict(done))
        return
    ended = f", {done.unfinished:,} did not come to their end" if done.unfinished else ""
    say(
        f"{done.directory}: {done.instances:,} issues, {done.trajectories:,} trajectories, {done.steps:,} steps; "
        f"{done.replayed:,} replayed now, {done.refused:,} cannot be used{ended}"
    )
    say_problems(out)
    say(f"Now try:  radmoe agent select {quote(str(out))}")


@takes_rule("readout", "k", "kernel")
def select_command(
    directory: Directory,
    rule: Any,
    method: Annotated[
        str,
        typer.Option(
            "--method", help="rad, patch-overlap or likelihood; joined by +, their ranks are added: rad+likelihood."
        ),
    ] = METHOD,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Predictions in SWE-bench's form.", show_default="preds.json in RUNS"),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option("--records", help="JSON lines that say why.", show_default="records.jsonl in RUNS"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="The page that shows why.", show_default="patches.html in RUNS"),
    ] = None,
    data: Data = None,
    test_seconds: Annotated[
        int, typer.Option("--test-seconds", help="Seconds for the visible tests of one patch.")
    ] = TEST_SECONDS,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first issues.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Threads; changes no result.")] = 1,
    as_json: Json = False,
) -> None:
    """Pick one patch per issue.

    What cannot be submitted leaves first: no patch, no proper end (its context overflowed, say), and with --data a patch that does not apply to its
    repository or fails the tests that instances.jsonl names (visible_tests). The method picks among the rest; no verdict is read. Writes
    the predictions, a record of every decision, and a page that shows why. An issue with nothing to submit gets an empty patch, and a
    line that says so.
    """
    from radmoe_agent.candidates import read_candidates
    from radmoe_agent.instances import load_instances
    from radmoe_agent.page import PAGE, write_page
    from radmoe_agent.patches import PREDS, RECORDS, decide_all, record, write_predictions

    if limit is not None:
        limited(limit, [0])
    instances = () if data is None else load_instances(data)
    every = read_candidates(directory)
    total = len(every)
    if unknown := data and every.keys() - {one.instance_id for one in instances}:
        say(
            f"radmoe: {data} does not have {len(unknown):,} of {total:,} issues, such as {min(unknown)}: their patches are not checked",
            err=True,
        )
    made = decide_all(
        directory, method=method, rule=rule, limit=limit, instances=instances, test_seconds=test_seconds, threads=jobs
    )
    decisions = list(progress(made, [1] * min(total, limit or total), "selecting", "issues"))
    preds, reasons = out or directory / PREDS, records or directory / RECORDS
    write_predictions(decisions, preds, reasons)
    shown = page or directory / PAGE
    with bar("writing the page", "issues") as update:
        write_page(directory, list(map(record, decisions)), shown, progress=update)
    if as_json:
        for one in decisions:
            say(json_text(record(one)))
        return
    show_decisions(decisions)
    for one in decisions:
        if one.run is None:
            say(f"radmoe: {one.instance_id}: {one.why}", err=True)
    say(f"{len(decisions):,} predictions in {preds}; why in {reasons}, and in {shown}, which a browser opens")
