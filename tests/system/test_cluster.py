"""Which cluster `--on` means, and what is refused."""

from __future__ import annotations

import pytest

from radmoe.errors import InputError
from radmoe.system import cluster as clusters
from radmoe.system.cluster import Crew, cluster


def test_a_scheme_is_that_of_a_plugin() -> None:
    from radmoe_integrations.on_ray import RAY

    assert cluster("ray") is cluster("ray://head:6379") is RAY


@pytest.mark.parametrize("on", ["", "rya", "http://head:6379"])
def test_what_no_plugin_knows_is_refused(on: str) -> None:
    with pytest.raises(InputError, match="is no cluster: write ray, or ray://HOST:6379"):
        cluster(on)


def test_ray_without_its_companion_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "added", lambda what: {})
    with pytest.raises(InputError, match=r"^--on ray is part of radmoe-integrations, .*: pip install 'radmoe\[ray\]'$"):
        cluster("ray")


@pytest.mark.parametrize("needs", [{"workers": 0}, {"gpus_per_worker": -1.0}, {"gpus_per_worker": float("inf")}])
def test_a_crew_has_workers(needs: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"^--(workers must be at least 1|gpus-per-worker must be 0 or more), got"):
        Crew("ray", **needs)  # type: ignore[arg-type]
