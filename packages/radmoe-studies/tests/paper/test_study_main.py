"""Study 6 on records whose accuracies were planted, and on a real planted pool."""

from __future__ import annotations

import numpy as np

from planted_outcomes import evaluated
from planted_panels import evidence, panel
from radmoe.evaluation.stats import holm
from radmoe.evaluation.table import Table
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel
from radmoe_studies.paper.main import main

OPTIONS = Options(resamples=400)
EQUAL = {"average": 0.6, "majority-split": 0.7, "majority": 0.7, "rad": 0.7, "rad+dc": 0.7, "likelihood": 0.62}
MATH = panel(problems=300, n=4)
CODE = panel(problems=300, n=4, kind="code", dataset="code")


def verdicts(*pairs: tuple[Panel, dict[str, float]]) -> dict[str, ClaimVerdict]:
    found = main(evidence(*(evaluated(one, right) for one, right in pairs)), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def cells(table: Table, section: str) -> dict[object, list[object]]:
    return {row.cells[0].value: [cell.value for cell in row.cells[1:]] for row in table.rows if row.section == section}


def test_methods_that_are_equally_right_are_on_par_and_above_a_random_rollout() -> None:
    assert verdicts((MATH, EQUAL), (CODE, EQUAL)) == {
        "on-par-with-majority": ClaimVerdict.SUPPORTS,
        "fusion-on-par-with-majority": ClaimVerdict.SUPPORTS,
        "above-average": ClaimVerdict.SUPPORTS,
        "defined-on-code": ClaimVerdict.SUPPORTS,
    }


def test_rad_below_the_vote_and_below_a_random_rollout_refutes_every_claim() -> None:
    worse = EQUAL | {"rad": 0.45, "rad+dc": 0.45}
    assert set(verdicts((MATH, worse), (CODE, worse)).values()) == {ClaimVerdict.REFUTES}


def test_tables_hold_what_was_planted_and_the_papers_numbers_beside_it() -> None:
    other = panel(problems=300, n=4, model="lab-oss", style="low", seed=1)
    own = [evaluated(one, EQUAL | {"rad": 0.8}) for one in (MATH, other, CODE)]
    found = main(evidence(*own), OPTIONS)
    families, configurations, differences = found.tables
    rad = cells(families, "all")["RAD"]
    assert rad[-2] == np.mean([one.outcomes.hits["rad"].mean() for one in own[:2]])
    assert cells(families, "all")["Cons@N, ties split"][-1] is None  # no vote over programs
    assert set(cells(configurations, "lab-oss low")) == set(cells(families, "all"))
    assert cells(families, "paper, all")["RAD"][-2] == 0.739
    assert cells(families, "paper, gpt-oss-20B")["RAD+DC"][-2:] == [0.686, 0.613]
    assert [column.title for column in families.columns] == ["method", "math-2", "code", "all well-posed", "all code"]
    gaps = cells(differences, "well-posed")
    assert gaps["RAD - Cons@N, first seen"][1] > 0.05  # type: ignore[operator]
    assert gaps["RAD - Cons@N, first seen"][-1] == 0.0028


def test_what_no_pool_has_is_left_out_with_a_note() -> None:
    found = main(evidence(evaluated(MATH, {"average": 0.6, "majority-split": 0.7, "rad": 0.7})), OPTIONS)
    assert {decision.claim.key for decision in found.decisions} == {"main.on-par-with-majority", "main.above-average"}
    assert sum("cannot be tested" in note for note in found.notes) == 2
    for table in found.tables:
        for row in table.rows:
            assert len(row.cells) == len(table.columns)
            assert all(np.isfinite(cell.value) for cell in row.cells if isinstance(cell.value, float))


def test_a_problem_that_four_configurations_answered_alike_counts_once() -> None:
    """The same outcomes four times are no more evidence than once: n and p are those of one configuration."""
    styles = [panel(problems=40, n=4, model="lab-oss", style=style) for style in ("low", "medium", "high", "other")]
    right = {"average": 0.5, "majority-split": 0.7, "majority": 0.7, "rad": 0.6, "rad+dc": 0.6}
    once, four = (
        cells(main(evidence(*(evaluated(one, right) for one in own)), OPTIONS).tables[2], "well-posed")
        for own in (styles[:1], styles)
    )
    row = "RAD - Cons@N, first seen"
    assert once[row][0] == four[row][0] == 40
    assert four[row][2] == once[row][2]


def test_p_is_corrected_over_all_comparisons_of_the_table() -> None:
    one = evaluated(MATH, EQUAL | {"rad": 0.8, "rad+dc": 0.76})
    own = [row.cells for row in main(evidence(one), OPTIONS).tables[2].rows]
    plain = [cells[3].value for cells in own if cells[3].value is not None]
    assert len(plain) > 1
    assert [cells[4].value for cells in own if cells[4].value is not None] == holm(plain).tolist()  # type: ignore[arg-type]
