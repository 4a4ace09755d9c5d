"""What inspect_ai finds by its entry point: best-of-N of a radmoe server, and recorded rollouts as epochs.

`--model radmoe/NAME` is a server; `best_of` asks it for the pick of N rollouts. `recorded` answers epoch by epoch with the
rollouts of a pool, `with_rollout` lets scores say whose they are, and `rad` reduces them to the score of the pick.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelCall,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.scorer import Score, Scorer, ScoreReducer, Target, accuracy, score_reducer, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolChoice, ToolInfo

from radmoe.errors import InputError, RadmoeError
from radmoe.types import PresetName
from radmoe_integrations.recorded import RecordedPool

_URL, _KEY = "RADMOE_BASE_URL", "RADMOE_API_KEY"
_SECONDS = 10.0  # until a server must be there; it may sample for as long as it takes
_SENT = {  # what inspect_ai calls it -> what OpenAI's API calls it
    name: name
    for name in (
        "max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort"
    )
} | {"stop_seqs": "stop", "num_choices": "n"}  # fmt: skip
_USAGE = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}


@contextmanager
def _one_line() -> Iterator[None]:
    """Let inspect_ai end with the message of an error of ours, without a traceback; it reads brackets as markup."""
    try:
        yield
    except RadmoeError as error:
        raise PrerequisiteError(str(error).replace("[", r"\[")) from None


@modelapi(name="radmoe")
class RadmoeServer(ModelAPI):
    """`radmoe serve`, by default at localhost:8100, else at RADMOE_BASE_URL. What it decided is in the output's metadata.

    inspect_ai's own provider of OpenAI's API drops that. Messages are texts; tools are refused.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008
    ) -> None:
        url = base_url or os.environ.get(_URL) or "http://localhost:8100/v1"
        super().__init__(model_name, url, api_key or os.environ.get(_KEY) or "none", [_KEY], config)
        self._url, self._tls = url, httpx.create_ssl_context()
        with _one_line():
            self._check()

    def _check(self) -> None:
        """Refuse a server that is not there, that is not radmoe's, or that has no such model, before anything runs."""
        try:
            answer = httpx.get(f"{self._url}/models", headers=self._headers, timeout=_SECONDS, verify=self._tls)
            names = {each["id"] for each in answer.raise_for_status().json()["data"]}
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"no server answers at {self._url} ({error}): start radmoe serve, or set {_URL} to its address with /v1 at "
                f"the end, and {_KEY} to its key"
            ) from None
        served = {name.partition("#rad")[0] for name in names if "#rad" in name}
        if self.model_name.partition("#rad")[0] not in served:
            raise InputError(
                f"the server at {self._url} has no best-of-N of {self.model_name}: "
                + (f"ask for {', '.join(sorted(served))}" if served else "it is not radmoe serve, which this needs")
            )

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> tuple[ModelOutput, ModelCall]:
        """The choices of one request. Raises an InputError with what the server has against it."""
        if tools:
            raise InputError(
                "a radmoe server gets no tools from here: --model openai-api/radmoe/NAME#rad-16 passes them on"
            )
        body: dict[str, Any] = {"model": self.model_name, "messages": [_sent(message) for message in input]}
        body |= {theirs: value for ours, theirs in _SENT.items() if (value := getattr(config, ours)) is not None}
        body |= config.extra_body or {}
        try:
            async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=_SECONDS), verify=self._tls) as client:
                answer = await client.post(f"{self._url}/chat/completions", json=body, headers=self._headers)
            document = answer.json()
            if answer.is_success:
                return _output(document), ModelCall.create(body, document)
            refusal = document["error"]["message"]
        except (httpx.TransportError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"no usable answer of the server at {self._url}: {error}") from None
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            answer.raise_for_status()
        raise InputError(f"the radmoe server refuses: {refusal}")

    def should_retry(self, ex: BaseException) -> bool:
        """Whether the server's queue was full; servers behind it that fail are asked again by the server itself."""
        return isinstance(ex, httpx.HTTPStatusError)


def _sent(message: ChatMessage) -> dict[str, str]:
    if not isinstance(message.content, str):
        others = {part.type for part in message.content if not isinstance(part, ContentText | ContentReasoning)}
        if others:
            raise InputError(f"a radmoe server takes messages of text, and this one has {', '.join(sorted(others))}")
    return {"role": message.role, "content": message.text}


def _output(document: dict[str, Any]) -> ModelOutput:
    model, usage = document["model"], document["usage"]
    counts = {ours: usage[theirs] for ours, theirs in _USAGE.items()}
    return ModelOutput(
        model=model,
        choices=[
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=_content(choice["message"]), model=model, source="generate"),
                stop_reason="max_tokens" if choice["finish_reason"] == "length" else "stop",
            )
            for choice in document["choices"]
        ],
        usage=ModelUsage(**counts),
        metadata={"radmoe": {"problem": document["id"]} | document["radmoe"]} if "radmoe" in document else None,
    )


def _content(message: dict[str, Any]) -> str | list[Content]:
    answer, thinking = message["content"] or "", message.get("reasoning")
    return [ContentReasoning(reasoning=thinking), ContentText(text=answer)] if thinking else answer


@solver
def best_of(n: int = 16, **options: Any) -> Solver:
    """The pick of n rollouts. What was decided is in the sample's metadata, as `radmoe`; the options are those of a request."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state, extra_body={"radmoe": {"n": n} | options})
        decision = (state.output.metadata or {}).get("radmoe")
        if decision is None:
            raise InputError(f"{state.model} answered without a decision: best_of needs --model radmoe/NAME")
        state.metadata["radmoe"] = decision
        return state

    return solve


@solver
def recorded(pool: str, preset: PresetName | None = None) -> Solver:
    """Epoch by epoch the rollouts of a pool, found by the sample's id or by its input; nothing is generated.

    The sample's metadata says as `radmoe` which problem and which of its rollouts, and what `radmoe select` selects.
    """
    with _one_line():
        source = RecordedPool(pool)

    @cache
    def read(problem: str) -> tuple[list[str], dict[str, Any]]:
        return source.responses(problem), source.pick(problem, preset).to_dict()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = str(state.sample_id)
        problem = name if name in source else source.problem(state.input_text)
        responses, selection = read(problem)
        if state.epoch > len(responses):
            raise InputError(
                f"{pool} has {len(responses)} rollouts of {problem}: run it with --epochs {len(responses)}"
            )
        state.output = ModelOutput.from_content(str(state.model), responses[state.epoch - 1])
        state.messages.append(state.output.message)
        state.metadata["radmoe"] = {"problem": problem, "rollout": state.epoch - 1} | selection
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])
def with_rollout(scorer: Scorer) -> Scorer:
    """The scores of another scorer, which also say which rollout of which problem they are of: the reducer `rad` needs that."""

    async def score(state: TaskState, target: Target) -> Score | None:
        scored = await scorer(state, target)
        if scored is not None:
            scored.metadata = (scored.metadata or {}) | {"radmoe": state.metadata.get("radmoe")}
        return scored

    return score


@score_reducer
def rad() -> ScoreReducer:
    """Over the epochs of `recorded`, the score of the rollout that routing picks; 0 where RAD abstains or the pick is no epoch."""

    def reduce(scores: list[Score]) -> Score:
        places = [(score.metadata or {}).get("radmoe") or {} for score in scores]
        if not all("rollout" in place for place in places):
            raise InputError("a score names no rollout: use the solver recorded(POOL) and the scorer with_rollout(...)")
        selection = places[0]
        for score, place in zip(scores, places, strict=True):
            if place["rollout"] == selection["index"]:
                return score
        epochs = len(selection["located"])
        why = (
            "RAD abstains"
            if selection["abstained"]
            else f"the pick is none of these epochs: run it with --epochs {epochs}"
        )
        return Score(value=0, explanation=why, metadata={"radmoe": selection})

    return reduce
