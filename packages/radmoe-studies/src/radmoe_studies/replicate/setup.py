"""How a replication samples: an engine that was checked against the configuration, with sampling, profile and style."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from radmoe import __version__
from radmoe.engines import EngineOptions, open_engine
from radmoe.engines.base import Engine, Sampling
from radmoe.engines.checkpoint import fingerprint
from radmoe.engines.kept_rows import profile_for
from radmoe.engines.prompts import encode, template_arguments
from radmoe.errors import InputError
from radmoe.pool import Profile
from radmoe.problems import Content
from radmoe_studies.replicate.configs import PaperConfiguration

TIMEOUT = 4 * 3600.0  # seconds for a rollout of a busy server, where nobody said: the usual ten minutes are too few
WINDOWS = ("delimiter@16", "delimiter@span")  # what methods read: the paper's window, and the answer from open to close


@dataclass(frozen=True)
class Setup:
    """An engine, and how it is asked."""

    engine: Engine
    sampling: Sampling
    profile: Profile
    style: str | None
    batch_size: int

    @classmethod
    def of(
        cls,
        config: PaperConfiguration,
        engine: str,
        model: str | None,
        options: EngineOptions,
        seed: int,
        batch_size: int,
        *,
        full: bool,
    ) -> Setup:
        """Open an engine for a configuration. InputError where its model has another router, or less context, than the paper says."""
        if batch_size < 1:
            raise InputError(f"--batch-size must be at least 1, got {batch_size}")
        if options.timeout == EngineOptions.timeout:
            options = replace(options, timeout=TIMEOUT)
        opened = open_engine(engine, config.model if model is None else model, options)
        if fault := _difference(config, opened):
            opened.close()
            raise InputError(fault)
        opened.context = config.context
        sampling = Sampling(config.temperature, config.top_p, config.context, seed)
        profile = profile_for(opened, readouts=None if full else WINDOWS)
        return cls(opened, sampling, profile, config.style, batch_size)

    def made(self, speed: float) -> dict[str, Any]:
        """What a document records of how its rollouts were made."""
        engine = self.engine
        return {
            "radmoe": __version__,
            "engine": engine.name,
            "versions": dict(engine.versions),
            "model": engine.model_name,
            "checkpoint": fingerprint(engine.checkpoint),
            "dtype": engine.dtype,
            "tokens_per_second": round(speed, 3),
        }

    def ids(self, content: Content) -> list[int]:
        """A prompt as tokens, through the chat template in the configuration's style."""
        arguments: dict[str, object] = {} if self.style is None else template_arguments(self.style)
        return encode(self.engine.tokenizer, content, raw=False, **arguments)[1]


def _difference(config: PaperConfiguration, engine: Engine) -> str:
    """Why an engine cannot stand for a configuration; empty where it can."""
    if config.router not in (None, engine.shape):
        return (
            f"{engine.model_name} has a router of {engine.shape} and {config.name} one of {config.router}: give its "
            f"--model {config.model}"
        )
    if engine.context is not None and engine.context < config.context:
        return (
            f"{engine.model_name} takes {engine.context:,} tokens here and {config.name} is sampled up to "
            f"{config.context:,}: start the server with a longer context (vLLM: --max-model-len {config.context})"
        )
    return ""
