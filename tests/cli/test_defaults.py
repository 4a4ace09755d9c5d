"""What `--help` says of defaults is what the objects have that options become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields

import pytest

from radmoe.capture import Plan
from radmoe.cli import capture, serve
from radmoe.engines import EngineOptions
from radmoe.selection.online import Stopping
from radmoe.serve.settings import Settings


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (capture.command, EngineOptions),
        (capture.command, Plan),
        (capture.command, Stopping),
        (serve.command, Settings),
    ],
)
def test_a_shown_default_is_the_default(command: Callable[..., None], kind: type) -> None:
    options = inspect.signature(command).parameters
    checked = 0
    for field in fields(kind):
        if (
            field.name in options
            and isinstance(field.default, int | float | str)
            and not isinstance(field.default, bool)
        ):
            shown = options[field.name].annotation.__metadata__[0].show_default.partition(",")[0]
            assert shown == str(field.default).removesuffix(".0"), field.name
            checked += 1
    assert checked
