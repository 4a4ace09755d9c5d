"""Checks before vLLM is started, because starting takes about a minute, and vLLM's own error is less specific."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from radmoe.engines.advice import VLLM_START
from radmoe.engines.vllm.plugin import NAME
from radmoe.engines.vllm.plugin.worker import IGNORED_TIE
from radmoe.errors import EngineError


def check_plugin() -> None:
    """Refuse an environment in which vLLM would not load the plugin.

    vLLM finds plugins by their entry points, which only an installed package has.
    """
    import vllm.envs as envs

    if not any(point.name == NAME for point in entry_points(group="vllm.general_plugins")):
        raise EngineError(
            "vLLM cannot see the radmoe plugin: install radmoe in vLLM's environment (pip install radmoe)"
        )
    if envs.VLLM_PLUGINS is not None and NAME not in envs.VLLM_PLUGINS:
        raise EngineError(f"VLLM_PLUGINS={','.join(envs.VLLM_PLUGINS)} leaves the radmoe plugin out: add radmoe to it")


def checked_config(vllm: Any, model: str | Path) -> Any:
    """vLLM's configuration of a model; EngineError for one that has no experts or that vLLM cannot load."""
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise EngineError(f"{model} is no checkpoint: it has no config.json; pass the directory of a saved model")
    try:
        config = vllm.EngineArgs(model=str(model), trust_remote_code=False).create_model_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(f"vLLM cannot load {model}: {first_line(error)}") from None
    if config.get_num_experts() < 2:
        raise EngineError(f"{model} is not a mixture-of-experts model: without a router there is no routing to capture")
    _check_head(Path(model), config)
    return config


def _check_head(path: Path, config: Any) -> None:
    """Refuse tied embeddings where vLLM 0.30 ignores them: it would sample noise and say nothing."""
    file, names = path / "model.safetensors", config.architectures
    if not file.is_file() or not getattr(config.hf_text_config, "tie_word_embeddings", False):
        return
    with file.open("rb") as stored:
        header = stored.read(int.from_bytes(stored.read(8), "little"))
    for name in {"GptOssForCausalLM", "Qwen3NextForCausalLM"} & set(names):
        if b'"lm_head.weight"' not in header:
            raise EngineError(IGNORED_TIE.format(name))


def not_started(model: str | Path, error: Exception) -> EngineError:
    """What to say where vLLM does not start, with what to change where that is known."""
    line = first_line(error)
    advice = "".join(f": {todo}" for sign, todo in VLLM_START.items() if sign in line)
    return EngineError(f"vLLM did not start with {model}: {line}{advice}")


def first_line(error: Exception) -> str:
    """The first line of an error's message; where pydantic puts a count of errors first, the line after it, without its input."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = lines[1] if len(lines) > 1 and "validation error" in lines[0] else lines[0]
    return line.partition(" [type=")[0]
