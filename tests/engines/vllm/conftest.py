"""Real vLLM on CPU, in its own environment: `make test-engines`. Elsewhere this folder is left out.

Engines run inside this process (one import of vLLM, 2 to 5 s each), one at a time, except where the test is
about processes. Checkpoints are the lab's, where they ship; else seeded random ones of the same architecture.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

try:
    version("vllm")
except PackageNotFoundError:
    collect_ignore_glob = ["test_*"]
else:
    from vllm_parts import BOTH, GPU, OPTIONS, random_checkpoint, shipped, untie

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # tiny passes: a second thread is only waited for
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # vLLM's own


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """name -> directory of a lab checkpoint that vLLM reads."""
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            source = shipped(name) or random_checkpoint(name, folder / "random")
            tied = json.loads((source / "config.json").read_text()).get("tie_word_embeddings", False)
            made[name] = untie(source, folder / "untied") if tied else source
        return made[name]

    return find


@pytest.fixture(scope="module")
def engine(checkpoint: Any) -> Iterator[Any]:
    """An engine of the plugin, float32, vLLM's own routed experts beside it, with prefix caching."""
    from radmoe.engines.vllm.engine import VllmEngine

    made = VllmEngine(
        checkpoint("lab-qwen"),
        dtype="float32",
        enable_prefix_caching=True,
        **BOTH,
        **OPTIONS,
    )
    yield made
    made.close()


@pytest.fixture(scope="session")
def replay(checkpoint: Any) -> Any:
    """(name, dtype) -> the transformers engine that replays token ids."""
    from radmoe.engines.torch.engine import TransformersEngine

    return cache(lambda name, dtype: TransformersEngine(checkpoint(name), dtype=dtype, device="cuda" if GPU else "cpu"))
