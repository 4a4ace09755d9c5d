"""The engines by name, and what to install where one is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radmoe.cli.sources import is_lab_model, resolve_model
from radmoe.errors import EngineError, InputError

if TYPE_CHECKING:
    from radmoe.engines.base import Engine

ENGINES = ("transformers", "vllm", "vllm-http", "sglang-http", "llamacpp")


def open_engine(
    kind: str,
    model: str | None,
    *,
    url: str | None = None,
    served: str | None = None,
    api_key: str | None = None,
    timeout: float = 600.0,
    dtype: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    weights: bool = True,
    layers: str | None = None,
    **http: Any,
) -> Engine:
    """An engine of that kind with this model. `weights=False` is expert ids only; `http` goes to a server's client.

    `layers` is a subset that suffices: vLLM's plugin captures no others. Other engines capture all.
    """
    if kind not in ENGINES:
        raise InputError(f"unknown engine {kind!r}: use one of {', '.join(ENGINES)}")
    if kind.endswith("-http"):
        if url is None:
            raise InputError(f"{kind} needs --url, the address of the server")
        return _http(kind, url, model, {"served": served, "api_key": api_key, "timeout": timeout} | http)
    if url is not None:
        raise InputError(f"--url is of vllm-http and sglang-http: {kind} runs the model itself")
    if model is None:
        raise InputError(f"{kind} needs --model: a checkpoint, or lab-qwen")
    if kind == "vllm":
        from radmoe.engines.vllm.engine import VllmEngine

        options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
        return VllmEngine(resolve_model(model), weights=weights, layers=layers if weights else None, **options)
    if kind == "llamacpp":
        from radmoe.engines.llamacpp.engine import LlamaCppEngine

        return LlamaCppEngine(model, threads=threads)
    return _transformers(
        model, {"dtype": dtype or ("float32" if is_lab_model(model) else "auto"), "device": device, "threads": threads}
    )


def _transformers(model: str, options: dict[str, Any]) -> Engine:
    directory = resolve_model(model)
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise EngineError(f"this needs {error.name}: pip install 'radmoe[transformers]'") from None
    from radmoe.engines.torch.engine import TransformersEngine

    transformers.logging.set_verbosity_error()  # hints about kernels that are not installed
    return TransformersEngine(directory, **options)


def _http(kind: str, url: str, model: str | None, options: dict[str, Any]) -> Engine:
    from radmoe.engines.http import SglangHttpEngine, VllmHttpEngine

    engine = VllmHttpEngine if kind == "vllm-http" else SglangHttpEngine
    return engine(url, None if model is None else resolve_model(model), **options)
