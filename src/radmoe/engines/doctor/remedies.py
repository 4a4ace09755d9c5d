"""The flag to change, by engine and check."""

from __future__ import annotations

_UPDATE = "update the server: its releases have had such faults; or capture with transformers"
_VLLM = {
    "routing": "start vllm serve with --enable-return-routed-experts, or with VLLM_PLUGINS=radmoe and --additional-config '{\"radmoe\": {}}'",
    "zeros": "start vllm serve with --moe-backend triton (kernels that route by themselves return zeros), or with the "
    "radmoe plugin: VLLM_PLUGINS=radmoe and --additional-config '{\"radmoe\": {}}'",
    "constant": "start vllm serve with --moe-backend triton, or with the radmoe plugin",
    "rows": "turn off what adds or drops rows: --no-async-scheduling, no speculative decoding (--speculative-config)",
    "alignment": "turn off --speculative-config and --async-scheduling, and update vLLM; do not capture with this server",
    "prefix cache": "start vllm serve with --no-enable-prefix-caching (vLLM up to 0.30), or update vLLM",
    "repeatable": "set VLLM_BATCH_INVARIANT=1 where the GPU allows it, else compare rollouts by their distribution",
    "seed": "set VLLM_BATCH_INVARIANT=1 where the GPU allows it; a resumed capture draws other rollouts",
    "logprobs": "start vllm serve with --max-logprobs 20, or capture with --no-logprobs",
    "experts differ": "start vllm serve with --moe-backend triton, or with the radmoe plugin",
}
_SGLANG = {
    "routing": "start sglang.launch_server with --enable-return-routed-experts",
    "zeros": "start sglang.launch_server with --moe-runner-backend triton (gpt-oss: triton_kernel records nothing)",
    "constant": "start sglang.launch_server with --moe-runner-backend triton",
    "rows": "turn off speculative decoding (--speculative-algorithm) and --enable-dp-attention, or update SGLang",
    "alignment": "turn off --speculative-algorithm, and update SGLang; do not capture with this server",
    "prefix cache": "start sglang.launch_server with --disable-radix-cache, or update SGLang",
    "repeatable": "start sglang.launch_server with --enable-deterministic-inference",
    "seed": "start sglang.launch_server with --enable-deterministic-inference: without it seeds are ignored",
    "experts differ": "start sglang.launch_server with --moe-runner-backend triton",
    "repeated rows": "update SGLang (issue 12162), or start it with --disable-overlap-schedule",
}
_LOCAL = {
    "alignment": "report this: the engine's own rows do not follow its tokens",
    "repeatable": "use --dtype float32, one thread and one batch size",
    "seed": "use --dtype float32",
}
_OWN: dict[str, dict[str, str]] = {"vllm-http": _VLLM, "vllm": _VLLM, "sglang-http": _SGLANG}
_ANY = {
    "engine": "",  # the line itself says it
    "tokenizer": "pass --model the directory of the model that is served",
    "answers": "ask again; if it stays, look into the server's log, and for a proxy that cuts long answers",
    "layers": "pass --model the directory of the model that is served; kernels may also hide layers (see zeros)",
    "range": "pass --model the directory of the model that is served",
    "repeated rows": _UPDATE,
    "experts differ": _UPDATE,
    "weights": "update radmoe in the server's environment: its plugin divides weights by their sum",
    "reference": "compare --model and --reference with the served checkpoint, its quantisation too; else update the server",
    "logprobs": "capture with --no-logprobs",
}


def remedy(engine: str, check: str) -> str:
    """What to do about a failed check of an engine, named as in `radmoe.engines.ENGINES`."""
    return _OWN.get(engine, _LOCAL).get(check) or _ANY.get(check, _UPDATE)
