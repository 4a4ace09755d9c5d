"""Engines: each samples completions and returns every one with its routing.

base.py        what every engine is asked for and hands back: the `Engine` protocol, sampling, completions
options.py     how an engine is opened
models.py      the directory of a model by its name
checkpoint.py  what a model's directory says without its weights
prompts.py     prompts to token ids, through the tokenizer's chat template
advice.py      what to change when routing is missing or wrong: the flags that messages name
batches.py     a batch of requests for engines that only generate
kept_rows.py   what a profile keeps, for engines that need not fetch the rest
torch/         any local Hugging Face MoE checkpoint, run with torch and transformers
vllm/          vLLM in this process, stock or with the plugin, and the plugin that runs inside vLLM
http/          running vLLM and SGLang servers
replay/        routing for rollouts that exist already, as tokens or as texts
doctor/        checks whether the routing that an engine hands over is that of its tokens

`engine_names` lists the engines, those of plugins included; a class of one's own is named by its dotted path. No engine's
module is imported before the engine is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from radmoe.engines.models import shipped_models
from radmoe.engines.options import EngineOptions
from radmoe.errors import EngineError, InputError
from radmoe.system.plugins import added

if TYPE_CHECKING:
    from radmoe.engines.base import Engine

__all__ = ["ENGINES", "EngineOptions", "engine_class", "engine_names", "open_engine"]

ENGINES: dict[str, str] = {
    "transformers": "radmoe.engines.torch.engine.TransformersEngine",
    "vllm": "radmoe.engines.vllm.engine.VllmEngine",
    "vllm-http": "radmoe.engines.http.engine.VllmHttpEngine",
    "sglang-http": "radmoe.engines.http.engine.SglangHttpEngine",
}
_EXTRAS = {"vllm-http": "http", "sglang-http": "http"}  # the extra to install, where it is not the engine's name
# engines that stand in the documentation, and the package that brings each
_COMPANIONS = {"llamacpp": "radmoe-llamacpp"}


def engine_names() -> list[str]:
    """The names of all engines: radmoe's own, then those of plugins."""
    return list(ENGINES | added("engines"))


def engine_class(name: str) -> type[Engine]:
    """The class of an engine, by one of `engine_names` or by the dotted path `package.module.Class` of any other.

    Raises InputError for a name that is unknown and for a path that leads to no engine, EngineError for an engine of
    this package whose libraries are not installed.
    """
    from radmoe.engines.base import Engine

    path = (added("engines") | ENGINES).get(name, name)
    module, _, attribute = path.rpartition(".")
    known = f"use one of {', '.join(engine_names())}, or the dotted path of a class (package.module.Class)"
    if name == path and name in _COMPANIONS:
        raise EngineError(
            f"{name} is part of {_COMPANIONS[name]}, which is not installed: pip install {_COMPANIONS[name]}"
        )
    if not module or not attribute:
        raise InputError(f"unknown engine {name!r}: {known}")
    try:
        engine = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # a module of someone else may raise anything while it is imported
        if name in ENGINES and isinstance(error, ModuleNotFoundError):
            raise EngineError(f"this needs {error.name}: pip install 'radmoe[{_EXTRAS.get(name, name)}]'") from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot import the engine {name!r} ({reason}): {known}") from None
    if not isinstance(engine, type):
        raise InputError(f"{module} has no class {attribute!r}: {known}")
    if Engine not in engine.__mro__:
        raise InputError(f"{name} does not inherit from radmoe.engines.base.Engine, so it is not an engine: {known}")
    return engine


def open_engine(name: str, model: str | None, options: EngineOptions | None = None) -> Engine:
    """Open the engine of this name (see `engine_class`) with a model. A shipped model may bring an engine of its own, which opens
    it where transformers is asked for.

    `model` is a checkpoint directory, a GGUF file, or a name that `models.resolve_model` knows; an engine over a server
    may do without. Options that the engine needs and lacks, or that it was given and cannot use, are InputErrors.
    """
    if name == "transformers" and model in (shipped := shipped_models()):
        name = shipped[model].engine
    return engine_class(name).open(model, options or EngineOptions())
