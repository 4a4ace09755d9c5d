"""Rows go to their requests by position, whichever of vLLM's model runners made the pass.

vLLM's second runner needs a GPU and real vLLM is not in this environment, so runners stand in here: they hold a batch as
the real ones do, and route by token and position, so that a row says whose it is.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from radmoe.engines.vllm.plugin.payload import decode
from radmoe.engines.vllm.plugin.settings import PluginSettings
from radmoe.engines.vllm.plugin.worker import RowRecorder
from radmoe.errors import EngineError

LAYERS, EXPERTS, TOP_K = 2, 64, 2


class Router:
    top_k = TOP_K

    def __init__(self, layer: int) -> None:
        self.layer = layer

    def _compute_routing(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = (hidden[:, 0] + self.layer) % EXPERTS
        return torch.tensor([[0.75, 0.25]]).expand(len(hidden), TOP_K), torch.stack([first, (first + 1) % EXPERTS], 1)


def expected(request: int, position: int, layer: int) -> list[int]:
    first = (20 * request + position + layer) % EXPERTS
    return [first, (first + 1) % EXPERTS]


class Runner:
    """Runs a pass over (request, first position, count) triples."""

    device, max_num_tokens = torch.device("cpu"), 32

    def __init__(self) -> None:
        self.routers = [Router(layer) for layer in range(LAYERS)]
        layers = [SimpleNamespace(router=router, layer_id=i) for i, router in enumerate(self.routers)]
        self.model = SimpleNamespace(modules=lambda: layers, lm_head=None)

    def forward(self, batch: list[tuple[int, int, int]]) -> None:
        hidden = torch.tensor([[20 * r + p] for r, start, count in batch for p in range(start, start + count)])
        for router in self.routers:
            router._compute_routing(hidden)


class First(Runner):
    """As Model Runner V1: one persistent batch, with room for more requests than there are."""

    def __init__(self) -> None:
        super().__init__()
        self.input_batch = SimpleNamespace(req_ids=[], num_computed_tokens_cpu=np.full(8, 99, np.int32))

    def execute_model(self, scheduled: Any) -> str:
        self.input_batch.req_ids = [f"r{r}" for r, _, _ in scheduled.batch]
        self.input_batch.num_computed_tokens_cpu[: len(scheduled.batch)] = [start for _, start, _ in scheduled.batch]
        self.forward(scheduled.batch)
        return "output"


class Second(Runner):
    """As Model Runner V2: every pass prepares a batch of its own."""

    def prepare_inputs(self, scheduled: Any, described: str) -> Any:
        return SimpleNamespace(
            req_ids=[f"r{r}" for r, _, _ in scheduled.batch],
            num_computed_tokens_np=np.array([start for _, start, _ in scheduled.batch], np.int32),
        )

    def execute_model(self, scheduled: Any) -> str:
        self.prepare_inputs(scheduled, "described")
        self.forward(scheduled.batch)
        return "output"


def scheduled(*batch: tuple[int, int, int], new: dict[int, int] | None = None) -> SimpleNamespace:
    """A pass; `new` maps the requests that begin to their prompts' lengths."""
    begin = [
        SimpleNamespace(
            req_id=f"r{r}",
            prompt_token_ids=[0] * prompt,
            sampling_params=SimpleNamespace(extra_args={"radmoe": f"key{r}"}),
        )
        for r, prompt in (new or {}).items()
    ]
    return SimpleNamespace(
        batch=batch,
        finished_req_ids=set(),
        scheduled_new_reqs=begin,
        num_scheduled_tokens={f"r{r}": count for r, _, count in batch},
        total_num_scheduled_tokens=sum(count for _, _, count in batch),
    )


def configuration(**parallel: int) -> SimpleNamespace:
    return SimpleNamespace(
        model_config=SimpleNamespace(
            get_num_experts=lambda: EXPERTS, max_model_len=64, hf_text_config=SimpleNamespace()
        ),
        parallel_config=SimpleNamespace(**({"pipeline_parallel_size": 1, "data_parallel_size": 1} | parallel)),
        compilation_config=SimpleNamespace(max_cudagraph_capture_size=16),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        speculative_config=None,
    )


@pytest.mark.parametrize("kind", [First, Second])
def test_rows_find_their_requests(kind: type[Runner]) -> None:
    """A prompt in two parts, a second request between them in another order, then both decode."""
    runner: Any = kind()
    recorder = RowRecorder(runner, configuration(), PluginSettings(memory_mib=1))
    assert runner.execute_model(scheduled((0, 0, 4), new={0: 6})) == "output"
    runner.execute_model(scheduled((1, 0, 3), (0, 4, 2), new={1: 3}))
    for step in range(3):
        runner.execute_model(scheduled((0, 6 + step, 1), (1, 3 + step, 1)))
    for request, prompt in ((0, 6), (1, 3)):
        routing = decode(recorder.take(f"key{request}"))[0]
        ids, weights = routing.generated(4)
        for t in range(4):
            for layer in range(LAYERS):
                assert ids[t, layer].tolist() == expected(request, prompt - 1 + t, layer)
        assert np.allclose(weights, [0.75, 0.25])


@pytest.mark.parametrize("kind", [First, Second])
def test_a_preempted_request_that_begins_anew_keeps_its_rows(kind: type[Runner]) -> None:
    """The second runner frees a preempted request and is told of it as of a new one; its rows are computed again."""
    runner: Any = kind()
    recorder = RowRecorder(runner, configuration(), PluginSettings(memory_mib=1))
    runner.execute_model(scheduled((2, 0, 3), new={2: 3}))
    runner.execute_model(scheduled((2, 3, 1)))
    runner.execute_model(scheduled((2, 2, 2), new={2: 3}))  # what was cached is not computed again
    runner.execute_model(scheduled((2, 4, 1)))
    ids, _ = decode(recorder.take("key2"))[0].generated(3)
    assert ids[:, 0].tolist() == [expected(2, position, 0) for position in (2, 3, 4)]


def test_a_runner_of_a_third_kind_is_refused() -> None:
    runner: Any = Runner()
    runner.execute_model = runner.forward
    with pytest.raises(
        EngineError, match="the model runner Runner is not known: start vLLM with VLLM_USE_V2_MODEL_RUNNER=0"
    ):
        RowRecorder(runner, configuration(), PluginSettings(memory_mib=1))


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (configuration(pipeline_parallel_size=2), "pipeline parallelism splits the layers: use --tensor-parallel-size"),
        (configuration(data_parallel_size=2), "data parallelism is not supported: start one server per replica"),
        (configuration(use_ubatching=True), "dual-batch overlap is not supported: leave --enable-dbo out"),
    ],
)
def test_settings_under_which_rows_cannot_be_told_apart(config: SimpleNamespace, line: str) -> None:
    with pytest.raises(EngineError, match=line):
        RowRecorder(First(), config, PluginSettings(memory_mib=1))


def test_drafts_are_refused() -> None:
    config = configuration()
    config.speculative_config = SimpleNamespace(num_speculative_tokens=3)
    with pytest.raises(EngineError, match="speculative decoding is not supported: leave --speculative-config out"):
        RowRecorder(First(), config, PluginSettings(memory_mib=1))
