"""Study 15 on panels whose kernels see as much as was planted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planted_panels import evidence, panel
from radmoe.evaluation.stats import holm
from radmoe.selection.kernels import density_scores
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, Request
from radmoe_studies.paper.kernel import KERNELS, READOUTS, kernel

OPTIONS = Options(resamples=400)


def planted(signal: Mapping[str, float], shared: bool = False, **recipe: object) -> Panel:
    """A panel with a signal per kernel. With `shared`, all kernels see the same matrix."""
    matrices = [Request(readout, name) for readout in READOUTS for name in KERNELS]
    made = panel(requests=matrices, signal={request: signal[request.kernel] for request in matrices}, **recipe)  # type: ignore[arg-type]
    dense = {}
    for request, read in made.reads.items():
        source = made.reads[Request(request.readout)] if shared else read
        values = [
            density_scores(S[np.ix_(inside, inside)], inside, made.setting.k)
            for S, inside in zip(source.values, source.located, strict=True)
        ]
        dense[replace(request, k=made.setting.k)] = Read(np.stack(values).astype(np.float32), source.start)
    return replace(made, reads=dense)


def verdicts(*panels: Panel) -> dict[str, ClaimVerdict]:
    found = kernel(evidence(*panels), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_kernels_that_see_the_same_are_found_equal() -> None:
    same = planted(dict.fromkeys(KERNELS, 0.3), shared=True)
    assert verdicts(same) == {"not-load-bearing": ClaimVerdict.SUPPORTS, "same-picks": ClaimVerdict.SUPPORTS}
    (modes, _, power) = kernel(evidence(same), OPTIONS).tables
    everything = next(row for row in modes.rows if row.cells[0].value == "all")
    assert [cell.value for cell in everything.cells[4:8]] == [0.0, 0, 0, 1.0]
    assert power.rows[0].cells[2].value is None  # nothing differs, so no gap could be seen


def test_a_kernel_that_sees_nothing_refutes_both_claims_and_its_gap_has_the_planted_sign() -> None:
    blind = planted({"weighted": 0.4, "binary": 0.0, "cosine": 0.4}, problems=80, right=0.6)
    assert set(verdicts(blind).values()) == {ClaimVerdict.REFUTES}
    found = kernel(evidence(blind), OPTIONS)
    assert found.decisions[0].estimate > 0.2
    assert ": 0 are significant" not in found.notes[0]


def test_cells_that_are_not_located_are_left_out_and_nothing_at_all_is_said_in_a_note() -> None:
    matrices = [Request(readout, name) for readout in READOUTS for name in KERNELS]
    some = planted(
        dict.fromkeys(KERNELS, 0.3), shared=True, located={r: float("boundary" not in r.readout) for r in matrices}
    )
    found = kernel(evidence(some), OPTIONS)
    assert [row.cells[0].value for row in found.tables[0].rows if row.section == "here"] == [
        "delimiter@marker",
        "delimiter@16",
        "all",
    ]
    nobody = planted(dict.fromkeys(KERNELS, 0.3), shared=True, located=0.0)
    empty = kernel(evidence(nobody), OPTIONS)
    assert not empty.decisions
    assert "nothing is compared" in empty.notes[0]


def test_no_table_holds_a_number_that_is_none() -> None:
    for right in (0.0, 1.0, 0.5):
        found = kernel(evidence(planted(dict.fromkeys(KERNELS, 0.2), problems=12, n=8, right=right)), OPTIONS)
        for table in found.tables:
            for row in table.rows:
                assert len(row.cells) == len(table.columns)
                assert all(np.isfinite(cell.value) for cell in row.cells if isinstance(cell.value, float))


def test_a_problem_that_four_configurations_answered_alike_counts_once_in_every_p() -> None:
    """McNemar over all cells would call the same few problems, asked four times, a difference."""
    one = planted({"weighted": 0.25, "binary": 0.05, "cosine": 0.25}, problems=30)
    four = [replace(one, style=style) for style in ("thinking", "low", "medium", "high")]
    once, often = (kernel(evidence(*own), OPTIONS).tables[:2] for own in ([one], four))
    for table, repeated in zip(once, often, strict=True):
        at = [column.title for column in table.columns].index("p")
        for row, other in zip(table.rows, repeated.rows, strict=True):
            if not row.section.startswith("paper"):
                assert other.cells[at].value == row.cells[at].value
                assert other.cells[at - 1].value == 4 * row.cells[at - 1].value  # type: ignore[operator]
    assert any(0 < row.cells[7].value < 1 for row in once[0].rows if row.section == "here")  # type: ignore[operator]


def test_p_is_corrected_over_all_that_a_table_prints() -> None:
    found = kernel(evidence(planted({"weighted": 0.25, "binary": 0.05, "cosine": 0.25}, problems=30)), OPTIONS)
    for table in found.tables[:2]:
        at = [column.title for column in table.columns].index("Holm p")
        own = [row.cells for row in table.rows if not row.section.startswith("paper")]
        assert [cells[at].value for cells in own] == holm([cells[at - 1].value for cells in own]).tolist()  # type: ignore[arg-type]
