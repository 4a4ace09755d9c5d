"""Similarities computed beside the sampling are those that selection computes from the routing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from radmoe.engines.base import Completion
from radmoe.errors import InputError
from radmoe.selection.confidence import rollout_confidence
from radmoe.selection.kernels import binary_jaccard, weighted_jaccard
from radmoe.selection.readout import read
from radmoe_lab.matrices import Matrices, MatrixSpec, read_matrices, square
from radmoe_lab.planted import Planted, groups

READS = ("delimiter@16", "pre-delim@16", "all", "delimiter@marker binary", "trajectory:so*@16 budget=64")


def test_similarities_are_those_of_selection(tmp_path: Path) -> None:
    planted = [one.group for one in groups(Planted(problems=2, rollouts=6))]
    n, shape = 6, planted[0].shape
    matrices = Matrices(READS, [(group.problem_id, "math") for group in planted], n, planted[0].vocab, shape, "cpu")
    for i in reversed(range(n)):
        for p, group in enumerate(planted):
            matrices.add(Completion(p, i, group.rollouts[i], "", "stop"))  # type: ignore[arg-type]
    matrices.write(tmp_path / "some.npz", {"settings": {}})
    header, arrays = read_matrices(tmp_path / "some.npz")
    assert header["problems"] == [group.problem_id for group in planted]
    for p, group in enumerate(planted):
        for r, name in enumerate(READS):
            one = MatrixSpec.parse(name)
            reading = read(group, one.readout, "math", budget=one.budget, binary=one.binary)
            assert (arrays["anchors"][p, r] >= 0).tolist() == reading.located.tolist()
            wanted = (binary_jaccard if one.binary else weighted_jaccard)(reading.Z)
            S = square(arrays["similarities"][p, r], n)[np.ix_(reading.located, reading.located)]
            assert np.allclose(S, wanted, atol=1e-3)
        cbw = arrays["confidences"][p, :, header["confidences"].index("cbw-32")]
        assert np.allclose(cbw, [rollout_confidence(one.topk_logprobs, window=32) for one in group.rollouts])


def test_problems_with_rollouts_missing_are_left_out(tmp_path: Path) -> None:
    (one,) = groups(Planted(problems=1, rollouts=3))
    matrices = Matrices(["all"], [("p", "math")], 3, one.group.vocab, one.group.shape, "cpu")
    matrices.add(Completion(0, 0, one.group.rollouts[0], "", "stop"))  # type: ignore[arg-type]
    matrices.write(tmp_path / "none.npz", {})
    assert read_matrices(tmp_path / "none.npz")[0]["problems"] == []


def test_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="'binry' in 'all binry' is unknown: use binary or budget=256"):
        MatrixSpec.parse("all binry")
