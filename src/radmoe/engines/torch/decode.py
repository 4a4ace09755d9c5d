"""The batch that samples: its rows step together, and each starts and finishes on its own.

A row begins with the cache of its prompt without the last token, and feeds that token as its first step. So every
sampled token, the first included, comes out of a batched pass of one position per row, and the routing of that pass is
R(t) of the token it predicts (row P-1+t of the whole sequence).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import DynamicCache

from radmoe.engines.base import Job, uniforms
from radmoe.engines.torch.kv_cache import rows_cache
from radmoe.engines.torch.routers import RouterRecorder
from radmoe.engines.torch.topk import largest

GIVEN_UP = "given up"  # the reason of a job that ended because nobody waits for it any more
BLOCK = 64  # steps recorded before each row is handed its part
_SHRINK = 8  # drop empty rows once they are an eighth of the batch: it copies the cache
_ROW_TENSORS = ("_token", "_length", "_count", "_limit", "_noise", "_temperature", "_top_p")

Columns = tuple[NDArray[Any], ...]
Stopped = Callable[[], bool]  # says whether to stop, and is asked often


class Queue(Protocol):
    """Where a decoder gets its jobs from."""

    def take(self, most: int, *, idle: bool) -> list[Job]:
        """Up to `most` jobs. For an `idle` decoder this may wait; the decoder ends if it gets none."""

    def waiting(self) -> bool:
        """Whether there are jobs to take, so that a batch with empty rows looks for them before its next step."""

    def given_up(self) -> Collection[int]:
        """The numbers (`Job.prompt_index`) of jobs that nobody waits for any more: they end at the next step."""
        return ()

    def failed(self, job: Job, error: Exception) -> None:
        """Note a job that could not be begun; the others go on unless this raises, as it does by default."""
        raise error


class Listed(Queue):
    """Jobs that are known from the start. Rows that finish take the next ones."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)

    def take(self, most: int, *, idle: bool) -> list[Job]:
        return list(islice(self._jobs, most))

    def waiting(self) -> bool:
        return False


class FinishedJob(NamedTuple):
    """A sampled job: token ids [T], then (with capture) expert ids and weights [T, L, K], logprobs [T] and [T, C]."""

    job: Job
    columns: Columns
    reason: str


@dataclass
class _Row:
    job: Job
    since: int  # the step of the current block it joined at
    parts: list[Columns] = field(default_factory=list)


class Decoding(NamedTuple):
    """What the jobs of a decoder have in common."""

    topk_logprobs: int
    eos: frozenset[int]
    words: int  # logits from here on pad the matrix: there is no such token
    capture: bool = True  # False keeps the tokens only, which serves to measure what capture costs


class Decoder:
    """Samples jobs `batch_size` at a time; a finished row is refilled before the next step.

    Jobs of one batch may be sampled differently, but all have the same number of logprobs.
    """

    def __init__(self, model: Any, recorder: RouterRecorder, how: Decoding) -> None:
        self._model, self._recorder, self._top, self._capture = model, recorder, how.topk_logprobs, how.capture
        self._device = model.device
        self._eos = torch.tensor(sorted(how.eos), dtype=torch.long, device=self._device)
        self._words = how.words
        self._prefilled: tuple[tuple[int, ...], Any] | None = None
        self._block: tuple[Tensor, ...] = ()
        self._at = 0  # next step of the block
        self._rows: list[_Row | None] = []
        self.sampled = 0  # tokens so far

    def run(self, jobs: Queue, batch_size: int, stopped: Stopped = lambda: False) -> Generator[FinishedJob, None, None]:
        """Yield the jobs in the order in which they finish; the reason is "stop", "length" or GIVEN_UP.

        `stopped` is asked at every step; once it returns True, the rollouts under way are given up and the iterator
        ends.
        """
        self._rows = []
        while not stopped():
            live = sum(state is not None for state in self._rows)
            started = jobs.take(batch_size - live, idle=not live)
            if started:
                for job, error in self._start(self._free_rows(len(started), empty=not live), started):
                    jobs.failed(job, error)
            elif not live:
                return
            live = sum(state is not None for state in self._rows)
            if not live:
                continue  # none of them could be begun
            self._settle()
            room = live < batch_size
            waiting = jobs.waiting if room else lambda: False
            for row, reason in self._until_some_finish(stopped, waiting, jobs.given_up):
                yield self._finish(row, reason)

    @torch.inference_mode()
    def _free_rows(self, wanted: int, *, empty: bool) -> list[int]:
        """Rows for new jobs: the empty ones first, then new rows if these are too few."""
        if empty:
            new = torch.zeros(wanted, dtype=torch.long, device=self._device)
            self._rows, self._block, self._at = [None] * wanted, (), 0
            self._token, self._length, self._count, self._limit = new, new.clone(), new.clone(), new.clone()
            self._temperature, self._top_p = new[:, None].float(), new[:, None].double()
            self._noise = torch.zeros(wanted, 0, dtype=torch.float64, device=self._device)
            self._cache = rows_cache(self._model.config)
            return list(range(wanted))
        free = [row for row, state in enumerate(self._rows) if state is None][:wanted]
        if len(free) < wanted:
            more = wanted - len(free)
            old = len(self._rows)
            self._select([*range(old), *[0] * more])  # copies of row 0, until jobs are put there
            self._rows += [None] * more
            self._length[old:] = 0
            free += range(old, old + more)
        return free

    def _select(self, rows: list[int]) -> None:
        """Reduce the batch to these rows. The block is flushed first."""
        self._flush()
        self._block = ()
        index = torch.tensor(rows, device=self._device)
        for layer in self._cache.layers:
            layer.keep(index)
        for name in _ROW_TENSORS:
            setattr(self, name, getattr(self, name)[index])

    @torch.inference_mode()
    def _start(self, rows: Sequence[int], jobs: Sequence[Job]) -> list[tuple[Job, Exception]]:
        """Begin the jobs in empty rows, those of one prompt together; returns those that cannot be begun, whose rows stay empty."""
        failed: list[tuple[Job, Exception]] = []
        places = zip(rows, jobs, strict=False)
        for prompt, group in groupby(places, key=lambda place: place[1].prompt):
            started = list(group)
            try:
                at = torch.tensor([row for row, _ in started], device=self._device)
                source = self._prefill(prompt[:-1])
                for i, layer in enumerate(self._cache.layers):
                    layer.put(at, len(self._rows), None if source is None else source.layers[i])
                self._token[at], self._length[at], self._count[at] = prompt[-1], len(prompt) - 1, 0
            except Exception as error:
                failed += [(job, error) for _, job in started]
                for row, _ in started:
                    self._length[row] = 0
                continue
            for row, job in started:
                try:
                    self._begin(row, job)
                except Exception as error:
                    failed.append((job, error))
                    self._length[row] = 0
        return failed

    def _begin(self, row: int, job: Job) -> None:
        """Set what is a row's own, once the cache of its prompt is there."""
        self._widen(job.limit)
        noise = uniforms(job.sampling.seed, job.key, job.rollout_index, job.limit)
        self._noise[row, : job.limit] = torch.from_numpy(noise)
        self._limit[row] = job.limit
        self._temperature[row], self._top_p[row] = job.sampling.temperature, job.sampling.top_p
        self._rows[row] = _Row(job, self._at)

    def _widen(self, steps: int) -> None:
        """Make room for the random numbers of this many steps."""
        if (missing := steps - self._noise.shape[1]) > 0:
            self._noise = torch.nn.functional.pad(self._noise, (0, missing))

    def _prefill(self, tokens: tuple[int, ...]) -> Any:
        """The cache of a prompt. Only the latest is kept, as rollouts of one prompt start one after another."""
        if not tokens:
            return None
        if self._prefilled is None or self._prefilled[0] != tokens:
            self._prefilled = None  # free it before the next is made
            cache = DynamicCache(config=self._model.config)
            ids = torch.tensor([tokens], device=self._device)
            self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            self._prefilled = tokens, cache
        return self._prefilled[1]

    @torch.inference_mode()
    def _settle(self) -> None:
        """Drop empty rows, and columns that no row uses; called after rows came or went."""
        empty = sum(state is None for state in self._rows)
        if empty and empty * _SHRINK >= len(self._rows):
            live = [row for row, state in enumerate(self._rows) if state is not None]
            self._select(live)
            self._rows = [self._rows[row] for row in live]
        self._columns = int(self._length.max())
        for layer in self._cache.layers:
            layer.trim(self._columns)
        unused = self._columns - self._length  # stays as it is until rows come or go: all grow by one
        self._unused = unused[:, None] if bool(unused.any()) else None

    @torch.inference_mode()
    def _until_some_finish(
        self, stopped: Stopped, waiting: Callable[[], bool], given_up: Callable[[], Collection[int]]
    ) -> list[tuple[int, str]]:
        """Step until some rows finish; returns these rows, each with its reason.

        Returns none if told to stop, or, after a step at least, if jobs are waiting for the batch's empty rows.
        """
        while not stopped():
            self._step()
            at_end = torch.isin(self._token, self._eos)
            done = (at_end | (self._count >= self._limit)).nonzero()[:, 0].tolist()
            ended = [(row, "stop" if at_end[row] else "length") for row in done if self._rows[row] is not None]
            if gone := given_up():
                rows = [row for row, state in enumerate(self._rows) if state and state.job.prompt_index in gone]
                ended += [(row, GIVEN_UP) for row in rows if row not in dict(ended)]
            if self._at == BLOCK:
                self._flush()
            if ended or waiting():
                return ended
        return []

    def _step(self) -> None:
        """Run one pass over the batch, record its routing and logits, and sample a token for every row."""
        mask = None
        if self._unused is not None:
            mask = torch.arange(self._columns + 1, device=self._device) >= self._unused
        inputs = {"input_ids": self._token[:, None], "position_ids": self._length[:, None], "attention_mask": mask}
        if self._capture:
            with self._recorder.recording():
                output = self._model(**inputs, past_key_values=self._cache, use_cache=True)
        else:
            output = self._model(**inputs, past_key_values=self._cache, use_cache=True)
        logits = output.logits[:, -1].float()
        chance = self._noise.gather(1, self._count.clamp(max=self._noise.shape[1] - 1)[:, None])  # empty rows count on
        self._token = sample(logits[:, : self._words], chance, self._temperature, self._top_p)
        self._write(logits)
        self._length += 1
        self._count += 1
        self._columns += 1
        self.sampled += sum(state is not None for state in self._rows)

    def _write(self, logits: Tensor) -> None:
        """Write this step into the block, [B, ...] per column."""
        line = [(self._token, torch.int32)]
        if self._capture:
            ids, weights = self._recorder.take()
            line += [(ids.transpose(0, 1), torch.int16), (weights.transpose(0, 1), torch.float16)]
            if self._top:
                whole = logits.logsumexp(-1, keepdim=True)  # log_softmax, only where it is asked for
                line.append(((logits.gather(1, self._token[:, None]) - whole)[:, 0], torch.float32))
                most = min(self._top, logits.shape[1])
                line.append((largest(logits, most) - whole, torch.float32))
        if not self._block:
            self._block = tuple(torch.empty((BLOCK, *x.shape), dtype=kind, device=self._device) for x, kind in line)
        for column, (x, _) in zip(self._block, line, strict=True):
            column[self._at] = x
        self._at += 1

    def _flush(self) -> None:
        """Give each row its part of the block, and begin a new block."""
        columns = [column[: self._at].cpu().numpy() for column in self._block]
        for row, state in enumerate(self._rows):
            if state is not None:
                if state.since < self._at:
                    state.parts.append(tuple(c[state.since :, row].copy() for c in columns))
                state.since = 0
        self._at = 0

    @torch.inference_mode()
    def _finish(self, row: int, reason: str) -> FinishedJob:
        state = self._rows[row]
        assert state is not None
        if state.since < self._at:
            state.parts.append(tuple(c[state.since : self._at, row].cpu().numpy() for c in self._block))
        self._rows[row] = None
        self._length[row] = 0  # an empty row sees only itself, until it is refilled or dropped
        return FinishedJob(state.job, tuple(np.concatenate(parts) for parts in zip(*state.parts, strict=True)), reason)


def sample(logits: Tensor, chance: Tensor, temperature: Tensor, top_p: Tensor) -> Tensor:
    """Tokens [B] from logits [B, V] and one uniform number, temperature and top-p per row [B, 1] each.

    Temperature 0 takes the largest. The number marks a place on the cumulative distribution, which is summed in float64.
    So a token follows from its own row's logits and number, whatever else is in the batch.
    """
    greedy = temperature == 0
    if bool(greedy.all()):
        return logits.argmax(-1)
    cut = bool((top_p < 1).any())
    return draw(logits, chance, temperature, top_p, greedy=bool(greedy.any()), cut=cut)


def draw(logits: Tensor, chance: Tensor, temperature: Tensor, top_p: Tensor, *, greedy: bool, cut: bool) -> Tensor:
    """`sample` for a GPU: the caller says whether rows have temperature 0 or top-p below 1, so that no value is read back."""
    zero = temperature == 0
    probs = (logits / temperature.masked_fill(zero, 1.0)).softmax(-1)
    token = _at(probs, chance)
    if cut:
        falling, order = probs.sort(dim=-1, descending=True, stable=True)
        before = falling.cumsum(-1, dtype=torch.float64) - falling
        nucleus = order.gather(1, _at(falling.masked_fill(before >= top_p, 0.0), chance))
        token = torch.where(top_p < 1, nucleus, token)
    if greedy:
        token = torch.where(zero, logits.argmax(-1, keepdim=True), token)
    return token[:, 0]


def _at(probs: Tensor, chance: Tensor) -> Tensor:
    """The index [B, 1] at which the cumulative distribution of each row passes its number."""
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(cumulative, chance * cumulative[:, -1:], right=True).clamp(max=probs.shape[1] - 1)
