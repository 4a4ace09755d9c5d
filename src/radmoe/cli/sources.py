"""Where a command's model and problems come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.cli.common import limited

if TYPE_CHECKING:
    from radmoe.engines.prompts import Prompt


def is_lab_model(name: str) -> bool:
    from radmoe.lab.models import MODELS

    return name in MODELS


def resolve_model(name: str) -> Path:
    """The directory of a model: one of the lab, a path, or one of the local Hugging Face cache. Nothing is downloaded."""
    from radmoe.errors import EngineError
    from radmoe.lab.models import MODELS, weights

    if name in MODELS:
        return weights(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    known: dict[str, Path] = {}
    try:
        from huggingface_hub import constants, try_to_load_from_cache
    except ImportError:
        pass
    else:
        known = {
            folder.name.removeprefix("models--").replace("--", "/"): folder
            for folder in sorted(Path(constants.HF_HUB_CACHE).glob("models--*"))
        }
        if name in known:
            config = try_to_load_from_cache(name, "config.json")
            if isinstance(config, str):
                return Path(config).parent
    cached = ", ".join(known) or "none"
    raise EngineError(
        f"no model {name!r}: use {', '.join(MODELS)}, a checkpoint directory, or a model of the local cache ({cached})"
    )


def load_problems(
    task: str | None, prompts: Path | None, *, seed: int, limit: int | None
) -> tuple[list[Prompt], str | None]:
    """The problems to sample, of a lab task or of a file, and the task's kind: whose marker opens an answer."""
    from radmoe.engines.prompts import Prompt, read_prompts
    from radmoe.errors import InputError
    from radmoe.lab.tasks import problems, task_named

    if (task is None) == (prompts is None):
        raise InputError("give the problems: --task math-2 for the lab's own, or --prompts FILE for others, not both")
    if prompts is not None:
        return limited(limit, read_prompts(prompts)), None
    assert task is not None
    kind = task_named(task).kind
    return [Prompt(p.problem_id, p.prompt) for p in problems(task, seed=seed, limit=limit)], kind
