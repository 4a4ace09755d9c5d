"""The engine of the lab's models: transformers, tuned for hidden sizes up to 512."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from radmoe.engines.base import Forced, Job
from radmoe.engines.torch.decode import Decoder
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.engines.torch.force import force
from radmoe_lab.inference.dense_experts import compute_densely
from radmoe_lab.inference.static_decode import FAMILIES, StaticDecoder

_SMALL = 512  # hidden size up to which a pass is too short to share among cores
_MOST_STREAMS = 4  # more would wait for Python's lock


class LabEngine(TransformersEngine):
    """`TransformersEngine` for small models: fused experts and several batches on a CPU, CUDA graphs on a GPU.

    A larger model is run as `TransformersEngine` runs it. Pools record it as transformers, which computes all but the experts
    and the order of the sums.
    """

    def _tune(self) -> None:
        small = self._text_config.hidden_size <= _SMALL
        self._small_on_cpu = small and self.model.device.type == "cpu"
        self._static = small and self.model.device.type == "cuda" and self._text_config.model_type in FAMILIES
        self._kept: dict[tuple[int, bool], StaticDecoder] = {}
        if self._static:
            compute_densely(self.model)

    def _suggested_streams(self, threads: int) -> int:
        return min(threads, _MOST_STREAMS) if self._small_on_cpu else 1

    def _fuse(self) -> None:
        if self._small_on_cpu:
            from radmoe_lab.inference.cpu_experts import fuse_experts  # compiled code that a GPU has no use for

            _lay_out_experts(self.model)
            fuse_experts(self.model)

    def _arranged(self, jobs: Sequence[Job]) -> list[Job]:
        # Prompts that share a pass are padded little.
        return sorted(jobs, key=lambda job: -len(job.prompt)) if self._static else list(jobs)

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
