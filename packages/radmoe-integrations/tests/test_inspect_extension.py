"""inspect_ai's extension against gateways that really listen, before planted servers; test_harness_docs.py has a real model."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ChatMessageUser, ContentImage, GenerateConfig, ModelAPI, ModelName, ModelOutput, get_model
from inspect_ai.scorer import Score
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolInfo

from planted_upstream import PlantedUpstream, save_checkpoint
from radmoe import open_pool, select
from radmoe.errors import InputError
from radmoe_integrations.inspect_ai import best_of, rad, recorded
from running_gateway import RunningGateway

pytestmark = pytest.mark.slow

QUESTION = "What is 2 plus 3?"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("served") / "planted")


@pytest.fixture(scope="module")
def upstream(checkpoint: Path) -> Iterator[PlantedUpstream]:
    with PlantedUpstream(checkpoint).running() as server:
        yield server


@pytest.fixture(scope="module")
def url(upstream: Any) -> Iterator[str]:
    """A gateway that nothing changes."""
    with RunningGateway(upstreams=(upstream.url,)) as gateway:
        yield f"{gateway.url}/v1"


def server(url: str, model: str = "planted#rad-8", key: str | None = None) -> ModelAPI:
    return get_model(f"radmoe/{model}", base_url=url, api_key=key, memoize=False).api


def ask(api: ModelAPI, content: Any = QUESTION, tools: Any = (), **config: Any) -> ModelOutput:
    """What the provider makes of one request. inspect_ai's own `Model.generate` leaves streams open."""
    done = asyncio.run(api.generate([ChatMessageUser(content=content)], list(tools), "auto", GenerateConfig(**config)))
    return done[0]  # type: ignore[index,return-value]


def test_the_pick_comes_with_the_decision_and_its_thinking(url: str, upstream: Any) -> None:
    output = ask(server(url))
    decision = (output.metadata or {})["radmoe"]
    thinking, _, text = upstream.text(decision["pick"]).rpartition("</think>")
    assert output.completion == text
    assert output.message.content[0].reasoning == thinking  # type: ignore[union-attr]
    assert output.usage is not None
    assert output.usage.output_tokens == decision["sampled"]["tokens"]
    assert decision["problem"].startswith("chatcmpl-")


def test_a_server_is_asked_as_the_configuration_says(url: str, upstream: Any) -> None:
    ask(server(url), temperature=0.5, top_p=0.9, seed=7, max_tokens=99, stop_seqs=["!"], frequency_penalty=0.25)
    asked = upstream.bodies[-1]
    wanted = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 99, "stop": ["!"], "frequency_penalty": 0.25}
    assert asked.items() >= wanted.items()
    assert asked["messages"] == [{"role": "user", "content": QUESTION}]
    assert len(ask(server(url), num_choices=3).choices) == 3
    plain = ask(server(url, "planted"))
    assert (upstream.bodies[-1].get("n", 1), plain.metadata) == (1, None)


def test_a_key_is_sent(upstream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningGateway(upstreams=(upstream.url,), keys=("right",)) as gateway:
        url = f"{gateway.url}/v1"
        with pytest.raises(PrerequisiteError) as error:
            server(url, key="wrong")
        assert "RADMOE_API_KEY to its key" in str(error.value.message)
        assert ask(server(url, key="right")).metadata
        monkeypatch.setenv("RADMOE_API_KEY", "right")
        monkeypatch.setenv("RADMOE_BASE_URL", url)
        assert ask(server("")).metadata


@contextmanager
def answering(body: str) -> Iterator[str]:
    """A server that answers every request for its models with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/v1"
        finally:
            listening.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"data": [{"id": "planted"}]}', "it is not radmoe serve, which this needs"),
        ('{"data": [{"id": "other"}, {"id": "other#rad-16"}]}', "no best-of-N of planted#rad-8: ask for other"),
        ('{"data": [{}]}', "no server answers at .*: start radmoe serve, or set RADMOE_BASE_URL"),
        ("<html>", "no server answers at "),
        ("[]", "no server answers at "),
    ],
)
def test_another_server_or_model_is_refused_before_anything_runs(body: str, says: str) -> None:
    with answering(body) as url, pytest.raises(PrerequisiteError) as error:
        server(url)
    assert re.search(says, str(error.value.message))
    assert "\n" not in str(error.value.message)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "localhost", "http://[::1", "ftp://localhost/v1"])
def test_a_server_that_is_absent_is_refused_before_anything_runs(url: str) -> None:
    with pytest.raises(PrerequisiteError) as error:
        server(url)
    assert str(error.value.message).replace("\\[", "[").startswith(f"no server answers at {url} (")
    assert "\n" not in str(error.value.message)


def test_a_server_that_goes_away_is_not_asked_for_ever(upstream: Any) -> None:
    with RunningGateway(upstreams=(upstream.url,)) as gateway:
        api = server(f"{gateway.url}/v1")
    with pytest.raises(InputError, match=r"^no usable answer of the server at http://127.0.0.1:\d+/v1: ") as error:
        ask(api)
    assert not api.should_retry(error.value)


def test_the_servers_own_refusals_are_passed_on(checkpoint: Path, url: str) -> None:
    """No routing, and more rollouts than it samples."""
    bare, words = (
        PlantedUpstream(checkpoint, routing="none"),
        r"^the radmoe server refuses: the model server gives no routing, ",
    )
    with bare.running(), RunningGateway(upstreams=(bare.url,)) as gateway, pytest.raises(InputError, match=words):
        ask(server(f"{gateway.url}/v1"))
    with pytest.raises(InputError, match=r"^the radmoe server refuses: .* from 2 to 64"):
        ask(server(url, "planted"), extra_body={"radmoe": {"n": 65}})


def test_a_full_queue_alone_is_asked_again(url: str) -> None:
    api, request = server(url), httpx.Request("POST", url)
    assert api.should_retry(httpx.HTTPStatusError("429", request=request, response=httpx.Response(429)))
    assert not api.should_retry(InputError("refused"))


def test_what_is_no_text_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"gets no tools from here: --model openai-api/radmoe/NAME#rad-16"):
        ask(server(url), tools=[ToolInfo(name="add", description="adds")])
    with pytest.raises(InputError, match="takes messages of text, and this one has image"):
        ask(server(url), [ContentImage(image="data:image/png;base64,AAAA")])


def test_best_of_needs_a_radmoe_server() -> None:
    async def generate(state: TaskState, **_: Any) -> TaskState:
        state.output = ModelOutput.from_content("other/model", "5")
        return state

    state = TaskState(ModelName("other/model"), "a", 1, QUESTION, [])
    with pytest.raises(
        InputError, match=r"^other/model answered without a decision: best_of needs --model radmoe/NAME$"
    ):
        asyncio.run(best_of(4)(state, generate))


def test_the_command_line_finds_model_and_solver_by_the_entry_point(url: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "from inspect_ai import Task, task\nfrom inspect_ai.dataset import Sample\n\n@task\ndef plain():\n"
        f"    return Task([Sample({QUESTION!r})])\n"
    )
    command = ["eval", "plain.py", "--model", "radmoe/planted", "--solver", "radmoe_integrations/best_of"]
    python("-m", "inspect_ai", *command, "-S", "n=4", "-S", "preset=strict", place=tmp_path, RADMOE_BASE_URL=url)
    (sample,) = log(tmp_path / "logs").samples or []
    decision = sample.metadata["radmoe"]
    assert (decision["sampled"]["rollouts"], decision["preset"]) == (4, "strict")


def python(*words: str, place: Path, **variables: str) -> None:
    own = os.environ | {"INSPECT_DISPLAY": "none"} | variables
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def log(place: Path) -> EvalLog:
    (path,) = place.iterdir()
    return read_eval_log(str(path))


EVALUATIONS = """
import sys
from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from radmoe import open_pool
from radmoe_integrations.inspect_ai import rad, recorded, with_rollout

path, most = sys.argv[1], int(sys.argv[2])
samples = [Sample("?", target="5", id=problem) for problem in reversed(open_pool(path).problems)]

def run(name, samples, solver, epochs=1):
    task = Task(samples, solver=solver, scorer=with_rollout(includes()), epochs=Epochs(epochs, ["mean", rad()]))
    eval(task, model="none/none", log_dir=name)

run("paper", samples, recorded(path), epochs=most)
run("strict", samples, recorded(path, preset="strict"), epochs=most)
run("more", samples, recorded(path), epochs=most + 1)
run("unknown", [Sample("What is 7+7?", id="x")], recorded(path))
"""


@pytest.fixture(scope="module")
def logs(shared_pool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of a planted pool, where the right responses have a 5; in a process of their own, as they leave streams open."""
    place = tmp_path_factory.mktemp("logs")
    python("-c", EVALUATIONS, str(shared_pool), str(most(shared_pool)), place=place)
    return place


def most(pool: Path) -> int:
    return max(len(group) for group in open_pool(pool).groups())


@pytest.mark.parametrize("preset", ["paper", "strict"])
def test_the_reducer_takes_the_score_of_the_pick(shared_pool: Path, logs: Path, preset: Any) -> None:
    pool = open_pool(shared_pool)
    (reduced,) = [
        one.samples for one in log(logs / preset).reductions or [] if one.reducer == "radmoe_integrations/rad"
    ]
    assert len(reduced) == len(pool.problems)
    for score in reduced:
        problem = str(score.sample_id)
        index = select(pool.group(problem), preset=preset).index
        assert index is not None
        place = (score.metadata or {})["radmoe"]
        assert (place["problem"], place["rollout"]) == (problem, index)
        assert (score.value == "C") is ("5" in pool.texts(problem)[index].rpartition("</think>")[2])


def test_what_cannot_be_evaluated_says_why_in_the_log(shared_pool: Path, logs: Path) -> None:
    """More epochs than there are rollouts, and samples that the pool does not have."""
    for name, says in (
        ("more", rf" rollouts of planted-\d+: run it with --epochs {most(shared_pool)}"),
        ("unknown", r"has no prompts with 'What is 7\+7\?' in them, and no problem of that id"),
    ):
        error = log(logs / name).error
        assert error is not None
        assert re.search(says, error.message)


def test_a_pool_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as error:
        recorded(str(tmp_path / "none"))
    assert str(error.value.message).startswith("there is no pool at ")


def place(rollout: int, index: int | None) -> dict[str, Any]:
    return {"radmoe": {"rollout": rollout, "index": index, "abstained": index is None, "located": [True] * 3}}


def test_a_reducer_without_the_pick_gives_nothing_for_it() -> None:
    scores = [Score(value="C", metadata=place(rollout, 2)) for rollout in (1, 0)]
    missing = rad()(scores)
    assert (missing.value, missing.explanation) == (0, "the pick is none of these epochs: run it with --epochs 3")
    assert rad()([*scores, Score(value="I", metadata=place(2, 2))]).value == "I"
    abstained = rad()([Score(value="C", metadata=place(0, None))])
    assert (abstained.value, abstained.explanation) == (0, "RAD abstains")


@pytest.mark.parametrize("metadata", [None, {}, {"radmoe": None}, {"radmoe": {"pick": 1}}])
def test_scores_that_name_no_rollout_are_refused(metadata: Any) -> None:
    with pytest.raises(InputError, match=r"use the solver recorded\(POOL\) and the scorer with_rollout"):
        rad()([Score(value="C", metadata=metadata)])
