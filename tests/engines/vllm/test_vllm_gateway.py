"""The gateway before a real `vllm serve` with the plugin: best-of-N by routing that vLLM itself computed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from radmoe import open_pool, select
from radmoe.engines.vllm.plugin.endpoint import STATUS_PATH
from radmoe.pool import Pool
from vllm_server import Server, running

QUESTION = [{"role": "user", "content": "Start with 4. Add 17. What do you get?"}]


@pytest.fixture(scope="module")
def server(checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(checkpoint("lab-qwen"), tmp_path_factory.mktemp("behind") / "log") as made:
        yield made


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded") / "pool"


@pytest.fixture(scope="module")
def url(server: Server, checkpoint: Any, recorded: Path) -> Iterator[str]:
    """A gateway in a process of its own."""
    named = ["--upstream", f"http://127.0.0.1:{server.port}", "--model", str(checkpoint("lab-qwen"))]
    command = [sys.executable, "-m", "radmoe", "serve", *named, "--port", "0", "--record", str(recorded)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[3].rstrip(",")
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_a_real_server_behind_the_gateway(server: Server, url: str, recorded: Path) -> None:
    """Picks are the library's on the recorded pool, which is read from a copy that is recovered as after a kill."""
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    asked: dict[str, Any] = {"messages": QUESTION, "max_tokens": 100}
    answers = [client.chat.completions.create(model="lab#rad-8", seed=seed, **asked) for seed in range(3)]
    assert json.loads(server.ask(STATUS_PATH)[1])["requests"] == 0  # all rows were fetched
    assert len(client.chat.completions.create(model="lab", n=2, **asked).choices) == 2
    stream = client.chat.completions.create(model="lab#rad-4", stream=True, **asked)
    assert "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
    copy = Path(shutil.copytree(recorded, recorded.with_name("copy")))
    Pool.recover(copy)
    pool = open_pool(copy)
    assert pool.verify() == []
    for answer in answers:
        radmoe, group = answer.model_extra["radmoe"], pool.group(answer.id)
        assert radmoe["recorded"] is True
        assert radmoe["sampled"]["rollouts"] == len(group) == 8
        assert answer.usage.completion_tokens == radmoe["sampled"]["tokens"] == sum(map(len, group.rollouts))
        assert group.rollouts[0].has_weights
        if radmoe["method"] == "rad":
            assert select(group).index == radmoe["pick"]
