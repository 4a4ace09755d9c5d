"""Commands that do not behave, as root and as another user: none escapes, none exceeds its limits, nothing is left behind.

`python -m benchmarks.hardening` runs all of them; here is a third for root and another third for a user.
"""

from __future__ import annotations

import pytest

from available import needs_namespaces
from hostile_commands import HOSTILE, run_as, users

pytestmark = needs_namespaces


def test_there_are_at_least_sixty() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("user", users())
def test_no_hostile_command_escapes_or_takes_more_than_it_may(user: str) -> None:
    sample = [*list(HOSTILE)[users().index(user) :: 3], "out: make /usr writable", "root: core_pattern"]
    sample += ["take: processes by a system call", "take: /dev/shm", "left: a tree 3,000 deep"]
    outcomes = {name: line for name, line, _, _ in run_as(user, dict.fromkeys(sample))}
    assert outcomes == dict.fromkeys(sample, "held")
