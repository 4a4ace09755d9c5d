"""Study 2 on panels whose readouts say as much about the answer as was planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import write_pool
from radmoe.grading.labels import Label, write_labels
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Request, gather
from radmoe_studies.paper.readouts import (
    MARKER,
    ONE,
    PRE,
    RAND,
    READOUTS,
    WINDOW,
    cohort,
    purity_table,
    readouts,
    wanted,
)
from reference_purity import knn_purity

OPTIONS = Options(resamples=400)


def verdicts(signal: dict[object, float]) -> dict[str, ClaimVerdict]:
    found = readouts(evidence(panel(requests=READOUTS, signal=signal)), OPTIONS)  # type: ignore[arg-type]
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_the_papers_order_is_found_where_it_was_planted() -> None:
    planted = {RAND: 0.0, ONE: 0.0, PRE: 0.02, MARKER: 0.04, WINDOW: 0.3}
    assert verdicts(planted) == {
        "random-is-near-chance": ClaimVerdict.SUPPORTS,
        "marker-knows": ClaimVerdict.SUPPORTS,
        "window-wins": ClaimVerdict.SUPPORTS,
    }


def test_random_positions_that_know_the_answer_and_a_window_that_does_not_refute_it() -> None:
    planted = {RAND: 0.3, ONE: 0.3, PRE: 0.0, MARKER: 0.0, WINDOW: 0.0}
    assert set(verdicts(planted).values()) == {ClaimVerdict.REFUTES}


@pytest.mark.parametrize("better", [RAND, ONE, PRE, MARKER])
def test_any_of_the_other_four_bars_that_is_as_high_refutes_that_the_window_wins(better: Request) -> None:
    planted = {RAND: 0.0, ONE: 0.0, PRE: 0.02, MARKER: 0.04, WINDOW: 0.05} | {better: 0.3}
    assert verdicts(planted)["window-wins"] == ClaimVerdict.REFUTES


def test_instruct_configurations_stand_beside_and_change_no_number() -> None:
    """Instruct rollouts whose window knows nothing would turn the verdict if they were pooled."""
    papers = {RAND: 0.0, ONE: 0.0, PRE: 0.02, MARKER: 0.04, WINDOW: 0.3}
    thinking = panel(requests=READOUTS, signal=papers)
    blind = panel(requests=READOUTS, signal=dict.fromkeys(READOUTS, 0.0), style="instruct", seed=1)
    alone, both = (readouts(evidence(*panels), OPTIONS) for panels in ([thinking], [thinking, blind, blind]))
    assert both.decisions == alone.decisions
    assert [table.key for table in both.tables] == ["readouts", "readouts-instruct"]
    assert both.tables[0] == alone.tables[0]
    assert "instruct configurations, which no claim is about" in both.tables[1].title


def test_the_table_has_every_configuration_and_all_of_them() -> None:
    one = panel(requests=READOUTS, style="thinking")
    other = panel(requests=READOUTS, style="high", seed=1)
    found = readouts(evidence(one, other), OPTIONS)
    names = [row.cells[0].value for row in found.tables[0].rows]
    assert names == ["lab-qwen thinking", "lab-qwen high", "all"]
    assert found.tables[0].rows[2].cells[1].value == 60  # the problems are the same: clusters, not rows


def test_on_a_pool_purity_is_high_at_the_answer_and_low_elsewhere_and_that_of_each_problem(tmp_path: Path) -> None:
    made = list(planted.groups(Planted(problems=6, rollouts=24, seed=3)))
    pool = write_pool(tmp_path / "pool", made)
    labels = [  # the first of each has no answer, and is left out
        Label(m.group.problem_id, i, answer if i else None, answer == m.truth)
        for m in made
        for i, answer in enumerate(m.answers)
    ]
    write_labels(pool, labels)
    found = gather([pool], use_cache=False)
    found.read(wanted)
    (own,) = found.panels
    assert not cohort(own)[:, 0].any()
    table = purity_table(own)
    assert np.nanmean(table[:, READOUTS.index(WINDOW)]) > 0.6
    assert np.nanmean(table[:, READOUTS.index(ONE)]) < 0.3
    for row, inside in enumerate(cohort(own)):
        S = own.read(WINDOW).values[row][np.ix_(inside, inside)]
        alone = knn_purity(np.ascontiguousarray(S), [str(answer) for answer in own.answer[row, inside]])
        assert table[row, READOUTS.index(WINDOW)] == pytest.approx(alone)
