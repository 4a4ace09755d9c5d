"""The engine of the lab's models: transformers, tuned for hidden sizes up to 512."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.engines.base import Completion, Forced, Job
from radmoe.engines.torch.decode import Decoder, Listed
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.engines.torch.force import force
from radmoe.errors import InputError
from radmoe_lab.inference.cores import cores
from radmoe_lab.inference.delta_step import speed_up
from radmoe_lab.inference.dense_experts import compute_densely
from radmoe_lab.inference.static_decode import FAMILIES, StaticDecoder
from radmoe_lab.inference.streams import merge

if TYPE_CHECKING:
    from radmoe.pool import Profile

_SMALL = 512  # hidden size up to which a pass is too short to share among cores
_MOST_STREAMS = 4  # more would wait for Python's lock


class LabEngine(TransformersEngine):
    """`TransformersEngine` for small models: fused experts and several batches on a CPU, CUDA graphs on a GPU.

    A larger model is run as `TransformersEngine` runs it. Pools record it as transformers, which computes all but the experts
    and the order of the sums. `streams` is the number of batches that run side by side (default: on a CPU as many as threads, up
    to four, and one otherwise).
    """

    def __init__(self, model: str | Path | Any, *, streams: int | None = None, **options: Any) -> None:
        if streams is not None and streams < 1:
            raise InputError(f"streams must be at least 1, got {streams}")
        self._wanted_streams = streams
        super().__init__(model, **options)

    def _tune(self) -> None:
        speed_up(self.model)
        small = self._text_config.hidden_size <= _SMALL
        self._small_on_cpu = small and self.model.device.type == "cpu"
        self._static = small and self.model.device.type == "cuda" and self._text_config.model_type in FAMILIES
        self._kept: dict[tuple[int, bool], StaticDecoder] = {}
        if self._static:
            compute_densely(self.model)

    def _settle(self, threads: int | None) -> None:
        threads = threads or cores.whole
        self.streams = self._wanted_streams or (min(threads, _MOST_STREAMS) if self._small_on_cpu else 1)
        cores.divide(threads, self.streams)
        if self._small_on_cpu:
            from radmoe_lab.inference.cpu_experts import fuse_experts  # compiled code that a GPU has no use for

            _lay_out_experts(self.model)
            fuse_experts(self.model)

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs as `TransformersEngine.run` does, in streams side by side."""
        # On a GPU, prompts that share a pass are padded little.
        ordered = sorted(jobs, key=lambda job: -len(job.prompt)) if self._static else list(jobs)
        rows = min(batch_size, max(len(jobs), 1))
        streams = min(self.streams, rows)
        topk_logprobs = jobs[0].sampling.topk_logprobs if jobs else 0
        self._decoders = [self.decoder(topk_logprobs, capture=self.capture) for _ in range(streams)]
        # A job's stream follows from its place alone, so that batches, and their rounding, are the same every time.
        running = [
            partial(decoder.run, Listed(ordered[k::streams]), len(range(k, rows, streams)))
            for k, decoder in enumerate(self._decoders)
        ]
        return self._completions(merge(running), batch_size)

    def decoder(self, topk_logprobs: int, *, capture: bool = True) -> Decoder | StaticDecoder:  # type: ignore[override]
        """Return a batch decoder for a thread of its own. On a GPU one decoder is kept, with its CUDA graph."""
        if not self._static:
            return super().decoder(topk_logprobs, capture=capture)
        name = topk_logprobs, capture
        if name not in self._kept:
            self._kept[name] = StaticDecoder(self.model, self._recorder, self._decoding(topk_logprobs, capture))
        return self._kept[name]

    @property
    def _force(self) -> Callable[..., list[Forced]]:
        return self._tree_pass or force

    @cached_property
    def _tree_pass(self) -> Callable[..., list[Forced]] | None:
        """Return the pass over a tree of continuations, which small models have on a CPU; None for others."""
        if not self._small_on_cpu:
            return None
        from radmoe_lab.inference.force_tree import force_tree, knows_trees

        return force_tree if knows_trees(self.model, self._recorder) else None


def _lay_out_experts(model: Any) -> None:
    """Keep stacks of expert weights [E, out, in] in memory as [E, in, out]; values and shapes stay the same.

    Multiplying a few rows by such a matrix then takes 0.4 to 0.6 of the time on CPU, where experts are half of a pass.
    """
    for module in model.modules():
        if getattr(module, "is_transposed", None) is False:  # set by transformers on every class of experts
            for parameter in module.parameters(recurse=False):
                if parameter.ndim == 3:
                    parameter.data = parameter.data.transpose(1, 2).contiguous().transpose(1, 2)
