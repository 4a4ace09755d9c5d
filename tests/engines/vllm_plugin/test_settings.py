"""What may be asked of the plugin, and of its route."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from radmoe.engines.vllm.plugin.endpoint import answered, check_request
from radmoe.engines.vllm.plugin.settings import PluginSettings
from radmoe.engines.vllm.plugin.worker import find_routers
from radmoe.errors import EngineError, InputError


def test_settings_survive_json() -> None:
    for settings in (PluginSettings(), PluginSettings("tail:64", "s0", False, 12), PluginSettings("all")):
        assert PluginSettings.from_json(settings.to_json()) == settings
    assert PluginSettings("tail:64").tail == 64
    assert PluginSettings("all").prompt
    assert PluginSettings("generated").tail is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"rows": "last"}, "unknown rows 'last': use all, generated or tail:W"),
        ({"rows": "tail:0"}, "unknown rows"),
        ({"rows": 3}, "unknown rows 3"),
        ({"memory_mib": 0}, "memory_mib of a capture must be at least 1"),
        ({"layers": [1, 2]}, "layers of a capture must be a text"),
        ({"windows": "all"}, "an object with rows, layers, weights, memory_mib"),
        ([], "an object with"),
    ],
)
def test_wrong_settings_are_named(body: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PluginSettings.from_json(body)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"key": 3},
        {"key": "a", "n": 0},
        {"key": "a", "n": True},
        {"key": "a", "rows": 1},
        {"key": "a", "spans": [[0, 1]]},
        {"key": "a", "spans": {"0": [[0]]}},
        {"key": "a", "spans": {"0": [["a", 1]]}},
        {"key": "a", "spans": {"x": [[0, 1]]}},
        {"key": "a", "spans": {"0": 3}},
    ],
)
def test_wrong_requests_are_refused(body: object) -> None:
    with pytest.raises(InputError):
        check_request(body)


def test_a_request_is_passed_on() -> None:
    body = {"key": "a", "n": 2, "spans": {"0": [[0, 16]], "1": []}}
    assert check_request(body) == body
    assert check_request({"key": "a"}) == {"key": "a", "n": 1, "spans": None}


def test_the_worker_that_records_answers() -> None:
    assert answered([None, {"payload": b""}, None]) == {"payload": b""}


def layer(number: int, router: object, **extra: object) -> torch.nn.Module:
    made = torch.nn.Module()
    for name, value in {"layer_id": number, "router": router, **extra}.items():
        object.__setattr__(made, name, value)
    return made


def test_routers_come_in_the_order_of_the_layers() -> None:
    routers = [SimpleNamespace(_compute_routing=None, name=i) for i in range(3)]
    model = torch.nn.ModuleList([layer(i, routers[i]) for i in (2, 0, 1)])
    assert [router.name for router in find_routers(model)] == [0, 1, 2]


def test_what_cannot_be_tapped_is_refused() -> None:
    with pytest.raises(EngineError, match="not a mixture-of-experts model"):
        find_routers(torch.nn.ModuleList([torch.nn.Linear(2, 2)]))
    with pytest.raises(EngineError, match="layer 4 runs a monolithic kernel that routes by itself"):
        find_routers(torch.nn.ModuleList([layer(4, SimpleNamespace(_compute_routing=None), is_monolithic=True)]))
    with pytest.raises(EngineError, match="layer 1 routes by SimpleNamespace"):
        find_routers(torch.nn.ModuleList([layer(1, SimpleNamespace())]))
