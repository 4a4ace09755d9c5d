"""What may be asked of the plugin, and of its route."""

from __future__ import annotations

import pytest

from radmoe.engines.vllm.plugin.endpoint import answered, check_request
from radmoe.engines.vllm.plugin.settings import PluginSettings
from radmoe.errors import InputError


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
