"""The batch that samples on a GPU: thousands of rows of fixed size, whose step is one CUDA graph.

A step of a small model is some hundred kernels, which take less time to run than to launch. A graph launches them at
once. So nothing in a step may depend on what the CPU knows: every row writes to its own place in the cache and in the
columns, and rows that have ended keep computing, but their results are ignored. Every few steps the CPU finds the rows
that have ended, takes what they have recorded, and starts new rollouts in their places. The next steps already run
while it hands the finished rollouts over.

The random numbers are those of `decode`, so a rollout is the same as on a CPU up to rounding. On a CPU the same code
runs without a graph, which serves tests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radmoe.engines.base import Job, uniforms
from radmoe.engines.torch.decode import Columns, Decoding, FinishedJob, Queue, Stopped, draw
from radmoe.engines.torch.routers import RouterRecorder
from radmoe.engines.torch.topk import largest
from radmoe_lab.inference.static_cache import StaticRows

FAMILIES = frozenset({"qwen3_moe", "qwen3_next", "gpt_oss"})  # whose experts and masks are known to fit
_STEPS = 16  # between two looks at which rows have ended
_REFILL = 16  # begin new rows once a sixteenth of them are empty: their prompts share a pass
_COLUMNS = 64  # a graph looks at a multiple of so many columns
_CAPACITY = 256  # memory is held for a multiple of so many positions


class StaticDecoder:
    """Samples jobs as `Decoder` does, `batch_size` at a time, with everything of a batch in tensors of fixed size.

    These tensors and the graphs are kept for the next run of as many rows.
    """

    def __init__(self, model: Any, recorder: RouterRecorder, how: Decoding) -> None:
        self._model, self._recorder, self._top, self._capture = model, recorder, how.topk_logprobs, how.capture
        self._device = model.device
        self._eos = torch.tensor(sorted(how.eos), dtype=torch.long, device=self._device)
        self._ends = how.eos
        self._words = how.words
        self._jobs: list[Job | None] = []
        self._counts: list[int] = []  # tokens of every row, as far as the CPU knows
        self._ended = 0  # tokens of rollouts that have ended
        if self._device.type == "cuda":
            self._copies = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.sampled = 0

    def run(self, jobs: Queue, batch_size: int, stopped: Stopped = lambda: False) -> Generator[FinishedJob, None, None]:
        """Yield the jobs as they finish; `stopped` is asked every few steps."""
        self._empty(batch_size)
        ready: Iterator[FinishedJob] = iter(())
        while not stopped():
            empty = [row for row, job in enumerate(self._jobs) if job is None]
            idle = len(empty) == batch_size
            if idle:
                yield from ready
            if empty and (idle or jobs.waiting() or len(empty) * _REFILL >= batch_size):
                if started := jobs.take(len(empty), idle=idle):
                    for job, error in self._start(empty[: len(started)], started):
                        jobs.failed(job, error)
                elif idle:
                    return
                if all(job is None for job in self._jobs):
                    continue  # none of them could be begun
            self._launch()
            yield from ready  # while the steps run
            ready = self._harvest()

    @torch.inference_mode()
    def _empty(self, rows: int) -> None:
        """Start a run with this many empty rows; an earlier run may have been abandoned."""
        if len(self._jobs) != rows:
            self._allocate(rows, 0, 0)
        self._live.zero_()
        self._jobs, self._counts = [None] * rows, [0] * rows
        self._ended = self.sampled = 0

    @torch.inference_mode()
    def _allocate(self, rows: int, capacity: int, limit: int) -> None:
        """Allocate tensors for `rows` rows and their positions, of which `limit` are sampled. The rows' contents are
        lost.
        """
        new = torch.zeros(rows, dtype=torch.long, device=self._device)
        self._graphs: dict[tuple[int, bool, bool], Any] = {}
        self._capacity, self._most = capacity, limit
        self._rows = torch.arange(rows, device=self._device)
        self._token, self._count, self._limit = new, new.clone(), new.clone()
        self._live = torch.zeros(rows, dtype=torch.bool, device=self._device)
        self._temperature, self._top_p = new[:, None].float() + 1.0, new[:, None].double() + 1.0
        self._noise = torch.zeros(rows, max(limit, 1), dtype=torch.float64, device=self._device)
        self._columns: list[Tensor] = []
        if capacity:
            self._cache = StaticRows(self._model, rows, capacity)

    def _start(self, rows: Sequence[int], jobs: Sequence[Job]) -> list[tuple[Job, Exception]]:
        """Start jobs in empty rows. Returns those that cannot be started, whose rows stay empty.

        All are started together or, if that fails, one after the other.
        """
        try:
            self._begin(rows, jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [(jobs[0], error)]
            return [failed for row, job in zip(rows, jobs, strict=True) for failed in self._start([row], [job])]
        return []

    @torch.inference_mode()
    def _begin(self, rows: Sequence[int], jobs: Sequence[Job]) -> None:
        capacity = max(len(job.prompt) + job.limit for job in jobs)
        limit = max(job.limit for job in jobs)
        if capacity > self._capacity or limit > self._most:
            self._grow(capacity, limit)
        self._cache.begin(rows, [job.prompt[:-1] for job in jobs])
        at = torch.tensor(rows, device=self._device)
        noise = np.zeros((len(jobs), self._most))
        for i, job in enumerate(jobs):
            noise[i, : job.limit] = uniforms(job.sampling.seed, job.key, job.rollout_index, job.limit)
        self._noise[at] = self._tensor(noise)
        self._token[at] = self._tensor([job.prompt[-1] for job in jobs])
        self._count[at] = 0
        self._limit[at] = self._tensor([job.limit for job in jobs])
        self._temperature[at, 0] = self._tensor([float(job.sampling.temperature) for job in jobs]).float()
        self._top_p[at, 0] = self._tensor([float(job.sampling.top_p) for job in jobs]).double()
        self._live[at] = True  # last: a row counts from here on
        for row, job in zip(rows, jobs, strict=True):
            self._jobs[row], self._counts[row] = job, 0

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values).to(self._device)

    def _grow(self, capacity: int, limit: int) -> None:
        """Grow the tensors for longer rows. Running rows keep their contents, even if there is not enough memory to
        grow.
        """
        old = dict(vars(self))
        try:
            capacity = -(-max(capacity, self._capacity) // _CAPACITY) * _CAPACITY
            self._allocate(len(self._jobs), capacity, max(limit, self._most))
            if any(job is not None for job in self._jobs):
                for name in ("_token", "_count", "_limit", "_live", "_temperature", "_top_p"):
                    getattr(self, name).copy_(old[name])
                self._noise[:, : old["_noise"].shape[1]] = old["_noise"]
                self._cache.copy(old["_cache"])
                self._columns = [self._wider(column) for column in old["_columns"]]
        except Exception:
            vars(self).update(old)
            raise

    def _wider(self, column: Tensor) -> Tensor:
        wide = column.new_zeros((column.shape[0], self._most + 1, *column.shape[2:]))
        wide[:, : column.shape[1] - 1] = column[:, :-1]
        return wide

    @torch.inference_mode()
    def _launch(self) -> None:
        """Launch several steps of the batch. On a GPU they run asynchronously."""
        running = [job for job in self._jobs if job is not None]
        lengths = (len(job.prompt) + n for job, n in zip(self._jobs, self._counts, strict=True) if job is not None)
        longest = max(lengths) + _STEPS
        columns = min(-(-longest // _COLUMNS) * _COLUMNS, self._capacity)
        greedy = any(job.sampling.temperature == 0 for job in running)
        cut = any(job.sampling.top_p < 1 for job in running)
        step = self._recorded(columns, greedy, cut)
        for _ in range(_STEPS):
            step()

    def _recorded(self, columns: int, greedy: bool, cut: bool) -> Any:
        """Return a function that runs one step; on a GPU it replays a CUDA graph, which is recorded on first use."""

        def step() -> None:
            self._cache.places.columns = columns
            self._step(greedy, cut)

        if self._device.type != "cuda":
            return step
        key = (columns, greedy, cut)
        if key not in self._graphs:
            self._graphs[key] = self._record(step)
        return self._graphs[key].replay

    def _record(self, step: Any) -> Any:
        """Record a step as a CUDA graph. The step runs once before, as recording requires, with no live rows."""
        live, states = self._live.clone(), [state.clone() for state in self._cache.states()]
        self._live.zero_()
        torch.cuda.synchronize()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        self._live.copy_(live)
        for state, before in zip(self._cache.states(), states, strict=True):
            state.copy_(before)
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step()
        return graph

    def _step(self, greedy: bool, cut: bool) -> None:
        """Run one pass over the batch: record routing and logits, and sample a token for every live row."""
        places = self._cache.places
        inputs = {
            "input_ids": self._token[:, None],
            "position_ids": places.length[:, None],
            "attention_mask": self._cache.mask(),
        }
        with self._recorder.recording() if self._capture else nullcontext():
            output = self._model(**inputs, past_key_values=self._cache.cache, use_cache=True)
        logits = output.logits[:, -1].float()
        chance = self._noise.gather(1, self._count.clamp(max=self._noise.shape[1] - 1)[:, None])
        token = draw(logits[:, : self._words], chance, self._temperature, self._top_p, greedy=greedy, cut=cut)
        self._write(token, logits)
        self._token.copy_(torch.where(self._live, token, self._token))
        self._count += self._live
        places.length += self._live
        ended = (token[:, None] == self._eos).any(1) | (self._count >= self._limit)
        self._live &= ~ended

    def _write(self, token: Tensor, logits: Tensor) -> None:
        """Write this step into every row's columns, [B, T + 1, ...]. Rows that are not live write into the last column."""
        line = [(token, torch.int32)]
        if self._capture:
            ids, weights = self._recorder.take()
            line += [(ids.transpose(0, 1), torch.int16), (weights.transpose(0, 1), torch.float16)]
            if self._top:
                whole = logits.logsumexp(-1, keepdim=True)
                line.append(((logits.gather(1, token[:, None]) - whole)[:, 0], torch.float32))
                line.append((largest(logits, min(self._top, logits.shape[1])) - whole, torch.float32))
        if not self._columns:
            shape = (len(self._rows), self._most + 1)
            self._columns = [x.new_zeros((*shape, *x.shape[1:]), dtype=kind) for x, kind in line]
        slot = torch.where(self._live, self._count, self._most)
        for column, (x, kind) in zip(self._columns, line, strict=True):
            column[self._rows, slot] = x.to(kind)

    @torch.inference_mode()
    def _harvest(self) -> Iterator[FinishedJob]:
        """Wait for the steps and collect the recordings of rows that have ended, which become empty."""
        live, self._counts = self._live.tolist(), self._count.tolist()
        self.sampled = self._ended + sum(n for job, n in zip(self._jobs, self._counts, strict=True) if job is not None)
        rows = [row for row, job in enumerate(self._jobs) if job is not None and not live[row]]
        ended = [(job, self._counts[row]) for row in rows if (job := self._jobs[row]) is not None]
        for row in rows:
            self._jobs[row] = None
        self._ended += sum(count for _, count in ended)
        return self._split(ended, self._copied(rows, [count for _, count in ended])) if rows else iter(())

    def _copied(self, rows: Sequence[int], counts: Sequence[int]) -> Callable[[], list[NDArray[Any]]]:
        """Copy the recordings of rows, one row's steps after the other's. Call the result to get them on the CPU.

        On a GPU the rows are free at once, and the copy to the CPU runs beside the next steps.
        """
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        at = self._tensor(np.repeat(rows, counts)), self._tensor(np.arange(len(starts)) - starts)
        taken = [column[at] for column in self._columns]
        if self._device.type != "cuda":
            return lambda: [x.numpy() for x in taken]
        self._copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._copies):
            copies = [torch.empty_like(x, device="cpu", pin_memory=True).copy_(x, non_blocking=True) for x in taken]
            done = self._copies.record_event()

        def wait() -> list[NDArray[Any]]:
            done.synchronize()
            taken.clear()  # kept until here, since the other stream reads it
            return [x.numpy() for x in copies]

        return wait

    def _split(
        self, ended: Sequence[tuple[Job, int]], copied: Callable[[], list[NDArray[Any]]]
    ) -> Iterator[FinishedJob]:
        columns, start = copied(), 0
        for job, count in ended:
            own: Columns = tuple(column[start : start + count].copy() for column in columns)
            start += count
            yield FinishedJob(job, own, "stop" if int(own[0][-1]) in self._ends else "length")
