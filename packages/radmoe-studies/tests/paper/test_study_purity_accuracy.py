"""Study 3 on panels whose neighbourhoods get purer with more rollouts, or worse, as was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planted_panels import evidence, panel
from radmoe.evaluation.stats import partial_correlation
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read
from radmoe_studies.paper.purity_accuracy import purity_accuracy
from radmoe_studies.picks import rate
from radmoe_studies.purity_curves import REQUESTS, pool_curves, rho, sizes_of, with_rollouts

OPTIONS = Options(resamples=300)
RISING = dict(zip(REQUESTS, (0.02, 0.03, 0.04, 0.06), strict=True))


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def mixed(right: float, wrong_answers: int) -> list[Panel]:
    """Problems with a strong signal and problems with none, equally hard."""
    return [
        panel(
            requests=REQUESTS,
            right=right,
            wrong_answers=wrong_answers,
            signal=strength,
            dataset=f"math-{i}",
            seed=i,
            problems=80,
        )
        for i, strength in enumerate((0.3, 0.0))
    ]


def written(one: Panel, tokens: int) -> Panel:
    """The panel whose rollouts have so many tokens behind the delimiter, which is at 40."""
    return replace(one, lengths=np.full_like(one.lengths, 40 + tokens))


def test_a_trend_over_widths_cannot_be_asked_for_where_rollouts_end_behind_the_answer() -> None:
    one = panel(requests=REQUESTS, signal=RISING, right=0.4, n=64, problems=60)
    short = {d.claim.key: d for d in purity_accuracy(evidence(written(one, 20)), OPTIONS).decisions}
    decision = short["purity-accuracy.rise-with-window"]
    assert decision.verdict is ClaimVerdict.NOT_EXPRESSIBLE
    assert decision.inexpressible.startswith("16 and 32 of the widths 16, 32, 64, 128 differ")
    assert not short["purity-accuracy.rise-with-rollouts"].inexpressible


def test_a_weak_signal_gets_clearer_with_more_rollouts_and_with_wider_windows() -> None:
    one = written(panel(requests=REQUESTS, signal=RISING, right=0.35, n=64, problems=300), 200)
    found = purity_accuracy(evidence(one), OPTIONS)
    assert verdicts(found)["rise-with-rollouts"] == ClaimVerdict.SUPPORTS
    assert verdicts(found)["rise-with-window"] == ClaimVerdict.SUPPORTS
    decision = found.decisions[0]
    assert decision.estimate > 0.9
    assert [row.cells[0].value for row in found.tables[0].rows] == ["lab-qwen thinking", "all", "paper"]


def test_decoys_that_only_large_cohorts_hold_make_purity_fall() -> None:
    one = written(panel(requests=REQUESTS, signal=dict(zip(REQUESTS, (0.3, 0.1, 0.03, 0.0), strict=True)), n=64), 200)
    read = one.read(REQUESTS[0])
    for row, answer in enumerate(one.answer):
        order = np.argsort(answer, kind="stable")
        decoys = np.roll(order, 32)  # the partner of each rollout, mostly of another answer, is the nearest of all
        read.values[row, order, decoys] = read.values[row, decoys, order] = 0.99
    found = verdicts(purity_accuracy(evidence(one), OPTIONS))
    assert found["rise-with-rollouts"] == ClaimVerdict.REFUTES
    assert found["rise-with-window"] == ClaimVerdict.REFUTES


def test_purity_that_helps_at_one_difficulty_is_coupled_and_purity_of_a_wrong_majority_refutes_it() -> None:
    assert verdicts(purity_accuracy(evidence(*mixed(0.5, 4)), OPTIONS))["coupled"] == ClaimVerdict.SUPPORTS
    assert verdicts(purity_accuracy(evidence(*mixed(0.35, 1)), OPTIONS))["coupled"] == ClaimVerdict.REFUTES


def test_the_share_of_right_rollouts_alone_couples_nothing() -> None:
    """Purity corrected for chance falls as one basin grows, and accuracy rises: plain correlations are misled by it."""
    one = panel(requests=REQUESTS, signal=0.15, right=np.linspace(0.3, 0.8, 200).tolist(), problems=200)
    curve = {one: with_rollouts(one, (4, 8, 16), 0)}
    result = pool_curves([one], curve, OPTIONS)
    assert result is not None
    control = np.isfinite(curve[one].purity[:, 1])
    known = partial_correlation(curve[one].purity[control, 1], curve[one].accuracy[control, 1], rate(one)[control])
    assert np.isclose(result.given_rate[0, 1], known.r)
    assert np.isclose(
        result.plain[0, 1], np.corrcoef(curve[one].purity[control, 1], curve[one].accuracy[control, 1])[0, 1]
    )


def test_only_problems_with_enough_rollouts_at_every_size_are_in() -> None:
    one = panel(requests=REQUESTS, n=32, right=[1.0] + [0.5] * 59)
    start = one.read(REQUESTS[0]).start.copy()
    start[1, 20:] = -1
    one.reads[REQUESTS[0]] = Read(one.read(REQUESTS[0]).values, start)
    sizes = sizes_of([one])
    assert sizes == (4, 6, 8, 12, 16, 24, 32)
    curve = with_rollouts(one, sizes, 0)
    assert np.isnan(curve.purity[:2]).all()  # one has a single answer, one too few rollouts
    assert np.isfinite(curve.purity[2:]).all()
    assert np.isnan(curve.accuracy[:2]).all()


def test_few_located_rollouts_leave_windows_alone_and_no_purity_leaves_nothing() -> None:
    few = purity_accuracy(evidence(panel(requests=REQUESTS, n=5, problems=60, signal=RISING)), OPTIONS)
    assert set(verdicts(few)) <= {"rise-with-window"}
    assert any("rise-with-rollouts was not decided" in note for note in few.notes)
    none = purity_accuracy(evidence(panel(requests=REQUESTS, right=1.0)), OPTIONS)
    assert none.decisions == ()
    assert none.charts == ()
    assert all(cell.value is None for row in none.tables[0].rows[:-1] for cell in row.cells[2:])


def test_rho_is_spearmans_and_a_constant_course_has_none() -> None:
    assert np.allclose(rho(np.array([[1.0, 2, 3], [3, 2, 1], [1, 1, 1], [1, 3, 2]])), [1, -1, 0, 0.5])
