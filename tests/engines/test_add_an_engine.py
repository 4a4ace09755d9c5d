"""How to add an engine: a class of one's own, opened by its dotted path, held to the contract of all engines.

`markov_engine.py` in tests/support is a complete one.
"""

from __future__ import annotations

from typing import Any

import pytest

from contract import EngineContract
from radmoe.engines import EngineOptions, open_engine
from radmoe.engines.base import Engine, Sampling
from radmoe.errors import InputError

PATH = "markov_engine.MarkovEngine"


class TestMarkovEngine(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        return open_engine(PATH, "7")

    @pytest.fixture
    def reference(self, engine: Engine) -> Any:
        return engine


def test_its_options_are_its_own_matter() -> None:
    assert open_engine(PATH, "8").model_name == "markov-8"
    with pytest.raises(InputError, match="markov needs --model: a seed"):
        open_engine(PATH, None)
    with pytest.raises(InputError, match="--url is of vllm-http and sglang-http: markov runs the model itself"):
        open_engine(PATH, "8", EngineOptions(url="http://localhost:8000"))


def test_an_engine_that_is_not_complete_cannot_be_made() -> None:
    class Half(Engine):
        name = "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


def test_the_doctor_examines_it() -> None:
    from radmoe.engines.doctor import examine

    findings = {finding.check: finding for finding in examine(lambda: open_engine(PATH, "7"), "markov", seed=0)}
    assert findings["reference"].status == findings["rows"].status == "ok"
    assert findings["tokenizer"].seen == "there is no other tokenizer to compare with"


def test_it_samples_a_group_to_select_from() -> None:
    engine = open_engine(PATH, "7")
    group = engine.sample([5, 6], 4, kind="text", seed=3, max_tokens=8, temperature=1.0)
    drawn = engine.generate([[5, 6]], 4, sampling=Sampling(max_tokens=8, seed=3), keys=["prompt"])
    assert [r.token_ids.tolist() for r in group.rollouts] == [d.rollout.token_ids.tolist() for d in drawn]
    assert (group.kind, group.shape, len(group)) == ("text", engine.shape, 4)


def test_it_can_be_served() -> None:
    from running_gateway import RunningGateway

    with RunningGateway(model="7", engine=PATH) as made:
        ask = {"model": "markov-7#rad-6", "max_tokens": 12, "seed": 3}
        answer = made.ask({"kind": "text"}, **ask).json()
        assert answer["radmoe"]["sampled"]["rollouts"] == 6
        assert made.ask({"kind": "text"}, **ask).json()["choices"] == answer["choices"]
        assert len(made.ask(model="markov-7", n=2, max_tokens=5).json()["choices"]) == 2


def test_a_server_is_an_upstream_and_no_engine_to_serve() -> None:
    import asyncio

    from radmoe.serve.engine_backend import EngineBackend
    from radmoe.serve.settings import Settings

    with pytest.raises(InputError, match="vllm-http is for servers: give their addresses as --upstream"):
        asyncio.run(EngineBackend(Settings(model="7", engine="vllm-http")).start())
