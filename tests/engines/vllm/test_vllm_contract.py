"""vLLM with the plugin, held to the contract of all engines."""

from __future__ import annotations

from typing import Any

import pytest

from contract import EngineContract


class TestVllm(EngineContract):
    agreement = 0.999

    @pytest.fixture
    def engine(self, engine: Any) -> Any:
        return engine

    @pytest.fixture
    def reference(self, replay: Any) -> Any:
        return replay("lab-qwen", "float32")
