"""Study 2 on panels whose readouts say as much about the answer as was planted."""

from __future__ import annotations

from planted_panels import evidence, panel
from radmoe.studies.base import Options
from radmoe.studies.decision import Verdict
from radmoe.studies.paper.readouts import MARKER, ONE, PRE, RAND, READOUTS, WINDOW, readouts

OPTIONS = Options(resamples=400)


def verdicts(signal: dict[object, float]) -> dict[str, Verdict]:
    found = readouts(evidence(panel(requests=READOUTS, signal=signal)), OPTIONS)  # type: ignore[arg-type]
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_the_papers_order_is_found_where_it_was_planted() -> None:
    planted = {RAND: 0.0, ONE: 0.0, PRE: 0.02, MARKER: 0.04, WINDOW: 0.3}
    assert verdicts(planted) == {
        "random-is-near-chance": Verdict.SUPPORTS,
        "marker-then-window": Verdict.SUPPORTS,
    }


def test_random_positions_that_know_the_answer_and_a_window_that_does_not_refute_it() -> None:
    planted = {RAND: 0.3, ONE: 0.3, PRE: 0.0, MARKER: 0.0, WINDOW: 0.0}
    assert set(verdicts(planted).values()) == {Verdict.REFUTES}


def test_the_table_has_every_configuration_and_all_of_them() -> None:
    one = panel(requests=READOUTS, style="thinking")
    other = panel(requests=READOUTS, style="instruct", seed=1)
    found = readouts(evidence(one, other), OPTIONS)
    names = [row.cells[0].value for row in found.tables[0].rows]
    assert names == ["lab-qwen thinking", "lab-qwen instruct", "all"]
    assert found.tables[0].rows[2].cells[1].value == 60  # the problems are the same: clusters, not rows
