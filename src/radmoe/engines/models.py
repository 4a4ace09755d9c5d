"""Finds the directory of a model by name: a shipped model, a path, or the local Hugging Face cache."""

from __future__ import annotations

from pathlib import Path, PurePath

from radmoe.errors import EngineError
from radmoe.system.plugins import PluginModel, added, attribute


def shipped_models() -> dict[str, PluginModel]:
    """The models that installed packages bring, by name."""
    return added("models")


def resolve_model(name: str) -> Path:
    """The directory of a model: a shipped one, a path, or one of the local Hugging Face cache. Nothing is downloaded."""
    shipped = shipped_models()
    if name in shipped:
        directory: Path = attribute(shipped[name].directory)(name)
        return directory
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    cached: dict[str, Path] = {}
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError:
        pass
    else:
        cached = {
            folder.name.removeprefix("models--").replace("--", "/"): folder
            for folder in sorted(Path(constants.HF_HUB_CACHE).glob("models--*"))
        }
        if name in cached:
            config = try_to_load_from_cache(name, "config.json")
            if isinstance(config, str):
                return Path(config).parent
    raise EngineError(
        f"no model {name!r}: use {', '.join(shipped) or 'a model of radmoe-lab (pip install radmoe-lab)'}, a checkpoint directory, "
        f"or a model of the local cache ({', '.join(cached) or 'none'})"
    )


def recorded_name(name: str | Path) -> str:
    """What a pool records as the name of a model: the last part of a path, any other name as it is."""
    path = Path(name)
    try:
        path = path.expanduser()
        is_path = path.exists() or PurePath(name).is_absolute()
        return path.resolve().name if is_path and str(name) not in shipped_models() else str(name)
    except (OSError, ValueError, RuntimeError):  # a name of a server's that this machine cannot look up
        return str(name)
