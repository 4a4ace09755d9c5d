"""Whatever a server does, there is one line within seconds and little memory, or the right rollout.

All cases of `server_misbehaviours` but those of single fields, of which every fourth is run here (about a minute in
all); `run_case` runs any.
"""

from __future__ import annotations

import re

import pytest

from server_misbehaviours import CASES, run_case

FIELDS = [name for name in CASES if name.startswith(("vllm /", "sglang /"))]
SAMPLE = [name for name in CASES if name not in FIELDS or FIELDS.index(name) % 4 == 0]


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60
    assert len(SAMPLE) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_misbehaving_server_is_one_line(name: str) -> None:
    outcome = run_case(CASES[name])
    assert re.search(CASES[name].line, outcome.line), outcome
    assert len(outcome.line.splitlines()) == 1
    assert len(outcome.line) < 600
    assert outcome.seconds < 15
    assert outcome.peak_bytes < 1 << 30
