"""Study 28: selectors of patches, on trajectories whose verdicts and routing are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from planted_trajectories import Verdicts, write_runs
from radmoe.evaluation.pools import open_graded
from radmoe.evaluation.table import Table
from radmoe.pool import Profile
from radmoe_agent.candidates import read_candidates
from radmoe_studies.base import Findings, Options, load
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import gather
from radmoe_studies.run import run_studies
from radmoe_studies.trajectories import hit, measure, rank_sum
from radmoe_studies.verdicts import label_patches

pytestmark = pytest.mark.slow


def labelled(out: Path, verdicts: Verdicts) -> Path:
    patches = {(name, one.run): one.patch for name, members in read_candidates(out).items() for one in members}
    label_patches(out / "pool", patches, verdicts)
    return out / "pool"


def findings(pools: list[Path]) -> Findings:
    evidence = gather(pools, use_cache=False)
    (ran,) = run_studies([load()["agent"]], evidence, Options(quick=True))
    assert ran.findings is not None
    return ran.findings


def cell(table: Table, row: str, column: str) -> float:
    at = [c.title for c in table.columns].index(column)
    value = next(r.cells[at].value for r in table.rows if r.cells[0].value == row)
    assert isinstance(value, float | int)
    return float(value)


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("agent") / "strong"
    return labelled(out, write_runs(out))


def test_planted_agreement_is_found_and_lengths_say_nothing(strong: Path) -> None:
    found = findings([strong])
    verdicts = {one.claim.key: one.verdict for one in found.decisions}
    assert verdicts["agent.beats-random"] == ClaimVerdict.SUPPORTS
    assert verdicts["agent.beats-step-counts"] == ClaimVerdict.SUPPORTS
    assert verdicts["agent.single-anchor"] == ClaimVerdict.SUPPORTS
    assert set(verdicts) == {
        "agent.beats-random",
        "agent.beats-step-counts",
        "agent.size-is-inert",
        "agent.single-anchor",
        "agent.sets-suffice",
    }
    tables = {table.key: table for table in found.tables}
    main = tables["agent"]
    assert cell(main, "planted", "mixed") == 40
    assert cell(main, "planted", "lift, mixed") > 0.2
    assert cell(main, "planted", "Holm p") < 1e-4
    assert cell(main, "planted", "lift, all") == pytest.approx(cell(main, "planted", "lift, mixed"))
    assert cell(main, "Qwen3.6-35B-A3B", "lift, mixed") == pytest.approx(0.047)
    assert cell(tables["agent-selectors"], "RAD", "lift") == pytest.approx(cell(main, "planted", "lift, mixed"))
    likelihood = cell(tables["agent-selectors"], "likelihood", "right")
    both = cell(tables["agent-selectors"], "RAD + likelihood", "right")
    assert cell(tables["agent-added"], "likelihood", "alone") == likelihood
    assert cell(tables["agent-added"], "likelihood", "RAD adds") == pytest.approx(both - likelihood)
    assert cell(tables["agent-ablations"], "k = 4", "right") == cell(tables["agent-selectors"], "RAD", "right")
    assert cell(tables["agent-ablations"], "as many random rows", "minus RAD") < 0
    assert cell(tables["agent-sizes"], "planted", "N = 16") == pytest.approx(cell(main, "planted", "lift, mixed"))
    assert cell(tables["agent-lengths"], "planted", "steps without a boundary") == 0


def test_chance_among_those_with_a_patch_is_told_apart_from_what_a_selector_gains(tmp_path: Path) -> None:
    """Half of the wrong trajectories leave no patch: without any signal a selector of the others beats a random one."""
    verdicts = write_runs(tmp_path, issues=24, signal=0.0, seed=3)
    patches = {(name, one.run): one.patch for name, members in read_candidates(tmp_path).items() for one in members}
    patches |= {key: "" for key, right in verdicts.items() if not right and key[1] % 2}
    label_patches(tmp_path / "pool", patches, verdicts)
    tables = {table.key: table for table in findings([tmp_path / "pool"]).tables}
    chance = [
        np.mean([right for (name, run), right in verdicts.items() if name == issue and patches[name, run]])
        for issue in sorted({name for name, _ in verdicts})
        if 0 < np.mean([right for (name, _), right in verdicts.items() if name == issue]) < 1
    ]
    name = "a random one of those with a patch"
    assert cell(tables["agent-selectors"], name, "right") == pytest.approx(np.mean(chance))
    assert cell(tables["agent"], "planted", "with a patch, mixed") == pytest.approx(np.mean(chance))
    assert cell(tables["agent-selectors"], name, "lift") > 0.05
    for selector in ("RAD among those with a patch", "fewest steps among those with a patch"):
        right = cell(tables["agent-selectors"], selector, "right")
        gain = cell(tables["agent-patched"], selector, "minus a random one with a patch")
        assert gain == pytest.approx(right - np.mean(chance))


def test_without_a_signal_nothing_is_supported(tmp_path: Path) -> None:
    pool = labelled(tmp_path, write_runs(tmp_path, signal=0.0, seed=1))
    found = findings([pool])
    verdicts = {one.claim.key: one.verdict for one in found.decisions}
    assert verdicts["agent.beats-random"] != ClaimVerdict.SUPPORTS
    assert verdicts["agent.single-anchor"] != ClaimVerdict.SUPPORTS


def test_the_lift_over_all_issues_is_diluted_by_those_that_do_not_split(tmp_path: Path) -> None:
    verdicts = write_runs(tmp_path, issues=20, seed=2)
    unanimous = {f"issue-{i:03d}" for i in range(0, 20, 2)}
    pool = labelled(tmp_path, {(name, run): name in unanimous or v for (name, run), v in verdicts.items()})
    main = findings([pool]).tables[0]
    assert (cell(main, "planted", "issues"), cell(main, "planted", "mixed")) == (20, 10)
    assert cell(main, "planted", "lift, all") == pytest.approx(cell(main, "planted", "lift, mixed") / 2)
    assert cell(main, "planted", "oracle") == 1.0


def test_a_pool_of_boundaries_alone_says_which_ablations_it_lacks(tmp_path: Path) -> None:
    profile = Profile(readouts=("step@union",))
    pool = labelled(tmp_path, write_runs(tmp_path, issues=12, weights=False, logprobs=False, profile=profile))
    found = findings([pool])
    assert "agent.single-anchor was not tested: the pool keeps the rows of boundaries alone." in found.notes
    assert "agent.sets-suffice was not tested: the pool has no weights." in found.notes
    cells = [c for table in found.tables for row in table.rows for c in row.cells]
    assert {"the pool keeps the rows of boundaries alone", "no top-k logprobs"} <= {c.note for c in cells}
    assert not [c for c in cells if isinstance(c.value, float) and not math.isfinite(c.value)]


def test_verdicts_that_do_not_split_decide_nothing(tmp_path: Path) -> None:
    pool = labelled(tmp_path, dict.fromkeys(write_runs(tmp_path, issues=3, n=4), True))
    found = findings([pool])
    assert found.decisions == ()
    assert found.notes[0].startswith("No issue is mixed")
    cells = [c for table in found.tables for row in table.rows for c in row.cells]
    assert not [c for c in cells if isinstance(c.value, float) and not math.isfinite(c.value)]


def test_two_configurations_are_pooled(strong: Path, tmp_path: Path) -> None:
    other = labelled(tmp_path, write_runs(tmp_path, issues=12, model="other", seed=3))
    main = findings([strong, other]).tables[0]
    assert cell(main, "all", "issues") == 52


def test_scores_of_one_issue(strong: Path) -> None:
    problem = open_graded(strong)[0].problem("issue-000")
    made = measure(problem)
    assert made.missing == {}
    assert np.array_equal(made.scores["rad"], made.scores["k=4"])
    assert int(np.argmax(made.scores["rad"])) == problem.selection.index
    assert made.facts["steps"].tolist() == made.facts["boundaries"].tolist()
    assert made.rates[16] == hit(made.scores["rad"], problem.correct)
    assert measure(problem).scores["random"].tolist() == made.scores["random"].tolist()


def test_a_rank_sum_is_among_what_both_score() -> None:
    made = rank_sum(np.array([1.0, np.nan, 3.0]), np.array([5.0, 6.0, 4.0]))
    assert made[0] == made[2] == 3.0
    assert np.isnan(made[1])
    assert hit(np.full(2, np.nan), np.array([True, True])) == 0.0
