"""Study 27 on panels whose ties and basins were planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planted_outcomes import evaluated
from planted_panels import evidence, panel, relabelled, similarity
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, Request
from radmoe_studies.paper.cases import cases, cases_of

OPTIONS = Options(resamples=400)
READ = (Request("delimiter@16"),)


def tied(densest: int, problems: int = 40) -> Panel:
    """Twelve rollouts, four answers with three votes each, the first right; rollouts of one answer are the densest."""
    one = panel(problems=problems, n=12, requests=READ)
    answer = np.broadcast_to(np.repeat(np.arange(4), 3), (problems, 12)).copy()
    rng = np.random.default_rng(0)
    S = np.stack([similarity(row, 0.1, rng, 0.01) for row in answer])
    S[:, 3 * densest : 3 * densest + 3, :] += 0.2
    start = one.reads[READ[0]].start
    return relabelled(one, answer, answer == 0, reads={READ[0]: Read(np.clip(S, 0, 1), start)})


def verdicts(own: dict[Panel, int]) -> dict[str, ClaimVerdict]:
    found = cases(evidence(*(evaluated(one, {}, basin=basin) for one, basin in own.items())), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_ties_are_counted_and_broken_where_it_was_planted() -> None:
    right = tied(0)
    own = cases_of(right, np.full(40, 3))
    assert set(own.tied.tolist()) == {4}
    assert own.success.all()
    assert not own.false_consensus.any()
    assert verdicts({right: 3})["density-breaks-ties"] == ClaimVerdict.SUPPORTS
    assert verdicts({tied(2): 3})["density-breaks-ties"] == ClaimVerdict.REFUTES


def test_a_handful_of_ties_decides_nothing() -> None:
    assert "density-breaks-ties" not in verdicts({tied(0, problems=19): 3})
    assert "density-breaks-ties" in verdicts({tied(0, problems=20): 3})


def test_large_wrong_basins_are_a_false_consensus_and_large_right_ones_are_not() -> None:
    assert verdicts({tied(2): 6})["agreement-is-not-truth"] == ClaimVerdict.SUPPORTS
    assert verdicts({tied(0, problems=200): 6})["agreement-is-not-truth"] == ClaimVerdict.REFUTES
    assert "agreement-is-not-truth" not in verdicts({tied(2): 5})  # below half of twelve: no consensus at all


def test_science_is_compared_with_math() -> None:
    math = panel(problems=80, right=0.9, signal=0.4, requests=READ)
    science = panel(problems=80, right=0.2, wrong_answers=1, signal=0.4, requests=READ, kind="choice", dataset="gpqa")
    assert verdicts({math: 20, science: 20})["false-consensus-on-science"] == ClaimVerdict.SUPPORTS
    turned = panel(problems=80, right=0.2, wrong_answers=1, signal=0.4, requests=READ)
    easy = panel(problems=80, right=0.9, signal=0.4, requests=READ, kind="choice", dataset="gpqa")
    assert verdicts({turned: 20, easy: 20})["false-consensus-on-science"] == ClaimVerdict.REFUTES
    assert "false-consensus-on-science" not in verdicts({math: 20})
    lab = replace(science, dataset="choice")
    assert verdicts({math: 20, lab: 20})["false-consensus-on-science"] == ClaimVerdict.NOT_EXPRESSIBLE


def test_tables_count_cases_by_set_and_difficulty_with_examples() -> None:
    one = tied(2)
    found = cases(evidence(evaluated(one, {}, basin=8)), OPTIONS)
    counts, difficulty, examples = found.tables
    assert [cell.value for cell in counts.rows[0].cells[:6]] == ["math-2", 40, 40, 0, 40, 40]
    assert [row.cells[5].value for row in difficulty.rows] == [40, 0, 0]  # a quarter of the rollouts is right
    assert len(examples.rows) == 5
    assert {row.section for row in examples.rows} == {"false consensus"}


def test_abstentions_and_unanswered_problems_are_neither_case() -> None:
    one = panel(requests=READ, located=0.0)
    own = cases_of(one, np.zeros(60, np.int64))
    assert not own.success.any()
    assert not own.false_consensus.any()
    mute = relabelled(panel(requests=READ), np.full((60, 32), -1))
    assert not cases_of(mute, np.zeros(60, np.int64)).tied.any()
    found = cases(evidence(evaluated(one, {})), OPTIONS)
    assert all(
        np.isfinite(c.value) for t in found.tables for row in t.rows for c in row.cells if isinstance(c.value, float)
    )
