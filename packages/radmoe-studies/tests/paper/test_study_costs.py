"""Study 29 on a pool whose router's shape says how many bytes a token has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planted_panels import evidence, panel
from planted_pools import RECIPE, graded_pool
from radmoe.pool import open_pool
from radmoe_lab import planted
from radmoe_studies.base import Options, study_named
from radmoe_studies.evidence import gather
from radmoe_studies.paper.costs import costs, stored, timed
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=300)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    return graded_pool(tmp_path / "pool", list(planted.groups(RECIPE)))


def test_bytes_per_token_follow_from_the_router_and_the_files(pool: Path) -> None:
    opened = open_pool(pool)
    own = stored(opened)
    router = RECIPE.shape
    assert own.ids > 1
    assert own.weights > 0.9
    raw = router.layers * router.top_k
    assert own.raw in (raw * 3, raw * 4)  # an id in one byte or two, a weight in two
    assert own.routing < own.stored
    assert own.stored == pytest.approx(sum(shard.bytes for shard in opened.shards.values()) / opened.tokens)


def test_a_few_problems_are_timed_and_the_papers_words_stand_beside(pool: Path) -> None:
    seen = gather([pool])
    times = timed(seen.panels[0], sample=3)
    assert times.problems == 3
    assert times.rollouts == RECIPE.rollouts
    assert 0 < times.total < 60_000
    (ran,) = run_studies([study_named("29")], seen, OPTIONS)
    assert ran.findings is not None
    assert ran.findings.decisions == ()
    bytes_table, times_table = ran.findings.tables
    assert [row.cells[0].value for row in bytes_table.rows][-1] == "paper"
    assert bytes_table.rows[0].cells[1].value == open_pool(pool).tokens
    assert times_table.rows[-1].cells[-1].note == "tens of ms"


def test_a_pool_without_weights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    bare = graded_pool(tmp_path / "bare", list(planted.groups(replace(RECIPE, weights=False))))
    found = costs(gather([bare]), OPTIONS)
    assert found.tables[0].rows[0].cells[-1].value is None
    assert found.tables[0].rows[0].cells[-1].note == "not kept"


def test_panels_without_pools_have_nothing_to_measure() -> None:
    found = costs(evidence(panel()), OPTIONS)
    assert found.tables == ()
    assert found.notes[-1] == "There are no pools to measure."
