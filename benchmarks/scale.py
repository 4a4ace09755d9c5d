"""What a million rollouts cost, and where the next bottleneck is: `python -m benchmarks.scale` (docs/scale.md).

Without options a simulator runs the driver's own rule for pieces over workers that start, decode in batches, are lost, and write to a
disk or a store, and says where the time of the workers goes. `--measure` measures on a Ray cluster on this machine what the simulator takes
for granted: what Ray costs per rollout, and how the rate grows with workers that only wait. `--kills MINUTES` kills a worker every 20 s (`--every`),
and with `--store` the pool lies in a SeaweedFS that is stopped for 20 s twice.
"""

from __future__ import annotations

import argparse
import heapq
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # the engine that waits is there

SHARE, LEAST = (
    0.75,
    0.25,
)  # of what is left per worker, and of a batch at least: the size of a piece, as in radmoe_integrations.on_ray
PUBLISH_S = 300.0  # between what a worker sends to a store; the shorter pauses of its first five minutes are left out


@dataclass(frozen=True)
class Setting:
    """A capture. The defaults of times and bytes are measured or stated in docs/scale.md."""

    workers: int = 10
    rollouts: int = 1_000_000
    tokens: float = 2_000  # of a rollout, on average; lengths are log-normal with `spread`
    spread: float = 0.6
    step_ms: float = 20.0  # of a token, with a batch of `batch`
    batch: int = 256
    start_s: float = 120.0  # until a worker has loaded its model
    hours_between_losses: float = 24.0  # of one worker
    bytes_per_token: float = 915.0
    store: bool = False
    worker_mb_s: float = 200.0  # to the disk or store
    total_mb_s: float = 5_000.0  # for all workers together
    request_s: float = 0.05
    requests_per_shard: int = 10
    report_ms: float = 0.4  # of the driver, for each report
    seed: int = 0


@dataclass
class Result:
    """Seconds of all workers by what they went into, and the time until the last one ended."""

    wall_s: float = 0.0
    pieces: int = 0
    lost: int = 0
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    driver_s: float = 0.0


PARTS = ("decoding", "batch tails", "starting", "lost work", "storage", "the end")


def simulate(setting: Setting) -> Result:
    rng = np.random.default_rng(setting.seed)
    mean = np.log(setting.tokens) - setting.spread**2 / 2
    steps = rng.lognormal(mean, setting.spread, setting.rollouts) * setting.step_ms / 1000
    left, lost_rollouts, result = list(steps[::-1]), list[float](), Result()
    lose = setting.hours_between_losses * 3600
    free = [(setting.start_s, worker) for worker in range(setting.workers)]
    fails = rng.exponential(lose, setting.workers)
    result.spent["starting"] = setting.start_s * setting.workers
    ends = np.zeros(setting.workers)
    bandwidth = min(setting.worker_mb_s, setting.total_mb_s / setting.workers) * 1e6
    while left or lost_rollouts:
        now, worker = heapq.heappop(free)
        waiting = left or lost_rollouts
        size = min(max(int(SHARE * len(waiting) / setting.workers), int(LEAST * setting.batch), 1), len(waiting))
        piece = [waiting.pop() for _ in range(size)]
        result.pieces += 1
        done = finish_times(piece, setting.batch)
        length, busy = done[-1], sum(piece) / setting.batch
        content = busy * setting.batch / setting.step_ms * 1000 * setting.bytes_per_token
        writing = (
            content / bandwidth + setting.requests_per_shard * setting.request_s * (1 + length // PUBLISH_S)
            if setting.store
            else 0.0
        )
        if fails[worker] < now + length + writing:
            at = max(fails[worker] - now, 0.0)
            safe = at // PUBLISH_S * PUBLISH_S if setting.store else at
            kept = sum(one <= safe for one in done)
            result.lost += 1
            result.spent["lost work"] += at * (1 - kept / size)
            result.spent["decoding"] += at * kept / size
            lost_rollouts += sorted(piece)[kept:]
            result.spent["starting"] += setting.start_s
            fails[worker] = now + at + setting.start_s + rng.exponential(lose)
            heapq.heappush(free, (now + at + setting.start_s, worker))
            ends[worker] = now + at
            continue
        result.spent["decoding"] += busy
        result.spent["batch tails"] += length - busy
        result.spent["storage"] += writing
        result.driver_s += max(1.0, length / (PUBLISH_S if setting.store else 1.0)) * setting.report_ms / 1000
        ends[worker] = now + length + writing
        heapq.heappush(free, (ends[worker], worker))
    result.wall_s = float(ends.max())
    result.spent["the end"] = float((ends.max() - ends).sum())
    return result


def finish_times(piece: list[float], batch: int) -> list[float]:
    """When each rollout of a piece is finished, in order: a row of the batch that ends takes the next one."""
    rows, done = [0.0] * min(batch, len(piece)), list[float]()
    for one in piece:
        done.append(heapq.heappop(rows) + one)
        heapq.heappush(rows, done[-1])
    return sorted(done)


def costs(setting: Setting, gpu_hour: float, terabyte_month: float, thousand_puts: float) -> list[str]:
    """What the rollouts of a setting cost, with prices as parameters."""
    tokens = setting.rollouts * setting.tokens
    gpu_s = tokens * setting.step_ms / 1000 / setting.batch
    rows = [f"{tokens / 1e9:,.2f} billion tokens, {gpu_s / 3600:,.0f} GPU hours, ${gpu_s / 3600 * gpu_hour:,.0f}"]
    for name, per_token in profiles(setting).items():
        size = tokens * per_token
        puts = tokens * setting.step_ms / 1000 / setting.batch / PUBLISH_S * setting.requests_per_shard
        rows.append(
            f"{name:<34} {size / 1e12:8.3f} TB  ${size / 1e12 * terabyte_month:8.2f} a month, "
            f"{puts:,.0f} puts ${puts / 1000 * thousand_puts:.2f}"
        )
    return rows


def profiles(setting: Setting, window: int = 16) -> dict[str, float]:
    """Bytes per token of a 48 x top-8 router by what is kept; ratios of compression as measured (docs/scale.md)."""
    ids, weights, tokens, logprobs = 48 * 8 * 2 / 2.27, 48 * 8 * 2 / 1.40, 4 / 2.2, (4 + 2 * 20) / 1.6
    share = window / setting.tokens
    return {
        "ids, weights, 20 logprobs": ids + weights + tokens + logprobs,
        "ids, weights": ids + weights + tokens,
        "ids": ids + tokens,
        f"ids, weights of a window of {window}": (ids + weights) * share + tokens,
    }


def measure(workers: int) -> None:
    """The rate of one worker and of many that wait, and what the driver and Ray cost per rollout."""
    import ray_cluster
    from radmoe.system.cluster import Crew
    from radmoe_integrations.on_ray import capture_on_ray

    rates, n, seconds = {}, 100, 0.1
    with ray_cluster.cluster(4, cpus=(workers + 3) // 4) as cluster, tempfile.TemporaryDirectory() as place:
        for count in (1, workers):
            began: list[tuple[float, int]] = []
            plan = partial(ray_cluster.make_plan, n * count, seconds, 2)
            crew = Crew(f"ray://{cluster.address}", count)

            def tell(now: object, began: list[tuple[float, int]] = began, count: int = count) -> None:
                if now.workers == count:  # type: ignore[attr-defined]
                    began.append((time.perf_counter(), now.rollouts))  # type: ignore[attr-defined]

            cpu = time.process_time()
            done = capture_on_ray(plan, Path(place) / str(count), crew, progress=tell)
            cpu = time.process_time() - cpu
            (start, before), (end, after) = began[0], began[-1]
            rates[count] = (after - before) / (end - start)
            print(
                f"{count} workers: {done.sampled} rollouts of {seconds} s, {rates[count]:.2f} a second once all are there "
                f"({rates[count] * seconds / count:.1%} of what waiting alone allows); driver {cpu / done.sampled * 1000:.2f} ms of CPU a rollout, "
                f"{(count / rates[count] - seconds) * 1000:.2f} ms of a worker's time beyond waiting"
            )
    print(f"{workers} workers reach {rates[workers] / rates[1]:.2f} times the rate of one")


def kills(minutes: float, every: float, store: bool, nodes: int = 4, seconds: float = 0.65) -> None:
    """Kill one worker every so many seconds, and compare the pool with an undisturbed one, to the last bit.

    Into a store (SeaweedFS on this machine) it is stopped for 20 s twice as well, after a fourth and a half of the time.
    """
    import ray_cluster
    from radmoe.capture import capture_pool
    from radmoe.pool import open_pool
    from radmoe.system.cluster import Crew
    from radmoe_integrations.on_ray import capture_on_ray

    n = max(int(minutes * 60 * nodes / seconds / 12), 1)
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        alone, shared = Path(place) / "alone", str(Path(place) / "shared")
        capture_pool(ray_cluster.make_plan(n), alone)
        outages: list[threading.Timer] = []
        if store:
            from seaweed import SeaweedFS

            (Path(place) / "weed").mkdir()
            server, shared = SeaweedFS(Path(place) / "weed"), "s3://pools/shared"
            running.callback(server.stop)
            os.environ.update(server.environment | {"RADMOE_SPOOL": f"{place}/unsent"})

            def away() -> None:
                server.stop()
                time.sleep(20)
                server.start()

            outages = [threading.Timer(part * minutes * 60, away) for part in (0.25, 0.5)]
        with ray_cluster.cluster(nodes) as cluster, ray_cluster.Killer(every=every) as killer:
            crew = Crew(f"ray://{cluster.address}", nodes)
            for outage in outages:
                outage.start()
            done = capture_on_ray(partial(ray_cluster.make_plan, n, seconds), shared, crew)
        for outage in outages:
            outage.join()
        same = ray_cluster.content(alone) == ray_cluster.content(shared)
        print(f"{killer.killed} workers killed in {done.seconds:.0f} s; {done}; given up: {done.given_up or 'none'}")
        print(f"the store was stopped {len(outages)} times for 20 s")
        print(f"{len(open_pool(shared).verify())} faults; equal to the undisturbed pool: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--measure", type=int, metavar="WORKERS", help="measure on a Ray cluster here")
    parser.add_argument("--kills", type=float, metavar="MINUTES", help="kill a worker again and again for so long")
    parser.add_argument("--every", type=float, default=20.0, help="with --kills: seconds between two")
    parser.add_argument(
        "--store", action="store_true", help="with --kills: into a store that is stopped for 20 s twice"
    )
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=float, default=2_000)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--gpu-hour", type=float, default=3.0, help="dollars")
    parser.add_argument("--terabyte-month", type=float, default=23.0, help="dollars")
    parser.add_argument("--thousand-puts", type=float, default=0.005, help="dollars")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
    if given.kills:
        kills(given.kills, given.every, given.store)
    if given.measure or given.kills:
        return
    base = Setting(rollouts=given.rollouts, tokens=given.tokens, step_ms=given.step_ms, batch=given.batch)
    print("\n".join(costs(base, given.gpu_hour, given.terabyte_month, given.thousand_puts)))
    print(
        f"\n{'workers':>7} {'to':>5} {'hours':>7} {'lost':>5} {'pieces':>7}  "
        + "  ".join(f"{p:>11}" for p in PARTS)
        + "  driver busy"
    )
    for workers in (10, 100, 1000):
        for store in (False, True):
            made = simulate(replace(base, workers=workers, store=store))
            whole = made.wall_s * workers
            shares = "  ".join(f"{made.spent[part] / whole:>11.1%}" for part in PARTS)
            print(
                f"{workers:>7} {'store' if store else 'disk':>5} {made.wall_s / 3600:>7.1f} {made.lost:>5} {made.pieces:>7}  {shares}"
                f"  {made.driver_s / made.wall_s:>10.1%}"
            )


if __name__ == "__main__":
    main()
