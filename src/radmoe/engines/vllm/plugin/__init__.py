"""Routing with weights out of an unmodified vLLM, which finds this plugin through its own entry points.

settings.py   what is captured: rows, layers, weights, memory; travels in vLLM's `additional_config`
worker.py     in every worker: taps on the routers, rows mapped to requests (`vllm.general_plugins`)
tape.py       device buffers the routers write to, also inside a CUDA graph
store.py      rows of running and finished requests in bounded host memory (NumPy)
payload.py    what leaves the worker, as bytes; `decode` reads it
endpoint.py   the route a client of `vllm serve` fetches it from (`vllm.endpoint_plugins`)

No file of vLLM is changed and no fork is needed, but methods are wrapped while it runs. Each wrapper calls the original
method and returns what that returned:

    WorkerBase.__init__       the class, in every process of vLLM, when `register` runs; afterwards a worker whose
                              `additional_config` has an entry "radmoe" is prepared, and any other is left as it is
    worker.load_model         of such a worker; when the model is loaded, the following are wrapped
    router._compute_routing   of every captured layer: copies the ids and weights it answered into a buffer
    runner.execute_model      of the model runner: before and after a pass, to tell whose rows were computed
    runner.prepare_inputs     of vLLM's second model runner only, to see the batch of the pass

The worker also gets two methods, `radmoe_status` and `radmoe_take`, which `collective_rpc` calls. These names are
internal to vLLM: docs/engines.md lists the versions that were run, and a model whose routers or runner are not known is
refused when it is loaded. All of that is for those who asked: in a process that did not, nothing here raises, whatever vLLM looks like.

A request that wants its routing recorded carries `extra_args={"radmoe": KEY}` (over HTTP `vllm_xargs`), where KEY is a
text of the client's own choice, new for each request. Requests without it are not recorded. docs/engines.md is the
protocol.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Mapping
from typing import Any

NAME = "radmoe"  # of both entry points, the additional_config entry and the request's extra argument
TAKE, STATUS = "radmoe_take", "radmoe_status"  # methods of a worker, for collective_rpc


def asked(owner: Any) -> bool:
    """Whether the configuration of a worker or an engine asks for capture. False if vLLM's layout is not the known one."""
    config = getattr(getattr(owner, "vllm_config", None), "additional_config", None)
    return isinstance(config, Mapping) and NAME in config


def unknown_vllm(error: Exception) -> None:
    """Write a warning to vLLM's log that nothing will be captured. Servers that did not ask for capture are not affected."""
    logging.getLogger("vllm.radmoe").warning(
        "radmoe does not know this version of vLLM and captures no routing (%s: %s); nothing else changes",
        type(error).__name__,
        error,
    )


def register() -> None:
    """Wrap `WorkerBase.__init__`, so that workers which are to capture are prepared for it.

    vLLM calls this in each of its processes, once or more, before a worker is made (`vllm.general_plugins`), also where
    nobody wants routing. So it never raises, and neither does the wrapper for a worker that is not to capture.
    """
    try:
        from vllm.v1.worker.worker_base import WorkerBase

        original = WorkerBase.__init__
        if getattr(original, NAME, False):
            return

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if asked(self):
                from radmoe.engines.vllm.plugin.worker import attach

                attach(self)

        setattr(init, NAME, True)
        WorkerBase.__init__ = init
        _answer_get()
    except Exception as error:
        unknown_vllm(error)


def _answer_get() -> None:
    """Let vLLM 0.31 and 0.32 start where numba was imported before.

    They ask every object of every module for `vars(it).get`, and llvmlite's library answers any name with a function.
    """
    if (ffi := sys.modules.get("llvmlite.binding.ffi")) is not None and hasattr(ffi, "_lib_fn_wrapper"):
        ffi._lib_fn_wrapper.get = lambda *_: None
