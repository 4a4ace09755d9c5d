"""Rollouts with their routing from a running vLLM or SGLang server.

wire.py      one server: requests with retries, time limits and an end to waiting
crew.py      many requests at a time, each answer as it arrives
routed.py    routing as servers encode it, and the rows R(t) in it
dialects.py  what differs between vLLM and SGLang: requests, answers, advice
engine.py    the engines "vllm-http" and "sglang-http"

A server says neither how many experts a layer has nor how its tokens are spelled: both come from the
model's directory (config.json and tokenizer.json; its weights are not read). docs/engines.md.
"""

from radmoe.engines.http.engine import HttpEngine, SglangHttpEngine, VllmHttpEngine

__all__ = ["HttpEngine", "SglangHttpEngine", "VllmHttpEngine"]
