"""The directory of a model by its name: a shipped one, a path, or one of the local Hugging Face cache."""

from __future__ import annotations

import importlib
from pathlib import Path, PurePath

from radmoe.errors import EngineError

# Models that ship with the package: "module:function" gives the directory of a name. The module is imported when one
# of its models is asked for, so that engines need not import the lab.
SHIPPED: dict[str, str] = {
    "lab-qwen": "radmoe_lab.models:weights",
    "lab-oss": "radmoe_lab.models:weights",
    "lab-next": "radmoe_lab.models:weights",
    "lab-agent-qwen": "radmoe_lab.models:weights",
}
SHIPPED_DTYPE = "float32"  # what shipped models compute in unless told otherwise: they are small, and exact is better


def resolve_model(name: str) -> Path:
    """The directory of a model: a shipped one, a path, or one of the local Hugging Face cache. Nothing is downloaded."""
    if name in SHIPPED:
        module, _, function = SHIPPED[name].partition(":")
        directory: Path = vars(importlib.import_module(module))[function](name)
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
        f"no model {name!r}: use {', '.join(SHIPPED)}, a checkpoint directory, or a model of the local cache "
        f"({', '.join(cached) or 'none'})"
    )


def recorded_name(name: str | Path) -> str:
    """What a pool records as the name of a model: the last part of a path, any other name as it is."""
    path = Path(name).expanduser()
    if str(name) not in SHIPPED and (path.exists() or PurePath(name).is_absolute()):
        return path.resolve().name
    return str(name)
