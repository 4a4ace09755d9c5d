"""The same rollouts give the same picks and densities as they did before the rooms were rebuilt.

`tests/data/golden` holds two captured groups of 12 rollouts per kind and what was selected from them. Recipe: radmoe at
commit d0a7421, `radmoe capture --model M --task T -n 12 --limit 2 --seed 41` (math: lab-qwen math-3, choice: lab-oss
choice, code: lab-qwen code), then `select` with the settings listed in the JSON beside the arrays.
"""

import numpy as np
import pytest

from golden_groups import KINDS, golden
from radmoe import PoolWriter, open_pool, select
from radmoe.selection.kernels import TIE
from radmoe.selection.readout import read


@pytest.fixture(scope="module", params=["memory", "pool"])
def groups(request, tmp_path_factory):
    """The golden groups of every kind, as built in memory and as read back from a pool."""
    made = {kind: list(golden(kind)) for kind in KINDS}
    if request.param == "memory":
        return made
    for kind, entries in made.items():
        path, group = tmp_path_factory.mktemp("golden") / kind, entries[0][0]
        with PoolWriter(path, shape=group.shape, vocab=group.vocab, model="golden") as writer:
            for group, _, _ in entries:
                for rollout in group.rollouts:
                    writer.add(group.problem_id, rollout)
        pool = open_pool(path)
        made[kind] = [(pool.group(group.problem_id), *rest) for group, *rest in entries]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_picks_densities_and_anchors_are_those_written_down(groups, kind):
    for group, selections, _ in groups[kind]:
        for wanted in selections:
            options = {name: wanted[name] for name in ("readout", "kernel", "k", "fusion")}
            pick = select(group, kind=kind, **options)
            where = f"{group.problem_id}, {options}"
            assert pick.index == wanted["index"], where
            density = np.array(wanted["density"], np.float64)
            np.testing.assert_allclose(pick.density, density, rtol=0, atol=TIE, err_msg=where)
            assert [a and [a.start, a.length] for a in pick.anchors] == wanted["anchors"], where
            assert list(pick.basin) == wanted["basin"], where
            assert list(pick.neighbours) == wanted["neighbours"], where
            assert pick.k == wanted["k_used"], where
            margin = np.nan if wanted["margin"] is None else wanted["margin"]
            np.testing.assert_allclose(pick.margin, margin, rtol=0, atol=TIE, err_msg=where)


@pytest.mark.parametrize("kind", KINDS)
def test_route_vectors_are_those_written_down(groups, kind):
    for group, _, matrices in groups[kind]:
        assert set(matrices) == {"delimiter@16", "delimiter@marker", "boundary@16"}
        for readout, Z in matrices.items():
            np.testing.assert_allclose(read(group, readout, kind).Z, Z, rtol=0, atol=1e-6)
