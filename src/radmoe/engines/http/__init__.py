"""Rollouts with their routing from a running vLLM or SGLang server.

client.py    one client for servers: requests with limits on time, size and retries
loop.py      the event loop in which requests run, in a thread of its own
fields.py    answers read field by field, each with the type it must have
jobs.py      many rollouts at a time, each as it arrives
answers.py   what vLLM and SGLang answer, as rollouts: tokens, log-probabilities, and the rows R(t) of their routing
dialects.py  what differs between vLLM and SGLang: what they are asked, and advice
engine.py    the engines "vllm-http" and "sglang-http"

A server says neither how many experts a layer has nor how its tokens are spelled. Both come from the model's directory,
of which config.json and tokenizer.json suffice: weights are not read (docs/engines.md). The engines are imported when
they are asked for, since they need httpx and other parts of this room do not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radmoe.engines.http.engine import HttpEngine, SglangHttpEngine, VllmHttpEngine

__all__ = ["HttpEngine", "SglangHttpEngine", "VllmHttpEngine"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from radmoe.engines.http import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
