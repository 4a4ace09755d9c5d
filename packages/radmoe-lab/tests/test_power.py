"""The power of a test from a pilot: picks from matrices are those of selection, and the numbers of problems are the textbook's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from radmoe_lab.matrices import read_matrices
from radmoe_lab.power import METHODS, main, needed
from radmoe_lab.sample import sample

READS = sorted({read for read, _, _ in METHODS.values()} | {"delimiter@marker binary"})


def test_the_pilot_compares_by_every_readout_that_a_method_needs() -> None:
    script = (Path(__file__).parents[1] / "pilot" / "run.sh").read_text()
    assert not {read for read in READS if f'"{read}"' not in script and f" {read} " not in script}


def test_the_problems_needed_are_those_of_the_usual_formulas() -> None:
    differences = np.array([-50.0, 50.0] * 500)
    assert needed(differences, 2, level=False) == pytest.approx((2.8016 * 50 / 2) ** 2, rel=0.01)
    assert needed(differences, 1, level=True) == pytest.approx((2.9265 * 50) ** 2, rel=0.01)


@pytest.mark.slow
def test_a_pilot_is_sampled_measured_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"n": 4, "limit": 2, "seed": 5, "batch_size": 8, "max_tokens": 160}
    file = sample("lab-qwen", "instruct", tmp_path, tasks=("math-1", "code"), matrices=READS, **options)
    header, arrays = read_matrices(file.with_suffix(".matrices.npz"))
    assert len(header["problems"]) == 4
    assert arrays["similarities"].shape == (4, len(READS), 6)
    assert (arrays["anchors"][:2, header["reads"].index("delimiter@16")] > 0).any()
    main(["measure", str(file), str(file.with_suffix(".matrices.npz")), "--out", str(tmp_path / "pilot.npz")])
    with np.load(tmp_path / "pilot.npz") as pilot:
        name = next(name for name in pilot.files if "math-1" in name)
        assert pilot[name].shape[0] == 2
    main(["show", str(tmp_path / "pilot.npz")])
    assert "lab-qwen instruct math-1 0.7/0.9: 2 problems" in capsys.readouterr().out
