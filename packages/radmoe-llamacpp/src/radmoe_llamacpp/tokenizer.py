"""The tokenizer in a GGUF file: llama.cpp splits texts, and the file's own template renders messages."""

from __future__ import annotations

import ctypes
import json
from datetime import datetime
from typing import Any, NoReturn

from radmoe.errors import EngineError, InputError
from radmoe.vocab import Vocab
from radmoe_llamacpp.api import BPE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, LlamaModel


class GgufTokenizer:
    """The tokenizer of a GGUF file, with those methods of a Hugging Face tokenizer that engines need."""

    def __init__(self, model: LlamaModel) -> None:
        if model.lib.llama_vocab_type(model.vocab) != BPE:
            kind = model.meta("tokenizer.ggml.model")
            raise EngineError(
                f"this GGUF carries a tokenizer of kind {kind!r}, and only byte-level BPE ('gpt2') can be read from it: "
                "pass tokenizer=DIRECTORY of the model's tokenizer.json"
            )
        self._model = model
        self.vocab = Vocab.from_json(_tokenizer_json(model), where="the GGUF's tokenizer")
        template = model.lib.llama_model_chat_template(model.handle, None)
        self.chat_template: str | None = template.decode() if template else None
        self._named: dict[str, str] = {}
        for name in ("bos", "eos"):
            token = getattr(model.lib, f"llama_vocab_{name}")(model.vocab)
            if token >= 0:
                self._named[f"{name}_token"] = self.vocab.token_bytes(token).decode()

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        data = text.encode()
        room = len(data) + 8  # a token has at least one byte, and the tokenizer may add a few tokens
        ids = (ctypes.c_int32 * room)()
        count = self._model.lib.llama_tokenize(self._model.vocab, data, len(data), ids, room, add_special_tokens, True)
        if count < 0:
            raise InputError(f"llama.cpp cannot tokenize {text[:40]!r}")
        return {"input_ids": ids[:count]}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        if skip_special_tokens:
            controls = set(self.vocab.added.values())
            ids = [token for token in ids if token not in controls]
        return self.vocab.decode_bytes(ids).decode("utf-8", "replace")

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        **arguments: object,
    ) -> str | list[int]:
        """Messages as the template writes them, or their token ids."""
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if self.chat_template is None:
            raise InputError("this GGUF carries no chat template: pass the prompt as a text")
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        env.filters["tojson"] = _to_json
        env.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        text = env.from_string(self.chat_template).render(
            messages=messages, add_generation_prompt=add_generation_prompt, **self._named, **arguments
        )
        return self(text, add_special_tokens=False)["input_ids"] if tokenize else text


def _refuse(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _tokenizer_json(model: LlamaModel) -> str:
    """A tokenizer.json that spells every token. It has no merges, since llama.cpp splits the text."""
    own: dict[str, int] = {}
    added: list[dict[str, object]] = []
    for token in range(model.words):
        text = model.lib.llama_vocab_get_text(model.vocab, token).decode("utf-8", "replace")
        kind = model.lib.llama_vocab_get_attr(model.vocab, token)
        if kind & (CONTROL | USER_DEFINED | UNKNOWN):
            plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            added.append({"id": token, "content": text, **plain, "special": bool(kind & CONTROL)})
        elif not kind & UNUSED:  # a name for an id that only pads the logits
            own[text] = token
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": own, "merges": []},
    }  # fmt: skip
    return json.dumps(spec, ensure_ascii=False)
