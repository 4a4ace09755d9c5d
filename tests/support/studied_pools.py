"""Studies on a planted pool that is on disk, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options, study_named
from radmoe_studies.evidence import Panel, gather
from radmoe_studies.run import run_studies


def studied(
    name: str, options: Options, recipe: Planted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Findings, Panel]:
    """What a study finds on a pool of this recipe, and the panel that it read."""
    monkeypatch.setenv("RADMOE_CACHE", str(folder / "cache"))
    pools = gather([graded_pool(folder / "pool", list(planted.groups(recipe)))])
    (ran,) = run_studies([study_named(name)], pools, options)
    assert ran.findings is not None
    (panel,) = pools.panels
    return ran.findings, panel
