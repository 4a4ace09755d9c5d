"""How an engine is opened, and the refusal of options that an engine lacks or cannot use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from radmoe.errors import InputError


@dataclass(frozen=True)
class EngineOptions:
    """How an engine is opened; every engine uses some of these.

    url, served       the address of a server, and the name of the model in it where it has several
    api_key           sent to a server as a bearer token
    timeout, retries  seconds that one request may take to the last byte of its answer, and how often it is sent again
    probe             whether a server is asked for two tokens first, to see that it returns routing
    dtype             what the model computes in; None leaves the choice to the engine
    device, threads   where a local model runs, and on how many cores (None: the engine decides)
    weights           whether weights are wanted beside expert ids; an engine may return them although they are not
    layers            a layer subset that suffices, such as "s0"; an engine may capture more
    """

    url: str | None = None
    served: str | None = None
    api_key: str | None = None
    timeout: float = 600.0
    retries: int = 5
    probe: bool = True
    dtype: str | None = None
    device: str = "cpu"
    threads: int | None = None
    weights: bool = True
    layers: str | None = None


def refuse_options(options: EngineOptions, names: Iterable[str], reason: str) -> None:
    """Raise InputError if one of these options was given, which is to say that it differs from its default."""
    for name in names:
        if getattr(options, name) != getattr(EngineOptions(), name):
            raise InputError(f"--{name} {reason}")


def refuse_server_options(options: EngineOptions, engine: str) -> None:
    """Raise InputError if options of a server's client were given to an engine that runs the model itself."""
    refuse_options(options, ("url", "served"), f"is of vllm-http and sglang-http: {engine} runs the model itself")


def required_model(model: str | None, engine: str, allowed: str) -> str:
    """The model's name; InputError where none was given. `allowed` says what it may be."""
    if model is None:
        raise InputError(f"{engine} needs --model: {allowed}")
    return model
