"""The vocabularies the tests look anchors up in: two real ones, and small ones made on the spot."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from radmoe.vocab import Vocab

DATA = Path(__file__).parents[1] / "data" / "tokenizers"
REAL = ("qwen3", "gpt-oss")


@cache
def tokenizer_json(name: str) -> bytes:
    return lzma.decompress((DATA / f"{name}.tokenizer.json.xz").read_bytes())


@cache
def vocab(name: str) -> Vocab:
    return Vocab.from_json(tokenizer_json(name))


@cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(name).decode())


def encode(name: str, text: str) -> list[int]:
    ids: list[int] = tokenizer(name).encode(text, add_special_tokens=False).ids
    return ids


def byte_level(tokens: dict[str, int], added: dict[str, int] | None = None) -> dict[str, Any]:
    """A byte-level tokenizer.json as a dictionary; `tokens` in GPT-2's spelling."""
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, "special": True} for text, i in (added or {}).items()],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": tokens, "merges": []},
    }


def small_vocab(texts: list[str], added: list[str] | None = None) -> Vocab:
    """Printable ASCII tokens (space and newline allowed), then added tokens, numbered from 0."""
    spelled = [text.replace(" ", "Ġ").replace("\n", "Ċ") for text in texts]
    numbered = {text: len(texts) + i for i, text in enumerate(added or ())}
    return Vocab.from_json(json.dumps(byte_level({text: i for i, text in enumerate(spelled)}, numbered)))
