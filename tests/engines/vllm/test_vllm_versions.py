"""A vLLM whose inner names have changed is refused in one line that names it; one that nobody ran is named and runs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from radmoe.errors import EngineError
from vllm_parts import GREEDY, OPTIONS


@pytest.mark.parametrize(
    ("owner", "name", "line"),
    [
        ("vllm.v1.core.sched.output.NewRequestData", "sampling_params", "NewRequestData has no sampling_params"),
        ("vllm.v1.core.sched.output.SchedulerOutput", "finished_req_ids", "SchedulerOutput has no finished_req_ids"),
    ],
)
def test_a_name_that_is_gone(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch, owner: str, name: str, line: str
) -> None:
    """Dataclasses keep working without the entry; only who looks it up sees that it is gone."""
    from importlib import import_module

    import vllm
    from radmoe.engines.vllm.engine import VllmEngine

    module, _, kind = owner.rpartition(".")
    monkeypatch.delitem(getattr(import_module(module), kind).__dataclass_fields__, name)
    with pytest.raises(EngineError, match=rf"does not know this vLLM, {vllm.__version__} \({line}\): install one that"):
        VllmEngine(checkpoint("lab-qwen"), dtype="float32", **OPTIONS)


def test_a_method_that_is_gone(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that answers by another method is refused when the model is loaded."""
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

    from radmoe.engines.vllm.engine import VllmEngine

    find = "radmoe.engines.vllm.plugin.layers.hasattr"
    monkeypatch.setattr(find, lambda owner, name: name != "_compute_routing" and hasattr(owner, name), raising=False)
    with pytest.raises(EngineError, match=r"layer 0 routes by \w+, which the plugin does not know"):
        VllmEngine(checkpoint("lab-qwen"), dtype="float32", **OPTIONS)
    assert hasattr(BaseRouter, "_compute_routing")


def test_a_version_that_nobody_ran(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import vllm
    from radmoe.engines.doctor import examine
    from radmoe.engines.vllm.engine import VllmEngine

    monkeypatch.setattr(vllm, "__version__", "0.99.0")
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.WARNING, "vllm.radmoe")
    engine = VllmEngine(checkpoint("lab-qwen"), dtype="float32", **OPTIONS)
    try:
        assert "nobody ran radmoe with vLLM 0.99.0, only with 0.26, " in caplog.text
        assert len(list(engine.generate([[1, 2, 3]], 1, sampling=GREEDY))) == 1
        finding = next(examine(lambda: engine, "vllm"))
        assert (finding.check, finding.status) == ("engine", "warning")
        assert "see what radmoe doctor says" in finding.todo
    finally:
        engine.close()
