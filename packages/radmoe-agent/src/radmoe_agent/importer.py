"""Imports existing trajectories, of ChatML or Harmony agents: each step is replayed through a local model as the request that it was.

A trajectory holds texts, so the tokens are those of the tokenizer, which may not be those that were sampled; the pool
records that. Without the reasoning there is no boundary to read, so a trajectory that did not keep it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radmoe.engines.base import Engine
from radmoe.engines.prompts import render
from radmoe.engines.replay import replay
from radmoe.engines.replay.sources import RETOKENISED, SAMPLED, Source, SourceRollout
from radmoe.errors import InputError
from radmoe.pool import Profile, open_pool
from radmoe.selection.anchors import MARKERS, markers_for, text_response
from radmoe.types import Kind, check_steps
from radmoe_agent.candidates import (
    POOL,
    UNFINISHED,
    Candidate,
    Trajectory,
    candidate,
    refuse_other_models,
    write_candidates,
)
from radmoe_agent.conversation import Conversation, plain
from radmoe_agent.harmony.messages import START
from radmoe_agent.harmony.transcripts import (
    TAPE,
    files_of,
    is_harmony,
    read_files,
    requests_of_messages,
    requests_of_tape,
)
from radmoe_agent.trajectory import steps_of

_MARKERS = MARKERS["qwen3"]  # of ChatML models
_OPEN, _CLOSE = (marker.pattern.decode() for marker in (_MARKERS.thinking, _MARKERS.boundary))


class ReplayRequest(NamedTuple):
    """One request of a trajectory: its token ids, and those of the answer."""

    prompt: Sequence[int]
    answer: Sequence[int]


@dataclass(frozen=True)
class ImportedTrajectories:
    """The result of an import. `refused` are the trajectories without routing in the pool, and `unfinished` those that
    did not come to their end."""

    directory: str
    instances: int
    trajectories: int
    replayed: int
    refused: int
    unfinished: int
    steps: int


class RequestSource(Source):
    """Finished trajectories as requests.

    `candidates` lists all of them, and `runs` those of each instance that can be replayed: `load(instance_id, run)` gives
    the requests of one. `record` goes into the pool's run record and identifies the source by its contents. `tokens` says
    whether the ids are those that were sampled (`SAMPLED`), or those of texts (`RETOKENISED`).
    """

    style = None

    def __init__(
        self,
        candidates: Sequence[Candidate],
        runs: Mapping[str, Sequence[int]],
        load: Callable[[str, int], Sequence[ReplayRequest]],
        record: dict[str, Any],
        *,
        tokens: str = SAMPLED,
        task: str | None = None,
    ) -> None:
        self.candidates, self.task = list(candidates), task
        self._runs, self._load, self._tokens = runs, load, tokens
        self._described = {(one.instance_id, one.run): one for one in candidates}
        self.kinds: dict[str, Kind | None] = dict.fromkeys(runs, "agent")
        self.record = record | {"raw": False, "tokens": tokens}

    def rollouts(self, problem_id: str) -> Iterator[SourceRollout]:
        for run in self._runs[problem_id]:
            one = self._described[problem_id, run]
            requests = self._load(problem_id, run)
            steps = steps_of(requests)
            yield SourceRollout(
                f"run {run} of {problem_id}",
                run,
                None,
                steps,
                np.array([token for request in requests for token in request.answer], np.int32),
                one.patch.encode("utf-8", "surrogatepass").decode("utf-8", "replace") or None,
                None,
                self._tokens,
                steps,
                extra={"exit_status": one.status},
            )


def import_trajectories(
    runs: Sequence[str | Path],
    engine: Engine,
    out: str | Path,
    *,
    template_arguments: dict[str, object] | None = None,
    task: str | None = None,
    **options: Any,
) -> ImportedTrajectories:
    """Replay the trajectories of N run directories through a local model into `out`; `options` are `import_requests`'.

    Run r of an instance is its trajectory in the r-th directory. What is missing, truncated, of another model than
    most, without reasoning, or too long for the model is listed with its reason and left out. `task` is the name of the
    data set, for the pool's run record.
    """
    source = _source([Path(run) for run in runs], engine, template_arguments or {}, task)
    return import_requests(source, engine, out, **options)


def import_requests(
    source: RequestSource,
    engine: Engine,
    out: str | Path,
    *,
    profile: Profile | None = None,
    weights: bool = True,
    topk_logprobs: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ImportedTrajectories:
    """Replay trajectories through a local model into the pool of `out`, and list the candidates beside it."""
    out = Path(out)
    if not source.kinds:
        first = next((one.problem for one in source.candidates if one.problem), "there are none")
        raise InputError(f"none of {len(source.candidates)} trajectories can be imported: {first}")
    done = replay(
        source,
        engine,
        out / POOL,
        kind="agent",
        profile=profile,
        weights=weights,
        topk_logprobs=topk_logprobs,
        progress=progress,
    )
    write_candidates(out, source.candidates)
    pool = open_pool(out / POOL)
    return ImportedTrajectories(
        str(out),
        len({one.instance_id for one in source.candidates}),
        len(source.candidates),
        done.replayed,
        len(source.candidates) - done.rollouts,
        sum(one.status in UNFINISHED for one in source.candidates),
        sum(len(rollout.starts) for group in pool.groups() for rollout in group.rollouts),
    )


def _source(
    runs: Sequence[Path], engine: Engine, template_arguments: dict[str, object], task: str | None
) -> RequestSource:
    """The trajectories of run directories; those that can be replayed are found by reading all of them once."""
    if not runs:
        raise InputError("an import needs at least one run directory")
    if markers_for(engine.vocab) is MARKERS["generic"]:
        raise InputError(
            f"{engine.model_name} has no token {_CLOSE} and none of Harmony's: trajectories of such models are imported"
        )
    paths = [files_of(run) for run in runs]
    names = sorted({name for own in paths for name in own})
    if not names:
        raise InputError(f"there is no trajectory (*.traj.json, *{TAPE}) in {', '.join(map(str, runs))}")
    digest = hashlib.sha256()
    every = [
        _described(name, run, own.get(name, []), runs[run], digest, engine, template_arguments)
        for name in names
        for run, own in enumerate(paths)
    ]
    candidates = refuse_other_models([one for one, _ in every])
    usable: dict[str, list[int]] = {}
    for one, (before, replayable) in zip(candidates, every, strict=True):
        if replayable and one is before:
            usable.setdefault(one.instance_id, []).append(one.run)

    def load(name: str, run: int) -> list[ReplayRequest]:
        return requests_of(read_files(name, paths[run][name], runs[run]), engine, template_arguments)

    source = {"trajectories": [run.name for run in runs], "sha256": digest.hexdigest()}
    record = {"source": source, "template_arguments": template_arguments}
    return RequestSource(candidates, usable, load, record, tokens=RETOKENISED, task=task)


def _described(
    name: str,
    run: int,
    paths: Sequence[Path],
    directory: Path,
    digest: Any,
    engine: Engine,
    template_arguments: dict[str, object],
) -> tuple[Candidate, bool]:
    """One trajectory as a candidate, and whether it can be replayed."""
    digest.update(f"{name}/{run}:".encode("utf-8", "surrogateescape"))
    if not paths:
        return Candidate(name, run, problem="there is no trajectory"), False
    try:
        name.encode()
        trajectory = read_files(name, paths, directory)
        for path in paths:
            digest.update(path.read_bytes())
        made = candidate(name, run, trajectory)
    except (InputError, OSError, UnicodeEncodeError) as error:
        return Candidate(name, run, problem=str(error)), False
    problem = why_not(lambda: requests_of(trajectory, engine, template_arguments), engine)
    return (made, True) if problem is None else (replace(made, problem=problem), False)


def why_not(load: Callable[[], Sequence[ReplayRequest]], engine: Engine) -> str | None:
    """The reason that the requests of a trajectory cannot be replayed; None where they can.

    Somebody else wrote them, and what is odd in a message may fail anywhere: in the chat template, the tokenizer or here.
    """
    try:
        requests = load()
        given, answers = ([token for ids in part for token in ids] for part in zip(*requests, strict=True))
        check_steps(steps_of(requests), len(answers))
        if max([*given, *answers]) >= len(engine.vocab):
            raise InputError(f"it has tokens that {engine.model_name} does not have")
    except Exception as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def requests_of(trajectory: Trajectory, engine: Engine, template_arguments: dict[str, object]) -> list[ReplayRequest]:
    """Every request of a trajectory with its answer, those included whose answer was refused for its form.

    Raises InputError where there is no answer, where no answer has its reasoning, where a request does not fit the
    model's context, or where the trajectory is written for another kind of model.
    """
    if is_harmony(trajectory) != (markers_for(engine.vocab) is MARKERS["gpt-oss"]):
        own, other = ("Harmony", "ChatML") if is_harmony(trajectory) else ("ChatML", "Harmony")
        raise InputError(f"it is written in {own}, and {engine.model_name} has the tokens of {other}")
    if is_harmony(trajectory):
        return _harmony_requests(trajectory, engine)
    conversation = Conversation(engine.tokenizer, template_arguments)
    history: list[dict[str, Any]] = []
    requests: list[ReplayRequest] = []
    reasoned = False
    for message in trajectory.messages:
        refused = _refused_answer(message)
        if message["role"] == "assistant" or refused is not None:
            prompt = conversation.prompt(history)
            text = _answer(message if refused is None else refused, history, conversation, engine.tokenizer)
            reasoned = reasoned or _has_boundary(text)
            answer = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
            requests.append(_fitting(len(requests) + 1, ReplayRequest(prompt, answer), engine))
            if refused is None:
                conversation.answered(list(answer))
        if message["role"] != "exit":
            history.append(message)
    if not requests:
        raise InputError("it has no answer of a model, so there is no routing")
    if not reasoned:
        raise InputError(
            f"its reasoning was not kept: none of its {len(requests)} answers has {_CLOSE} or reasoning_content; run the "
            "agent so that reasoning stays in its messages"
        )
    return requests


def _harmony_requests(trajectory: Trajectory, engine: Engine) -> list[ReplayRequest]:
    found = (
        requests_of_tape(trajectory.exchanges, engine)
        if trajectory.exchanges
        else requests_of_messages(trajectory.messages, engine)
    )
    requests = [_fitting(step, ReplayRequest(*one), engine) for step, one in enumerate(found, 1)]
    if not requests:
        raise InputError("it has no answer of a model, so there is no routing")
    if not any(engine.vocab.added[START] in one.answer for one in requests):
        raise InputError(
            f"its reasoning was not kept: none of its {len(requests)} answers has a thought before its action"
        )
    return requests


def _fitting(step: int, request: ReplayRequest, engine: Engine) -> ReplayRequest:
    """A request that fits the model's context; InputError for one that does not."""
    prompt, answer = map(len, request)
    if engine.context is not None and prompt + answer > engine.context:
        raise InputError(
            f"step {step} has {prompt} + {answer} tokens, and the context of {engine.model_name} is {engine.context}"
        )
    return request


def _has_boundary(text: str) -> bool:
    """Whether a text has the marker behind which its action stands."""
    return text_response(text, _MARKERS) not in ((0, 0), None)


def _refused_answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer behind a complaint about its form, which is no message of its own; None for any other message."""
    extra = message.get("extra") or {}
    if extra.get("interrupt_type") != "FormatError":
        return None
    answer = _response_message(extra)
    if extra.get("model_response") is not None:
        answer = answer | {"content": extra["model_response"]}
    return {"content": ""} | answer | {"role": "assistant"}


def _response_message(extra: dict[str, Any]) -> dict[str, Any]:
    """The message of the server's whole answer, where a trajectory keeps it."""
    match extra.get("response"):
        case {"choices": [{"message": dict(message)}, *_]}:
            return message
    return {}


def _answer(
    message: dict[str, Any], history: Sequence[dict[str, Any]], conversation: Conversation, tokenizer: Any
) -> str:
    """The text that the model generated, with its end token."""
    end = str(tokenizer.eos_token or "")
    before = conversation.text(history)
    own = plain(message)
    reasoning = _reasoning(message)
    if own.get("tool_calls"):
        if reasoning:
            own["reasoning_content"] = reasoning
        text = render(tokenizer, [*(plain(one) for one in history), own], conversation.arguments, answer=False)
        if not text.startswith(before):
            raise InputError("the chat template does not render tool calls so that they follow the request")
        return text[len(before) :].partition(end)[0] + end if end else text[len(before) :]
    text = own["content"]
    if not _has_boundary(text) and reasoning:
        text = f"{_OPEN}\n{reasoning.strip()}\n{_CLOSE}\n\n{text.lstrip()}"
    if before.rstrip().endswith(_OPEN):  # the template opens the reasoning itself
        text = text.removeprefix(_OPEN).lstrip("\n")
    return text + end


def _reasoning(message: dict[str, Any]) -> str:
    whole = _response_message(message.get("extra") or {})
    kept = (source.get(name) for source in (message, whole) for name in ("reasoning_content", "reasoning"))
    return next((text for text in kept if isinstance(text, str) and text.strip()), "")
