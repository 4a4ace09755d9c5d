"""SGLang behind the gateway, as a fake server of its protocol over a tiny real model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def chat_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny_moe

    return tiny_moe.save(tmp_path_factory.mktemp("sglang") / "tiny", chat=True)


@pytest.fixture
def sglang(chat_checkpoint: Path) -> Iterator[Callable[..., Any]]:
    """`sglang(faults={...})`: a gateway before a fake SGLang server, which is its `upstream`."""
    import tiny_moe
    from fake_server import FakeServer
    from running_gateway import RunningGateway

    with ExitStack() as parts:

        def start(**options: Any) -> Any:
            server = parts.enter_context(FakeServer(tiny_moe.engine("qwen3-moe"), "sglang", **options).running())
            made = parts.enter_context(RunningGateway(upstreams=(server.url,), model=str(chat_checkpoint)))
            made.upstream = server
            return made

        yield start


@pytest.mark.slow
def test_every_rollout_is_a_request_of_its_own_with_its_own_seed(sglang: Callable[..., Any]) -> None:
    made = sglang()
    before = len(made.upstream.bodies)
    answer = made.ask({"fallback": "likelihood"}, model="tiny#rad-4", max_tokens=12, seed=7).json()
    bodies = made.upstream.bodies[before:]
    assert sorted(body["sampling_params"]["sampling_seed"] for body in bodies) == [7, 8, 9, 10]
    radmoe = answer["radmoe"]
    assert radmoe["sampled"]["rollouts"] == 4
    assert radmoe["method"] in ("rad", "likelihood")  # what a random model writes has no marker as a rule
    assert answer["usage"]["completion_tokens"] == radmoe["sampled"]["tokens"] <= 48
    assert answer["usage"]["prompt_tokens"] == len(bodies[0]["input_ids"])
    assert made.ask(model="tiny#rad-4", max_tokens=12, seed=7, stream=True).text.endswith("data: [DONE]\n\n")


@pytest.mark.slow
def test_later_rounds_of_a_request_go_on_with_its_seeds(sglang: Callable[..., Any], chat_checkpoint: Path) -> None:
    import asyncio
    import json

    from radmoe.serve.api_request import read_request
    from radmoe.serve.backends import RequestProgress
    from radmoe.serve.settings import Settings
    from radmoe.serve.upstream_backend import UpstreamBackend
    from running_gateway import MESSAGES

    made = sglang()
    settings = Settings(upstreams=(made.upstream.url,), model=str(chat_checkpoint))
    body = {"model": "tiny#rad-4", "messages": MESSAGES, "max_tokens": 6, "seed": 7}
    ask = read_request(json.dumps(body).encode(), "chat", settings)
    before = len(made.upstream.bodies)

    async def later() -> None:
        backend = UpstreamBackend(settings)
        await backend.start()
        await backend.sample(ask, 2, ask.best, RequestProgress(), first=3)
        await backend.close()

    asyncio.run(later())
    seeds = [body["sampling_params"]["sampling_seed"] for body in made.upstream.bodies[before:]]
    assert sorted(seeds[-2:]) == [10, 11]


def test_what_token_ids_cannot_carry_is_refused(sglang: Callable[..., Any]) -> None:
    made = sglang()
    for name, value in (
        ("tools", [{"type": "function"}]),
        ("response_format", {"type": "json_object"}),
        ("stop", ["x"]),
    ):
        answer = made.ask(model="tiny#rad-4", **{name: value})
        assert (answer.status_code, made.error(answer)["param"]) == (400, name)


def test_a_server_started_without_the_flag_gives_no_routing(sglang: Callable[..., Any]) -> None:
    made = sglang(faults={"no flag"})
    assert made.error(made.ask(model="tiny#rad-4"))["code"] == "routing_unavailable"


@pytest.mark.slow
def test_routing_that_is_cut_off_later_is_an_error(sglang: Callable[..., Any]) -> None:
    made = sglang()
    made.upstream.faults.add("truncated")
    answer = made.ask(model="tiny#rad-4", max_tokens=12)
    assert answer.status_code == 502
    assert made.error(answer)["code"] in ("upstream_error", "routing_invalid")
