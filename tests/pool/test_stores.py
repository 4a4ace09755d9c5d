"""Pools in object stores that fail, refuse, fill up, are slow or lie: one line each, nothing lost, nothing half-written visible."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from crooked_store import Crooked
from planted_pools import write_pool
from radmoe import open_pool, select
from radmoe.errors import InputError, PoolBusy, PoolError, PoolIncomplete, PoolNotFound, PoolUnreachable, PoolWriteError
from radmoe.pool import Pool, PoolWriter, completion, lease, schema, shard, stores
from radmoe.pool.files import place
from radmoe.pool.stores import StorePath
from radmoe_lab.planted import PlantedGroup
from seaweed import READ_ONLY, SeaweedFS
from small_pools import rollout, writer

pytestmark = pytest.mark.slow

URL = place("s3://crooked/pool")


def refused(error: pytest.ExceptionInfo[PoolError]) -> str:
    """The message, which is one line and tells no secret."""
    message = str(error.value)
    assert "\n" not in message
    assert "SECRET" not in message
    assert "KEY" not in message
    return message


def test_a_url_survives_being_a_path() -> None:
    assert str(place(Path("s3://bucket/a/b"))) == "s3://bucket/a/b"
    assert str(place("gs://bucket") / "a") == "gs://bucket/a"
    assert (place("az://bucket/a/b").parent, place("az://bucket/a/b").name) == (place("az://bucket/a"), "b")
    assert not isinstance(place("s3/bucket"), StorePath)


def test_without_obstore_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    stores._store.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'radmoe\[store\]'"):
        _ = place("s3://bucket/a").store  # type: ignore[attr-defined]


def test_a_store_that_ignores_conditions_is_refused_and_left_as_it_was(crooked: Crooked) -> None:
    crooked.honours = False
    with pytest.raises(PoolWriteError, match="ignores conditional writes") as error:
        writer(URL)
    refused(error)
    assert crooked.objects == {}


def test_a_store_that_can_only_be_read_says_so(crooked: Crooked) -> None:
    with writer(URL) as one:
        one.add("p", rollout(5), rollout_index=0)
    crooked.read_only = True
    with pytest.raises(PoolWriteError, match=r"refuses these credentials \(AccessDenied\)") as error:
        writer(URL)
    refused(error)
    assert open_pool(URL).verify() == []


@pytest.mark.parametrize("fault", ["full", "expired"])
def test_what_was_added_to_a_store_that_stops_taking_it_is_sent_later(crooked: Crooked, fault: str) -> None:
    one = writer(URL)
    for index in range(3):
        one.add("p", rollout(400, seed=index), rollout_index=index)
    crooked.room, crooked.expires_after = (2000, 1 << 30) if fault == "full" else (1 << 30, 3)
    with pytest.raises(PoolWriteError, match=r"InsufficientStorage|ExpiredToken|507") as error:
        one.close()
    assert "what was written before is kept" in refused(error)
    with pytest.raises(PoolIncomplete):
        open_pool(URL)
    crooked.room = crooked.expires_after = 1 << 30
    one.abandon()
    with writer(URL) as again:
        assert [again.has("p", index) for index in range(4)] == [True, True, True, False]
        again.add("p", rollout(400, seed=3), rollout_index=3)
    pool = open_pool(URL)
    assert len(pool) == 4
    assert pool.verify() == []


@pytest.mark.parametrize("lie", ["loses", "cuts"])
@pytest.mark.parametrize("name", ["moe_topk_expert_ids", "moe_meta.json", "runs.parquet", "pool.json"])
def test_a_store_that_says_it_took_what_it_did_not_is_found_out(crooked: Crooked, lie: str, name: str) -> None:
    one = writer(URL)
    one.add("p", rollout(50), rollout_index=0)
    setattr(crooked, lie, name)
    with pytest.raises(PoolWriteError, match="the store said that it took") as error:
        one.close()
    refused(error)
    one.abandon()
    with pytest.raises(PoolError):
        open_pool(URL)
    setattr(crooked, lie, "nothing")
    for path in [path for path in crooked.objects if path.endswith(name) and lie == "cuts"]:
        del crooked.objects[path]  # what it cut is no longer what was said
    Pool.recover(URL)
    assert open_pool(URL).verify() == []


def test_nothing_is_deleted_from_a_pool_in_a_store(crooked: Crooked) -> None:
    with writer(URL) as one:
        one.add("p", rollout(5), rollout_index=0)
    before = dict(crooked.objects)
    with pytest.raises(InputError, match="nothing is deleted from a pool: copy it to a disk first") as error:
        open_pool(URL).delete(["p"])
    refused(error)
    assert crooked.objects == before


def test_a_slow_store_is_waited_for_and_one_that_never_answers_is_not(
    crooked: Crooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "TIMEOUT", timedelta(seconds=0.5))
    monkeypatch.setattr(stores, "RETRY", {"max_retries": 0})
    with writer(URL) as one:
        one.add("p", rollout(5), rollout_index=0)
        crooked.delay = 0.02
    assert len(open_pool(URL)) == 1
    crooked.delay = 2.0
    with pytest.raises(PoolUnreachable, match="the store does not answer") as error:
        open_pool(URL)
    refused(error)


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    stores._store.cache_clear()
    monkeypatch.setattr(stores, "RETRY", {"max_retries": 0})
    for name, value in Crooked(url="http://127.0.0.1:9").environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PoolUnreachable, match="the store does not answer") as error:
        open_pool(URL)
    refused(error)
    stores._store.cache_clear()


def test_a_writer_whose_pool_was_taken_over_publishes_nothing_and_loses_nothing(
    crooked: Crooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = writer(URL)
    late.add("p", rollout(50), rollout_index=0)
    with monkeypatch.context() as away:  # as if its machine had been asleep
        away.setattr(lease, "LAPSE", -1.0)
        other = writer(URL)
    other.add("q", rollout(50), rollout_index=0)
    with pytest.raises(PoolBusy, match=r"was taken over by process .* nothing is lost") as error:
        late.close()
    refused(error)
    late.abandon()
    other.close()
    assert open_pool(URL).verify() == []
    with writer(URL) as again:
        assert again.has("p", 0)
    pool = open_pool(URL)
    assert sorted(pool.problems) == ["p", "q"]
    assert pool.verify() == []


def test_a_process_that_lives_shows_it_and_one_that_does_not_is_taken_over(
    crooked: Crooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT", 0.05)
    one = writer(URL)
    before = crooked.requests
    time.sleep(0.5)
    assert crooked.requests > before
    one.close()
    crooked.objects[f"{URL.key}/{schema.WRITER}".replace("pool/", "crooked/pool/")] = b"1 another-host 0123 alone\n"  # type: ignore[attr-defined]
    with pytest.raises(PoolBusy, match="process 1 on another-host"):
        writer(URL)
    monkeypatch.setattr(lease, "LAPSE", -1.0)
    writer(URL).close()


def test_two_writers_that_come_at_once_do_not_both_write(crooked: Crooked) -> None:
    ready = threading.Barrier(4)

    def come() -> PoolWriter | None:
        ready.wait()
        try:
            return writer(URL)
        except PoolBusy:
            return None

    with ThreadPoolExecutor(4) as pool:
        came = [future.result() for future in [pool.submit(come) for _ in range(4)]]
    (only,) = [one for one in came if one is not None]
    only.close()


_KILLED = """
    import os, signal, sys
    sys.path[:0] = [sys.argv[1]]
    from small_pools import rollout, writer
    one = writer(sys.argv[2], workers=True, shard_bytes=4000)
    for index in range(int(sys.argv[3])):
        if not one.has("p", index):
            one.add("p", rollout(60, seed=index), rollout_index=index)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_killed_processes_added_is_there_and_once(bucket: StorePath) -> None:
    support = Path(__file__).parents[1] / "support"
    for added in (3, 5):  # the second takes up what the first added, and adds two more
        code = [sys.executable, "-c", textwrap.dedent(_KILLED), str(support), str(bucket), str(added)]
        assert subprocess.run(code, env=os.environ).returncode == -9
    pool = Pool.recover(bucket)
    assert pool.rollout_indices("p") == [0, 1, 2, 3, 4]
    assert pool.verify() == []


def test_two_workers_that_come_at_once_do_not_both_send_what_a_killed_one_added(
    bucket: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = writer(bucket, workers=True)
    killed.add("p", rollout(60), rollout_index=0)
    killed.abandon()
    sent: list[Path] = []

    def publish(local: Path, directory: Path) -> None:
        sent.append(directory)
        with writer(bucket, workers=True) as second:  # while the first sends it
            assert not second.has("p", 0)
        shard.publish(local, directory)

    monkeypatch.setattr(completion, "publish", publish)
    with writer(bucket, workers=True) as first:
        assert first.has("p", 0)
    assert len(sent) == 1
    assert open_pool(bucket).verify() == []


def test_a_store_that_is_stopped_for_a_while_costs_nothing(
    seaweed: SeaweedFS, bucket: StorePath, made: list[PlantedGroup], shared_pool: Path
) -> None:
    def interrupt() -> None:
        time.sleep(0.2)
        seaweed.stop()
        time.sleep(3)
        seaweed.start()

    thread = threading.Thread(target=interrupt)
    thread.start()
    write_pool(bucket, made, shard_bytes=50_000)
    thread.join()
    pool, local = open_pool(bucket), open_pool(shared_pool)
    assert pool.verify() == []
    for problem in local.problems:
        assert select(pool.group(problem)).density.tobytes() == select(local.group(problem)).density.tobytes()


def test_credentials_that_may_only_read_read(
    bucket: StorePath, made: list[PlantedGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pool(bucket, made)
    for name, value in READ_ONLY.items():
        monkeypatch.setenv(name, value)
    stores._store.cache_clear()
    assert open_pool(bucket).verify() == []
    with pytest.raises(PoolWriteError, match="refuses these credentials"):
        writer(bucket)
    with pytest.raises(PoolNotFound):
        open_pool(bucket / "nothing")
