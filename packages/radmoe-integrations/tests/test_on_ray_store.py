"""A capture on a Ray cluster into a real object store, with workers killed and the store away for a while."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip(
    "ray", reason="Ray is not installed (pip install 'radmoe[ray]'): captures on a cluster are left out"
)

import ray_cluster
from radmoe.capture import capture_pool
from radmoe.pool import open_pool
from radmoe.pool.stores import StorePath
from radmoe.system.cluster import Crew
from radmoe_integrations.on_ray import capture_on_ray
from ray_cluster import Killer, content, make_plan, mortal_plan
from seaweed import SeaweedFS

pytestmark = pytest.mark.slow


def test_a_pool_in_a_store_is_complete_though_workers_are_killed_and_the_store_is_away(
    seaweed: SeaweedFS, bucket: StorePath, tmp_path: Path
) -> None:
    capture_pool(make_plan(), tmp_path / "alone")

    def away() -> None:
        seaweed.stop()
        time.sleep(5.0)
        seaweed.start()

    outage = threading.Timer(12.0, away)
    with ray_cluster.cluster(2) as cluster, Killer(every=5.0, most=2) as killer:
        outage.start()
        crew = Crew(f"ray://{cluster.address}", 2)
        done = capture_on_ray(partial(make_plan, seconds=0.3), str(bucket), crew)
    outage.join()
    assert killer.killed
    assert done.rollouts == 96
    pool = open_pool(str(bucket))
    assert pool.verify() == []
    assert content(str(bucket)) == content(tmp_path / "alone")


def test_a_worker_that_lives_for_a_while_is_not_one_that_keeps_dying_though_its_disk_dies_too(
    bucket: StorePath, tmp_path: Path
) -> None:
    capture_pool(make_plan(4), tmp_path / "alone")
    with ray_cluster.cluster(1) as cluster:
        done = capture_on_ray(partial(mortal_plan, 24), str(bucket), Crew(f"ray://{cluster.address}", 1))
    assert (done.sampled, done.given_up) == (48, ())
    pool = open_pool(str(bucket))
    assert pool.verify() == []
    assert len(pool.shards) > 3  # those of workers that died, and of the last one
    assert content(str(bucket)) == content(tmp_path / "alone")
