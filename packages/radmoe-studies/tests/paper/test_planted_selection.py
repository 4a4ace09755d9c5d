"""The studies of selection on real planted pools: what they need, what they read, and what they agree on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies import picks
from radmoe_studies.base import Options, StudyRun
from radmoe_studies.evidence import Evidence, gather
from radmoe_studies.fusions import fused
from radmoe_studies.run import chosen, run_studies

NAMES = (
    "kernel", "main", "marker-only", "fusion", "disagreement", "effort", "think-instruct", "decomposition",
    "random-envelope", "cases",
)  # fmt: skip
OPTIONS = Options(resamples=200)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))


def pool(path: Path, model: str, style: str, task: str, **recipe: object) -> Path:
    groups = list(planted.groups(Planted(problems=6, rollouts=8, tokens=100, **recipe)))  # type: ignore[arg-type]
    return graded_pool(path / f"{model}-{style}-{task}", groups, model=model, style=style, task=task)


def opened(path: Path) -> Evidence:
    """Two models in two and three styles on math, and one of them on code."""
    styles = (("lab-qwen", "thinking"), ("lab-qwen", "instruct"), *(("lab-oss", s) for s in ("low", "medium", "high")))
    pools = [pool(path, model, style, "math-2", seed=seed) for seed, (model, style) in enumerate(styles)]
    return gather([*pools, pool(path, "lab-oss", "low", "code", kind="code", seed=9)])


def ran(evidence: Evidence) -> dict[str, StudyRun]:
    return {one.study.name: one for one in run_studies(chosen(NAMES), evidence, OPTIONS)}


@pytest.mark.slow
def test_every_study_runs_and_no_table_holds_a_number_that_is_none(tmp_path: Path) -> None:
    results = ran(opened(tmp_path))
    assert list(results) == sorted(NAMES, key=lambda name: results[name].study.number)
    for one in results.values():
        assert one.findings is not None, one.lacking
        assert {d.claim for d in one.findings.decisions} <= set(one.study.claims)
        for table in one.findings.tables:
            for row in table.rows:
                assert len(row.cells) == len(table.columns)
                assert all(np.isfinite(c.value) for c in row.cells if isinstance(c.value, float))
    main = results["main"].findings
    assert main is not None
    labels = {row.cells[0].value: row.cells[1].value for row in main.tables[0].rows if row.section == "all"}
    assert labels["text overlap"] is not None
    assert labels["likelihood"] is not None


@pytest.mark.slow
def test_records_and_panels_agree_on_who_is_right(tmp_path: Path) -> None:
    evidence = opened(tmp_path)
    evidence.read(lambda panel: [picks.standard(panel)])
    for panel in evidence.panels:
        assert np.array_equal(picks.of_method(panel, "rad"), np.nan_to_num(picks.rad(panel)))
        assert np.array_equal(picks.of_method(panel, "rad+dc"), np.nan_to_num(fused(panel)))
        assert np.allclose(picks.of_method(panel, "majority-split"), np.nan_to_num(picks.majority(panel)))
        assert np.allclose(picks.of_method(panel, "average"), picks.rate(panel))
        assert np.isnan(picks.of_method(panel, "no such method")).all()


def test_one_pool_without_logprobs_lacks_what_it_lacks_and_the_others_run(tmp_path: Path) -> None:
    results = ran(gather([pool(tmp_path, "lab-qwen", "thinking", "math-2", logprobs=False)]))
    assert {name for name, one in results.items() if one.lacking} == {"fusion", "effort", "think-instruct"}
    for name in ("main", "marker-only"):
        found = results[name].findings
        assert found is not None
        assert any("cannot be tested" in note for note in found.notes)
