"""A sample of the malformed pools and journals: no traceback, no hang, no appetite, nothing written outside.

`python -m benchmarks.hardening` runs all of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from malformed_claims import CLAIMS
from malformed_files import malformed_files
from malformed_journals import malformed_journals
from malformed_pools import malformed_pools

POOL_STEP, JOURNAL_STEP, FILE_STEP = 50, 8, 5
SAMPLE = """
import sys
sys.path.insert(0, sys.argv[1])
from forked_runs import warm
from malformed_files import malformed_files, run_files
from malformed_journals import malformed_journals, run_journal
from malformed_pools import malformed_pools, run_pool
warm()
kind, names = sys.argv[2], sys.argv[3:]
journals, pools = malformed_journals(), malformed_pools()
for name in names:
    if kind == "fuzzed":
        from fuzzed_pools import fuzz_one
        outcomes = fuzz_one(*map(int, name.split()))
    elif kind == "files":
        outcomes = run_files(malformed_files()[name])
    else:
        outcomes = run_journal(journals[name]) if kind == "journals" else run_pool(name, pools[name])
    for command, outcome in outcomes.items():
        if outcome.broken_rule is not None:
            print(name, command, outcome.broken_rule, sep=" | ")
"""


def broken_rules(kind: str, names: list[str]) -> list[str]:
    """In a process of its own, which has no threads and little memory, so that it can fork."""
    command = [sys.executable, "-c", SAMPLE, str(Path(__file__).parents[1] / "support"), kind, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.splitlines()


def test_there_are_more_than_200_malformed_pools_and_50_journals() -> None:
    assert len(malformed_pools()) >= 200
    assert len(malformed_journals()) >= 50


@pytest.mark.slow
def test_malformed_pools_are_refused_in_one_line() -> None:
    names = [name for name in malformed_pools() if name not in CLAIMS]
    assert broken_rules("pools", names[::POOL_STEP]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "claim: five million runs",
        "claim: a long problem id, often",
        "claim: a rollout of 10^9 tokens",
        "claim: a label of 300 MB",
        "claim: tokenizer.bytes with a control token of 2,000,000",
        "claim: tokenizer.bytes with an added token that is no text",
        "claim: a sparse pointer",
    ],
)
def test_few_bytes_that_claim_much_take_little(name: str) -> None:
    assert broken_rules("pools", [name]) == []


@pytest.mark.slow
def test_strings_that_would_choose_code_or_search_without_end_do_neither() -> None:
    names = [name for name in malformed_pools() if ": recorded " in name or ": ids " in name]
    assert len(names) > 12
    assert broken_rules("pools", names[::2]) == []


@pytest.mark.slow
def test_malformed_archives_trajectories_calibrations_and_data_files_are_one_line() -> None:
    names = list(malformed_files())
    assert len(names) > 70
    assert broken_rules("files", names[::FILE_STEP]) == []


@pytest.mark.slow
def test_malformed_journals_are_refused_in_one_line() -> None:
    assert broken_rules("journals", list(malformed_journals())[::JOURNAL_STEP]) == []


@pytest.mark.slow
def test_what_fuzzing_once_broke_stays_mended() -> None:
    blosc2_overflow = "3 478"  # seed and number: a forged byte of a frame's header was an OverflowError
    assert broken_rules("fuzzed", [blosc2_overflow]) == []
