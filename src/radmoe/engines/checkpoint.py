"""Reads a checkpoint directory without loading weights: router, tokenizer and generation settings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from radmoe.errors import EngineError, InputError
from radmoe.types import RouterShape, sparse_layers
from radmoe.vocab import Vocab

SAMPLES, SAMPLE_BYTES = 16, 1 << 16  # blocks of each file of weights that a fingerprint reads


class RouterLayout(NamedTuple):
    """The router of a model as its configuration says it, and the model's name for messages.

    `layers` counts all layers; `sparse` are those with experts, which `shape.layers` counts.
    """

    shape: RouterShape
    layers: int
    sparse: tuple[int, ...]
    model: str

    @classmethod
    def of_config(cls, text: Any, model: str) -> RouterLayout:
        """From the configuration of a text model; EngineError for a model without experts."""
        try:
            shape = RouterShape.from_config(text)
        except InputError:
            raise EngineError(
                f"{model} ({text.model_type}) is not a mixture-of-experts model: without a router there is no routing"
            ) from None
        sparse = sparse_layers(lambda name: getattr(text, name, None))
        return cls(shape, text.num_hidden_layers, tuple(sparse), Path(model).name)

    @property
    def dense(self) -> tuple[int, ...]:
        """The layers without experts."""
        return tuple(sorted(set(range(self.layers)) - set(self.sparse)))


class Checkpoint:
    """The configuration, tokenizer and generation settings of a checkpoint directory. Weights are not read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if not (self.path / "config.json").is_file():
            raise EngineError(f"{path} has no config.json: pass the directory of the model that is served")
        try:
            from transformers import AutoConfig, AutoTokenizer, GenerationConfig
        except ImportError:
            raise EngineError("reading a model's directory needs transformers: pip install 'radmoe[http]'") from None
        try:
            config = AutoConfig.from_pretrained(self.path, local_files_only=True, trust_remote_code=False)
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                self.path, local_files_only=True, trust_remote_code=False
            )
            settings = (self.path / "generation_config.json").is_file()
            self._settings = GenerationConfig.from_pretrained(self.path, local_files_only=True) if settings else None
        except Exception as error:  # a broken tokenizer.json is an exception of no type of its own
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(f"cannot read the model's directory {path}: {reason}") from None
        text = config.get_text_config()
        self.vocab = Vocab.from_tokenizer(self.tokenizer)
        self.context: int | None = getattr(text, "max_position_embeddings", None)
        self.router = RouterLayout.of_config(text, str(path))
        self.shape = self.router.shape

    @property
    def has_weights(self) -> bool:
        """Whether the weights are in the directory too, as safetensors."""
        return any(self.path.glob("*.safetensors"))

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the generation config, or `otherwise` if it has none of that name."""
        value = getattr(self._settings, name, None)
        return otherwise if value is None else value


def fingerprint(directory: Path | None) -> str | None:
    """A digest that identifies the weights of a checkpoint: 64 hex digits, or None if it has no safetensors.

    It is a SHA-256 over config.json and, for each safetensors file, its name, its size and SAMPLES blocks at even
    distances, so that hundreds of gigabytes need no full reading. Weights that were trained on differ in every block.
    """
    files = sorted(directory.glob("*.safetensors")) if directory is not None else []
    if directory is None or not files:
        return None
    config = directory / "config.json"
    digest = hashlib.sha256(config.read_bytes() if config.is_file() else b"")
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as weights:
            for i in range(SAMPLES):
                weights.seek(max(0, size - SAMPLE_BYTES) * i // (SAMPLES - 1))
                digest.update(weights.read(SAMPLE_BYTES))
    return digest.hexdigest()
