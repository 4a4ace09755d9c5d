"""What to change when routing is missing or wrong: the one list that every message takes its advice from."""

from __future__ import annotations

VLLM_FLAG = "start vllm serve with --enable-return-routed-experts, and not with VLLM_USE_RUST_FRONTEND=1, which leaves routing out"
PLUGIN = "VLLM_PLUGINS=radmoe and --additional-config '{\"radmoe\": {}}'"

# How vLLM is told to use expert kernels that ask the router, by the format of the experts' weights. Read in vLLM 0.30.0
# and 0.33.0 (fused_moe/oracle): for MXFP4, `triton` is a kernel that routes by itself; `marlin` asks the router, and takes
# no unquantised weights.
VLLM_BACKENDS = {"4-bit weights (gpt-oss in MXFP4)": "marlin", "16- and 8-bit weights": "triton"}
VLLM_KERNEL = "start vLLM with " + ", ".join(
    f"--moe-backend {backend} for {weights}" for weights, backend in VLLM_BACKENDS.items()
)
VLLM_STOCK_KERNEL = f"{VLLM_KERNEL}; on a CPU with --enforce-eager, or with the radmoe plugin ({PLUGIN})"
SGLANG_KERNEL = (
    "start sglang.launch_server with --moe-runner-backend triton (for gpt-oss its triton_kernel records nothing)"
)

# What vLLM says where its own capture cannot start, and what to do
VLLM_START = {
    "requires Model Runner V2": "capture with the plugin (leave --ids-only out), or with vLLM up to 0.30 where there is no GPU",
    "monolithic MoE kernel": VLLM_KERNEL,
}
EPLB = "its ids are those of replicas: start the server without --enable-eplb"
VLLM_RUN = ("0.26", "0.30", "0.31", "0.32")  # docs/engines.md says what was run with each


def untried_vllm(version: str) -> str:
    """A line about a version of vLLM that nobody ran radmoe with; empty for the others."""
    if version.split("+")[0].rpartition(".")[0] in VLLM_RUN:
        return ""
    return f"nobody ran radmoe with vLLM {version}, only with {', '.join(VLLM_RUN)}: see what radmoe doctor says of it first"


_UPDATE = "update the server: its releases have had such faults; or capture with transformers"
_VLLM = {
    "routing": f"{VLLM_FLAG}, or with {PLUGIN}",
    "zeros": VLLM_STOCK_KERNEL,
    "constant": VLLM_STOCK_KERNEL,
    "rows": "turn off what adds or drops rows: --no-async-scheduling, no speculative decoding (--speculative-config)",
    "alignment": "turn off --speculative-config and --async-scheduling, and update vLLM; do not capture with this server",
    "prefix cache": "start vllm serve with --no-enable-prefix-caching (vLLM up to 0.30), or update vLLM",
    "repeatable": "set VLLM_BATCH_INVARIANT=1 where the GPU allows it, else compare rollouts by their distribution",
    "seed": "set VLLM_BATCH_INVARIANT=1 where the GPU allows it; a resumed capture draws other rollouts",
    "logprobs": "start vllm serve with --max-logprobs 20, or capture with --no-logprobs",
    "experts differ": VLLM_STOCK_KERNEL,
}
_SGLANG = {
    "routing": "start sglang.launch_server with --enable-return-routed-experts",
    "zeros": SGLANG_KERNEL,
    "constant": SGLANG_KERNEL,
    "rows": "turn off speculative decoding (--speculative-algorithm) and --enable-dp-attention, or update SGLang",
    "alignment": "turn off --speculative-algorithm, and update SGLang; do not capture with this server",
    "prefix cache": "start sglang.launch_server with --disable-radix-cache, or update SGLang",
    "repeatable": "start sglang.launch_server with --enable-deterministic-inference",
    "seed": "start sglang.launch_server with --enable-deterministic-inference: without it seeds are ignored",
    "experts differ": SGLANG_KERNEL,
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
    "range": f"pass --model the directory of the model that is served; if it is, {EPLB}",
    "repeated rows": _UPDATE,
    "experts differ": _UPDATE,
    "weights": "update radmoe in the server's environment: its plugin divides weights by their sum",
    "reference": "compare --model and --reference with the served checkpoint, its quantisation too; else update the server",
    "logprobs": "capture with --no-logprobs",
}


def remedy(engine: str, check: str) -> str:
    """What to do about a failed check of an engine, named as in `radmoe.engines.ENGINES`."""
    return _OWN.get(engine, _LOCAL).get(check) or _ANY.get(check, _UPDATE)
