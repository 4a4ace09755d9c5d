"""Measures what it costs to select one patch per issue from a pool that keeps the rows of boundaries alone.

`python -m benchmarks.agents` plants 500 issues x 16 trajectories of 1 to 166 boundaries on Qwen3.6-35B-A3B's router
(40x256 top-8), as the paper has them, with patches of 10 to 120 lines, and times `decide_all` and writing the page, which is all that
`radmoe agent select` does. On a busy machine the seconds of CPU say more than those of the clock.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from radmoe.pool import PoolWriter, Profile
from radmoe.types import Rollout, RouterShape, Step
from radmoe_agent.candidates import POOL, Candidate, write_candidates
from radmoe_agent.page import PAGE, write_page
from radmoe_agent.patches import decide_all, record
from radmoe_lab import planted

SHAPE = RouterShape(40, 256, 8)
BOUNDARIES = 166
STEP_TOKENS = (40, 200)
PATCH_LINES = (10, 121)


def write(out: Path, issues: int, n: int, seed: int = 0) -> int:
    """Plant a pool of trajectories and their candidates; returns the number of boundaries."""
    rng, vocab = np.random.default_rng(seed), planted.vocab()
    boundary = vocab.added["</think>"]
    plain = np.array([token for token in range(200) if token not in vocab.added.values()])
    favourites = np.argsort(rng.random((64, SHAPE.layers, SHAPE.experts)), axis=-1)[..., : SHAPE.top_k].astype(np.int16)
    total, candidates = 0, []
    with PoolWriter(
        out / POOL, shape=SHAPE, vocab=vocab, model="planted", profile=Profile(True, None, ("boundary@union",))
    ) as writer:
        for issue in range(issues):
            for run in range(n):
                count = int(rng.integers(1, BOUNDARIES + 1))
                lengths = rng.integers(*STEP_TOKENS, count)
                ends = np.cumsum(lengths)
                tokens = plain[rng.integers(0, len(plain), int(ends[-1]))].astype(np.int32)
                at = (ends - lengths // 3).astype(np.int32)
                tokens[at] = boundary
                ids = favourites[rng.integers(0, len(favourites), count)]
                ids = (ids + rng.integers(0, 4, ids.shape, dtype=np.int16)) % SHAPE.experts
                steps = tuple(Step((1, 2, 3), int(end - length)) for end, length in zip(ends, lengths, strict=True))
                name, total = f"issue-{issue:04d}", total + count
                writer.add(
                    name, Rollout(tokens, ids, positions=at, steps=steps), kind="agent", rollout_index=run, text="+1"
                )
                candidates.append(Candidate(name, run, "Submitted", _patch(rng), "planted"))
    write_candidates(out, candidates)
    return total


def _patch(rng: np.random.Generator) -> str:
    """A patch whose lines other patches have too, as those of one issue do."""
    lines = rng.integers(0, 400, int(rng.integers(*PATCH_LINES)))
    return "--- a/f.py\n+++ b/f.py\n" + "".join(f"+    name_{n} = call_{n % 37}(value_{n % 11}, {n})\n" for n in lines)


class _Clock:
    """Seconds since it was made, as text."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._began:.1f} s ({time.process_time() - self._cpu:.1f} s of CPU)"


def measure(issues: int, n: int, threads: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        clock = _Clock()
        boundaries = write(out, issues, n)
        planted_in = str(clock)
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        print(
            f"{issues} issues x {n} trajectories, {boundaries:,} boundaries, {size / 1e6:,.0f} MB, planted in {planted_in}"
        )
        list(decide_all(out, limit=2))  # loads compiled code
        for number in sorted({1, threads}):
            clock = _Clock()
            made = list(decide_all(out, threads=number))
            print(f"{number} threads: {clock}")
        clock = _Clock()
        write_page(out, list(map(record, made)), out / PAGE)
        print(f"the page: {clock}, {(out / PAGE).stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--issues", type=int, default=500)
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    measure(given.issues, given.n, given.threads)


if __name__ == "__main__":
    main()
