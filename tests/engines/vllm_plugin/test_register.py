"""vLLM calls the plugin in every process where radmoe is installed, also where nobody wants routing: nothing may break then."""

from __future__ import annotations

import ast
import asyncio
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import radmoe
import radmoe_llamacpp
from radmoe.engines.vllm.plugin import NAME, register
from radmoe.engines.vllm.plugin.endpoint import Endpoint, call
from radmoe.errors import EngineError


def plant(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    """A vLLM whose worker module has these names; without any, it has no such module."""
    for path in ("vllm", "vllm.v1", "vllm.v1.worker"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    module = ModuleType("vllm.v1.worker.worker_base")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, module.__name__, module if names else None)  # type: ignore[arg-type]


def made(init: Any) -> Any:
    return type("WorkerBase", (), {"__init__": init})


class Frozen(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("cannot set")


def test_a_vllm_without_that_module_starts_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plant(monkeypatch)
    with caplog.at_level(logging.WARNING, "vllm.radmoe"):
        register()
    assert "captures no routing" in caplog.text


@pytest.mark.parametrize("names", [{"Worker": object}, {"WorkerBase": None}, {"WorkerBase": Frozen("W", (), {})}])
def test_a_vllm_of_another_layout_starts(monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]) -> None:
    plant(monkeypatch, **names)
    register()


def no_arguments(self: Any) -> None:
    self.done = True


def keywords_only(self: Any, *, settings: Any) -> None:
    self.done = settings == 1


def config_of_another_kind(self: Any, vllm_config: Any) -> None:
    self.vllm_config, self.done = vllm_config, True


@pytest.mark.parametrize(
    ("init", "arguments"),
    [
        (no_arguments, {}),
        (keywords_only, {"settings": 1}),
        (config_of_another_kind, {"vllm_config": None}),
        (config_of_another_kind, {"vllm_config": SimpleNamespace()}),
        (config_of_another_kind, {"vllm_config": SimpleNamespace(additional_config=None)}),
        (config_of_another_kind, {"vllm_config": SimpleNamespace(additional_config=3)}),
        (config_of_another_kind, {"vllm_config": SimpleNamespace(additional_config={"other": {}})}),
    ],
)
def test_a_worker_that_was_not_asked_is_made_as_ever(
    monkeypatch: pytest.MonkeyPatch, init: Any, arguments: dict[str, Any]
) -> None:
    base = made(init)
    plant(monkeypatch, WorkerBase=base)
    register()
    register()
    worker = base(**arguments)
    assert worker.done
    assert not hasattr(worker, "radmoe_status")


def test_a_worker_that_was_asked_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: Any, vllm_config: Any, rank: int) -> None:
        self.vllm_config, self.rank, self.load_model = vllm_config, rank, lambda: None

    base = made(init)
    plant(monkeypatch, WorkerBase=base)
    register()
    worker = base(SimpleNamespace(additional_config={NAME: {}}), 0)
    assert worker.radmoe_status() == {"error": "the model is not loaded yet"}


def test_an_api_server_of_another_layout_starts() -> None:
    endpoint = Endpoint()
    endpoint.attach_router(SimpleNamespace())
    for engine in (None, SimpleNamespace(), SimpleNamespace(vllm_config=SimpleNamespace(additional_config=None))):
        asyncio.run(endpoint.init_state(engine, SimpleNamespace(), None))
        assert "additional-config" in asyncio.run(call(engine, "radmoe_status"))["error"]
    asyncio.run(endpoint.init_state(None, None))


def test_an_api_server_that_was_asked_and_cannot_does_not_start() -> None:
    class Engine:
        vllm_config = SimpleNamespace(additional_config={NAME: {}})

        async def collective_rpc(self, method: str, args: Any) -> list[Any]:
            return [{"error": "no routers"}]

    with pytest.raises(EngineError, match="no routers"):
        asyncio.run(Endpoint().init_state(Engine(), SimpleNamespace(), None))


def test_code_of_a_checkpoint_is_refused_in_every_call_that_loads_one() -> None:
    """transformers asks at the terminal where nothing is said, and vLLM's default may change."""
    loaders, found = ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"), 0
    packages = (Path(package.__file__).parent for package in (radmoe, radmoe_llamacpp))
    for path in (path for package in packages for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name.endswith(tuple(f"{loader}.from_pretrained" for loader in loaders)) or name == "vllm.EngineArgs":
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given.get("trust_remote_code") == "False", f"{path.name}: {ast.unparse(node)}"
                found += 1
    assert found >= 6
