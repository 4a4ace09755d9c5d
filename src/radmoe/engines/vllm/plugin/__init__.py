"""Routing with weights out of vLLM, through vLLM's own entry points: no patch, no fork.

settings.py   what is captured: window, layers, weights, memory; travels in vLLM's `additional_config`
worker.py     in every worker: taps on the routers, rows mapped to requests (`vllm.general_plugins`)
tape.py       device buffers the routers write to, also inside a CUDA graph
store.py      rows of running and finished requests in bounded host memory (NumPy)
payload.py    what leaves the worker, as bytes; `decode` reads it
endpoint.py   the route a client of `vllm serve` fetches it from (`vllm.endpoint_plugins`)

A request that wants its routing kept carries `extra_args={"radmoe": KEY}` (over HTTP `vllm_xargs`), KEY a
text of the client's own choice, new for each request. Requests without it are not recorded. The plugin
does nothing unless `additional_config` has an entry "radmoe". docs/engines.md is the protocol.
"""

from __future__ import annotations

from typing import Any

NAME = "radmoe"  # of both entry points, the additional_config entry and the request's extra argument
TAKE, STATUS = "radmoe_take", "radmoe_status"  # methods of a worker, for collective_rpc


def register() -> None:
    """`vllm.general_plugins`: runs in every process of vLLM, once or more, before a worker is made."""
    from vllm.v1.worker.worker_base import WorkerBase

    made = WorkerBase.__init__
    if getattr(made, NAME, False):
        return

    def init(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        made(self, vllm_config, *args, **kwargs)
        if NAME in (vllm_config.additional_config or {}):
            from radmoe.engines.vllm.plugin.worker import attach

            attach(self)

    setattr(init, NAME, True)
    WorkerBase.__init__ = init
