"""The engines of this environment, held to the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny_moe
from contract import EngineContract
from fake_server import FakeServer
from radmoe.engines.base import Engine
from radmoe.engines.http import SglangHttpEngine, VllmHttpEngine
from radmoe_lab.gguf import write_gguf
from radmoe_llamacpp.engine import LlamaCppEngine


class _Tiny(EngineContract):
    @pytest.fixture
    def reference(self) -> Any:
        return tiny_moe.engine("qwen3-moe")


class _Served(_Tiny):
    """An engine over one fake server, shared by its tests."""

    kind, plugin, client = "vllm", False, VllmHttpEngine

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, checkpoint: Path) -> Iterator[Engine]:
        with FakeServer(tiny_moe.engine("qwen3-moe"), cls.kind, plugin=cls.plugin).running() as server:
            yield cls.client(server.url, checkpoint)


class TestTransformers(_Tiny):
    @pytest.fixture
    def engine(self) -> Engine:
        return tiny_moe.engine("qwen3-moe")


class TestVllmServer(_Served):
    has_weights = False


class TestVllmServerWithPlugin(_Served):
    plugin = True


class TestSglangServer(_Served):
    kind, client, has_weights = "sglang", SglangHttpEngine, False


class TestSglangServerWithPlugin(_Served):
    kind, client, plugin = "sglang", SglangHttpEngine, True


class TestLlamaCpp(_Tiny):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, tmp_path_factory: pytest.TempPathFactory) -> Engine:
        file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
        return LlamaCppEngine(write_gguf(tiny_moe.model("qwen3-moe"), tiny_moe.tokenizer(), file), cache="f32")
