"""Stored routing holds the text: what docs/security.md says of it, on a few problems of a real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.leakage import Halves, decoded, measure

from radmoe_lab.archive.files import open_archive
from radmoe_lab.archive.pools import PoolBuilder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Halves]:
    builder = PoolBuilder(open_archive(), tmp_path_factory.mktemp("pools"))
    (wanted,) = builder.wanted(["lab-qwen-thinking"], ["math-1"], n=32, limit=12)
    return measure(Path(builder.build(wanted).path), rollouts=8)


def test_a_linear_decoder_reads_the_tokens_from_single_rows(halves: dict[str, Halves]) -> None:
    assert halves["one row: the token that went in"].right() > 0.9
    assert halves["one row: the token that came out"].right() > 0.8


def test_the_window_tells_the_answers_first_digit_and_the_marker_does_not(halves: dict[str, Halves]) -> None:
    window, marker = (
        halves[f"{readout}: the answer's first digit"] for readout in ("delimiter@16", "delimiter@marker")
    )
    assert window.right() > window.commonest() + 0.3
    assert marker.right() < marker.commonest() + 0.15


def test_labels_that_rows_do_not_hold_are_not_decoded() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.random((400, 20), np.float32), rng.integers(0, 4, 400)
    held = np.column_stack([rows, np.eye(4, dtype=np.float32)[labels]])
    assert (decoded(held[:200], labels[:200].tolist(), held[200:]) == labels[200:]).all()
    assert (decoded(rows[:200], labels[:200].tolist(), rows[200:]) == labels[200:]).mean() < 0.4
